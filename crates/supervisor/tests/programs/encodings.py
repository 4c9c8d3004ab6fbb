import locale
import os
import sys

print(locale.getlocale(), locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.encoding, stream.errors, stream.line_buffering, stream.write_through, stream.newlines, type(stream.buffer))
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding(), sys.flags.utf8_mode)
print("öäü 漢字 🙂", os.fsencode("\udcff"))
open("out/ü.txt", "w").write("ü")
print("\udcff")

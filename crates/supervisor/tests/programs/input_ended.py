import os
import sys

print(repr(sys.stdin.read()), sys.stdin.isatty(), os.ttyname if sys.stdout.isatty() else None)
input("asked: ")

import os
import sys

print("first", end=" ")
os.write(1, b"[raw]")
print("second")
sys.stdout.write("no newline")
sys.stderr.write("error, no newline")
os.write(2, b"[raw]")
sys.stdout.buffer.write(b"\xff\n")
os.system("echo from a child")

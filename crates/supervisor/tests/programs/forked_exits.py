"""Copies of the process that end as programs do leave nothing behind."""
import os
import sys

codes = []
for number in range(30):
    child = os.fork()
    if child == 0:
        sys.exit(number)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes == list(range(30)))
reader, writer = os.pipe()
if os.fork() == 0:
    print("from the child", file=os.fdopen(writer, "w"))
    sys.exit()
os.close(writer)
print(os.read(reader, 100), os.read(reader, 100))
os.wait()
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) == [1, os.getpid()])

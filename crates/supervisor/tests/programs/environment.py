import os
import posix
import subprocess

print(list(os.environ.items()), posix.environ is os.environ._data, os.environ)
print(open("/proc/self/environ", "rb").read().rstrip(b"\0"))
print(os.getenv("PYTHONPATH"), b"PYTHONPATH" in posix.environ)
subprocess.run(["env"], check=True)
subprocess.run(["/bin/sh", "-c", "echo $PYTHONPATH; tr '\\0' '\\n' < /proc/self/environ"], check=True)
os.environ["PYTHONPATH"] = "/mine"
os.system("echo $PYTHONPATH")

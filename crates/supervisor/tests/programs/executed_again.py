import os
import sys

if "again" in sys.argv:
    print(sys.argv, sys.orig_argv, sys.path, sorted(os.environ.items()), sorted(sys.modules), os.listdir("/proc/self/fd"))
else:
    os.execv(sys.executable, [sys.executable, "script.py", "again"])

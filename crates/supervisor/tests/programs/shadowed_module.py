"""The file beside the script is the one that the script imports, loaded library or not."""
import sys

import json

print(json.__file__, json.WHOSE, sys.argv, sys.orig_argv, sys.path, sys.executable)
import os
import signal

print(sorted(os.environ.items()), open("/proc/self/environ", "rb").read().rstrip(b"\0"), os.listdir("/proc/self/fd"))
print(signal.getsignal(signal.SIGPIPE), open("/proc/self/comm").read())
print([line for line in open("/proc/self/status").read().splitlines() if line.startswith("Sig") and "SigQ" not in line])

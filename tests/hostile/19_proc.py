"""/proc and /sys: everything that tells about other processes, the kernel or the host.

Attacks secrecy: other processes, what is masked, and a canary that is planted all over the host.
"""

import errno
import glob
import json
import os
import re

MASKED = [
    "/etc/resolv.conf", "/proc/cmdline", "/proc/config.gz", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys",
    "/proc/latency_stats", "/proc/sched_debug", "/proc/timer_list", "/proc/version", "/proc/1/environ", "/proc/1/maps", "/proc/1/mem",
    "/proc/1/root/etc/shadow", "/proc/kmsg",
]


def length(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(1 << 20))
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def canaries(paths):
    found = 0
    for path in paths:
        try:
            with open(path, "rb") as file:
                found += len(re.findall(b"CANARY-of", file.read(1 << 20)))
        except OSError:
            pass
    return found


told = {path: length(path) for path in MASKED}
own = {1, os.getpid()}
told["strangers"] = sum(int(entry) not in own for entry in os.listdir("/proc") if entry.isdigit())
names = ("environ", "cmdline", "mountinfo", "cgroup", "status", "stack", "auxv", "limits")
places = [f"/proc/{pid}/{name}" for pid in ("self", "1", "thread-self") for name in names] + glob.glob("/proc/[0-9]*/environ")
told["canaries"] = canaries(places)
told["sensors"] = sum(len(files) for top in ("/sys/devices/virtual/powercap", "/sys/firmware") for _, _, files in os.walk(top))
print(json.dumps(told))

"""Starvation: twice as many busy loops as there are CPUs, and as many copies of memory.

Attacks the share of the others; the kernel has to have held it back.
"""

import glob
import json
import os
import time

SECONDS = 4


def throttled():
    """Periods in which the kernel let none of us run, the share being used up."""
    for path in glob.glob("/sys/fs/cgroup/cpu.stat") + glob.glob("/sys/fs/cgroup/cpu*/cpu.stat"):
        for line in open(path):
            if line.startswith("nr_throttled "):
                return int(line.split()[1])
    return -1


end = time.monotonic() + SECONDS
children = []
for _ in range(2 * min(os.cpu_count(), 8)):
    for copies in (False, True):
        pid = os.fork()
        if pid == 0:
            piece = bytearray(1 << 20)
            while time.monotonic() < end:
                if copies:
                    piece[:] = bytes(piece)
            os._exit(0)
        children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
print(json.dumps({"throttled": throttled()}))

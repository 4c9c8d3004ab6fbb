"""Across runs: scans, signals and searches while a copy of it does the same.

Attacks a neighbour at the same time. What stays possible is to notice how fast another one reads the same
data set, and its locks there (security.md section 8).
"""

import json
import os
import socket
import time

open("/tmp/mark-of-a-neighbour", "w").close()
meeting = socket.socket(socket.AF_UNIX)
told = {"met": 0, "strangers": 0, "signalled": 0, "read": 0, "queues": 0}
try:
    meeting.bind("\0meeting point of neighbours")
    meeting.listen()
except OSError:
    told["met"] += 1
own = {1, os.getpid()}
end = time.monotonic() + 3
while time.monotonic() < end:
    told["strangers"] = max(told["strangers"], sum(int(entry) not in own for entry in os.listdir("/proc") if entry.isdigit()))
    told["queues"] = max(told["queues"], len(os.listdir("/dev/mqueue")) if os.path.isdir("/dev/mqueue") else 0)
    for pid in range(2, 65_536):
        if pid in own:
            continue
        try:
            os.kill(pid, 9)
            told["signalled"] += 1
        except OSError:
            pass
    for pid in range(2, 400):
        if pid not in own and os.path.exists(f"/proc/{pid}/environ"):
            told["read"] += 1
told["uid is high"] = os.getuid() >= 50_000
print(json.dumps(told))

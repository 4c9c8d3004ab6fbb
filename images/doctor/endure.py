"""The neighbour of the probe, which does everything to outlive its limits: rows 2, 42, 44.

Ignores every signal it can, leaves a descendant in a session of its own that holds the streams,
floods standard output, and never ends by itself.
"""

import json
import os
import signal
import socket
import time

with open("doctor/settings.json") as file:
    SETTINGS = json.load(file)

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass

meeting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
meeting.bind("\0" + SETTINGS["neighbour"])
meeting.listen()

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(60)
    os._exit(0)

print(json.dumps({"uid": os.getuid()}), flush=True)
flood = ("x" * 1023 + "\n").encode()
for _ in range(SETTINGS["flood_bytes"] // len(flood)):
    os.write(1, flood)
while True:
    time.sleep(60)

"""Thread bomb: ten thousand threads that wait.

Attacks the process table by the other way in; what refuses a thread must not end the program.
"""

import json
import os
import threading

stop = threading.Event()
threads, refused = 0, "nothing"
try:
    for _ in range(10_000):
        threading.Thread(target=stop.wait, daemon=True).start()
        threads += 1
except RuntimeError as error:
    refused = str(error)
print(json.dumps({"threads": threads, "refused": refused}), flush=True)
os._exit(0)

"""Time: every signal that can be ignored is, and then nothing happens.

Attacks an end that asks politely.
"""

import signal
import time

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print("armed", flush=True)
while True:
    time.sleep(600)

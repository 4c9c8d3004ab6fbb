"""Time: orphans in sessions of their own hold the output and write to it; the program succeeds at once.

Attacks an end that waits for the output's end.
"""

import os
import time

ready, tell = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, b".")
            number = 0
            while True:
                os.write(2, b"late\n")
                number += 1
                with open(f"out/beat{number % 5}", "w") as file:
                    file.write(str(number))
                time.sleep(0.01)
        os._exit(0)
seen = 0
while seen < 3:
    seen += len(os.read(ready, 3))
os.write(1, b"main ends\n")
os._exit(0)

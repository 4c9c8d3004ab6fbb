"""Time: the program stops itself and its whole group.

Attacks an end that needs the program's help.
"""

import os
import signal

print("before", flush=True)
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
os.kill(0, signal.SIGSTOP)
print("after")

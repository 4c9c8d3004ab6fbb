"""Starvation: dies at once, in one of four ways; run two hundred times.

Attacks the start and the end of sandboxes, the host's core files, and the report.
"""

import ctypes
import os
import random

end = random.choice(("segfault", "abort", "exit", "illegal"))
if end == "segfault":
    ctypes.string_at(0)
elif end == "abort":
    os.abort()
elif end == "illegal":
    os.kill(os.getpid(), 4)
os._exit(134)

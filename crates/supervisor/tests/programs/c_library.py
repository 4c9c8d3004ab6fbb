"""What the C library still holds at the end is written, after what Python holds, and the code is kept."""
import ctypes
import sys

c = ctypes.CDLL(None)
c.printf(b"held by the C library\n")
sys.stdout.write("held by Python\n")
c.atexit(c.tzset)
sys.exit(5)

import os
import sys

print("before")
sys.stdout.close()
os.write(2, b"still here\n")
sys.stderr.close()

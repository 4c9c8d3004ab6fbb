import os

print("never flushed", end="")
os._exit(7)

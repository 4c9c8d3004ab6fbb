"""Output: lines without an end.

Attacks the memory of the daemon and the log of the engine.
"""

while True:
    print("x" * 1000)

"""Output: one line of 500 MB on standard error, nothing on standard output.

Attacks whoever waits for the end of a line.
"""

import os

piece = b"y" * 1_000_000
for _ in range(500):
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(2, rest) :]

"""Output: headers of the engine's stream, frames of the supervisor's, terminal commands, no UTF-8.

Attacks every parser between here and the reader's screen.
"""

import os
import struct

for kind in range(4):
    os.write(1, bytes([kind, 0, 0, 0]) + struct.pack(">I", 6) + b"forged")
for length in (0, 1, 64, 1 << 20, (1 << 32) - 1):
    os.write(1, struct.pack(">I", length) + struct.pack("<I", length))
os.write(1, b"\x1b]0;title\x07\x1b[2J\x1b[31m" + "\u202egpj.exe\u2028".encode() + b"\xff\xfe\x00\xed\xa0\x80\r\n")
os.write(1, b"<script>alert(1)</script>the end")

"""Artifacts: names that mean something to a shell, a terminal, another system; trees too deep to name.

Attacks listings, copies and the removal of it all.
"""

import os

NAMES = [
    b"n" * 255, b"a\nb\rc.txt", b"\xff\xfe.bin", b"-rf", b"CON", b"trailing.", "n\u00e9.csv".encode(), "ne\u0301.csv".encode(), b"case", b"CASE",
    "\u202egpj.exe".encode(), b"%2e%2e%2fx", b"..\\..\\x", b" lead", b"a:b|c?.txt", b'q"q.html', b"$(id)", b"`id`;x",
]

os.chdir("out")
for name in NAMES:
    with open(name, "wb") as file:
        file.write(name)
os.makedirs("closed/below")
open("closed/below/x", "w").close()
os.chmod("closed", 0)
for length in (1, 200):
    os.chdir("/work/out")
    for _ in range(50):
        os.mkdir("d" * length)
        os.chdir("d" * length)
    open("bottom", "w").close()

"""Artifacts: symbolic links to the host's files, out of the workspace, to themselves, in a chain of forty.

Attacks whoever follows a name on the way out.
"""

import os

LINKS = {
    "passwd.csv": "/etc/passwd", "up": "../../../../../../etc/hostname", "loop": "loop", "secret": "@SECRET@", "root": "/", "data": "/data",
    "environment": "/proc/1/environ", "created": "/work/created_by_copy", "input": "/proc/self/fd/0", "alias.txt": "good.txt", "here": ".",
}

for name, target in LINKS.items():
    os.symlink(target, "out/" + name)
os.mkdir("out/sub")
previous = "/etc/passwd"
for number in range(40):
    os.symlink(previous, f"out/sub/chain{number}")
    previous = f"chain{number}"
os.symlink("@SECRET@", "predictions.csv")
with open("out/good.txt", "w") as file:
    file.write("good")

"""Artifacts: ten thousand names of one file of 1 MiB, and names for files of others.

Attacks the copy, which has to count every name, and files outside the workspace.
"""

import errno
import json
import os


def link(source, target):
    try:
        os.link(source, target)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


told = {"data set": link("/data/data.csv", "out/data.csv"), "image": link("/etc/passwd", "out/passwd"), "init": link("/proc/1/exe", "out/init")}
with open("out/00000", "wb") as file:
    file.write(bytes(1 << 20))
told["links"] = 0
for number in range(1, 10_000):
    if link("out/00000", f"out/{number:05d}") != "ok":
        break
    told["links"] += 1
print(json.dumps(told))

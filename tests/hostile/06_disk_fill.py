"""Disk: files of 1 MiB until there is no room.

Attacks the disk of the host; what was written before is kept, and others have their room.
"""

import errno
import json

MOST = 64  # MiB, twice the workspace

with open("out/kept.txt", "w") as file:
    file.write("kept")
written, refused = 0, "nothing"
try:
    for number in range(MOST):
        with open(f".cache/fill{number}", "wb", buffering=0) as file:
            if file.write(bytes(1 << 20)) == 1 << 20:
                written += 1
except OSError as error:
    refused = errno.errorcode[error.errno]
print(json.dumps({"mebibytes": written, "refused": refused}))

"""Inodes: empty files until there can be no more.

Attacks the file system's tables, and whoever has to collect the files.
"""

import errno
import json

MOST = 6000  # three times what there is room for

made, refused = 0, "nothing"
try:
    for number in range(MOST):
        open(f"out/{number:05d}", "w").close()
        made += 1
except OSError as error:
    refused = errno.errorcode[error.errno]
print(json.dumps({"files": made, "refused": refused}))

"""Across runs: leaves a mark wherever it can write, and looks for those of others.

Attacks the next run, of the same client or another one: run twice, neither may find anything.
"""

import ctypes
import errno
import json
import os

MARK = f"mark-of-{os.urandom(8).hex()}"
PLACES = ["/tmp", "/dev/shm", "/work", "/work/out", "/work/.cache", "/dev/mqueue", "/var/tmp", "/run", "/home", "/var/lib", "/fumehood", "/data"]
KEY = 0x6D61726B
USER_RING = -4 & 0xFFFFFFFF

libc = ctypes.CDLL(None, use_errno=True)


def mark(place):
    try:
        # Without content: what lies in /dev/mqueue is a queue and takes none.
        open(os.path.join(place, MARK), "w").close()
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def marks():
    """Files of others, System V shared memory of a known key, a known key of the user's ring."""
    tops = [top for top in os.listdir("/") if top not in ("proc", "sys", "usr", "lib")]
    files = sum(name.startswith("mark-of-") for top in tops for _, _, names in os.walk("/" + top) for name in names)
    return files + (libc.syscall(29, KEY, 4096, 0o666) != -1) + (libc.syscall(249, b"user", b"mark", None, USER_RING) != -1)


told = {"found": marks(), **{place: mark(place) for place in PLACES}}
libc.syscall(29, KEY, 4096, 0o1666)
libc.syscall(248, b"user", b"mark", b"x", 1, USER_RING)
print(json.dumps(told))

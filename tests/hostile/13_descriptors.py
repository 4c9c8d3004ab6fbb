"""Descriptors: files, pipes and sockets until there can be no more, none of them closed.

Attacks the host's file table.
"""

import errno
import json
import os
import socket

MOST = 3000


def open_until_refused(open_one):
    held = []
    try:
        while len(held) < MOST:
            held.append(open_one())
        return len(held), "nothing"
    except OSError as error:
        return len(held), errno.errorcode[error.errno]
    finally:
        for one in held:
            for end in one if isinstance(one, tuple) else (one,):
                os.close(end) if isinstance(end, int) else end.close()


told = {}
for name, open_one in (
    ("files", lambda: os.open("/dev/null", os.O_RDONLY)),
    ("pipes", os.pipe),
    ("sockets", socket.socketpair),
):
    told[name], told[name + " refused"] = open_until_refused(open_one)
print(json.dumps(told))

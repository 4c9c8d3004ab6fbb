"""dify-sandbox 27 and 274: a user's text came before the jail was closed; one uid, one open descriptor for all.

The first statement is the attack: nothing of a program may run before its walls stand.
"""
import socket
try: socket.socket(socket.AF_INET); first = 0  # ''' {{code}} %s {0} \N{BULLET} $(id) EOF
except OSError as error: first = error.errno

import errno
import json
import os

open_now = [number for number in range(3, 1024) if os.path.exists(f"/proc/self/fd/{number}")]
print(json.dumps({
    "first": errno.errorcode[first] if first else "ok", "descriptors": len(open_now), "uid is high": os.getuid() >= 50_000,
    "own text": "{{code}} %s {0}" in open(__file__).read(),
}))

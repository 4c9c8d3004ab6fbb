"""CVE-2026-31431 (Copy Fail): sockets of the kernel's cryptography wrote into cached pages of read-only files.

Tries the family by every type, and the calls that moved pages there; the pages are shared with everybody.
"""

import errno
import hashlib
import json
import os
import socket


def attempt(function, *arguments):
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def algorithm(kind, name):
    with socket.socket(38, socket.SOCK_SEQPACKET) as end:
        end.bind((kind, name))


FILES = ("/data/data.csv", "/etc/passwd", "/usr/bin/env")


def contents():
    return [hashlib.sha256(open(path, "rb").read()).hexdigest() for path in FILES]


before = contents()
told = {
    f"family {kind}": attempt(algorithm, kind, name)
    for kind, name in (("aead", "authencesn(hmac(sha256),cbc(aes))"), ("skcipher", "cbc(aes)"), ("hash", "sha256"), ("rng", "stdrng"))
}
# Pages of a file in a pipe, and then anything that writes to the pipe's pages.
ready, tell = os.pipe()
for path in FILES:
    with open(path, "rb") as file:
        os.splice(file.fileno(), tell, 16)
        os.read(ready, 16)
told["changed"] = before != contents()
print(json.dumps(told))

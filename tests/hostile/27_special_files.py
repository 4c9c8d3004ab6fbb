"""Artifacts: a FIFO with the name of a result, a socket, devices.

Attacks the collector: opening such a file hangs, or talks to a device of the host.
"""

import errno
import json
import os
import socket


def attempt(function, *arguments):
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


with open("out/good.txt", "w") as file:
    file.write("good")
listener = socket.socket(socket.AF_UNIX)
listener.bind("out/socket")
told = {
    "fifo": attempt(os.mkfifo, "out/result.csv"),
    "character": attempt(os.mknod, "out/character", 0o20666, os.makedev(1, 1)),
    "block": attempt(os.mknod, "out/block", 0o60666, os.makedev(254, 0)),
}
# A device that could be made must not be one that can be opened.
told["opened"] = sum(attempt(os.open, path, os.O_RDWR | os.O_NONBLOCK) == "ok" for path in ("out/character", "out/block"))
print(json.dumps(told))

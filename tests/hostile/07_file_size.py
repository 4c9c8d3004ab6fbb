"""Disk: one file larger than any may be, by a write, by reserving room, and in a child that dies of it.

Attacks whoever copies the file later.
"""

import errno
import json
import os
import signal

PAST = 33 << 20  # the largest file has 32 MiB


def attempt(function, *arguments):
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


file = os.open("/dev/shm/large", os.O_CREAT | os.O_RDWR)
told = {"write": attempt(os.pwrite, file, b"x", PAST), "reserve": attempt(os.posix_fallocate, file, 0, 1 << 30)}
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    attempt(os.pwrite, file, b"x", PAST)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
told["child"] = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "lived on"
print(json.dumps(told))

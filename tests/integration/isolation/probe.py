"""Tells how a sandbox looks from inside: who the program is, what there is, what it can write to.

What programs try against the kernel, the data set, the network and each other is in tests/hostile.
"""

import errno
import glob
import json
import os
import resource
import stat
import sys


def name(number):
    return errno.errorcode.get(number, str(number))


def attempt(function, *arguments):
    """`ok`, or the name of the error."""
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return name(error.errno)


def status_fields():
    wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn")
    lines = [line.split(":", 1) for line in open("/proc/self/status")]
    return {key: value.split() for key, value in lines if key in wanted}


def write(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


def descriptors():
    fds = [fd for fd in os.listdir("/proc/self/fd")]
    return sorted(int(fd) for fd in fds if os.path.exists(f"/proc/self/fd/{fd}") or int(fd) < 3)


def end_of_input():
    try:
        return input()
    except EOFError:
        return "EOF"


LIMITS = ("CORE", "FSIZE", "MEMLOCK", "NOFILE")
WRITES = ["/x", "/etc/x", "/usr/x", "/run/x", "/var/tmp/x", "/home/x", "/dev/x", "/fumehood/x", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
          "/proc/sysrq-trigger", "/sys/kernel/x", "/sys/fs/cgroup/x", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
          "/sys/fs/cgroup/pids/pids.max", "/fumehood/supervisor", "/usr/bin/python3", "/etc/passwd", "/proc/1/oom_score_adj", "/proc/1/mem"]

INHERITED = [fd for fd in descriptors() if fd > 2]
print(json.dumps({
    "status": status_fields(),
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "mounts": sorted(line.split()[4] for line in open("/proc/self/mountinfo")),
    "work mount": [line.split()[5].split(",") for line in open("/proc/self/mountinfo") if line.split()[4] in ("/work", "/tmp", "/dev/shm")],
    "devices": sorted(os.listdir("/dev")),
    "writes": {path: write(path) for path in WRITES},
    "init descriptors": attempt(os.listdir, "/proc/1/fd"), "init directory": attempt(os.readlink, "/proc/1/cwd"),
    "init command": open("/proc/1/cmdline").read(),
    "setuid files": [path for top in ("/bin", "/sbin", "/usr", "/etc", "/opt", "/lib") for folder, _, files in os.walk(top)
                     for path in (os.path.join(folder, file) for file in files) if not os.path.islink(path) and os.lstat(path).st_mode & 0o6000],
    "limits": {key: resource.getrlimit(getattr(resource, "RLIMIT_" + key)) for key in LIMITS},
    "cgroup": sorted({line.strip().rsplit(":", 1)[1] for line in open("/proc/self/cgroup")}),
    "host": [os.uname().nodename, os.uname().version and "version"], "hosts": open("/etc/hosts").read(),
    "terminals": [os.isatty(fd) for fd in (0, 1, 2)], "input": end_of_input(),
    "descriptors": INHERITED,
    "workspace": [oct(stat.S_IMODE(os.stat("/work").st_mode)), os.stat("/work").st_uid == os.getuid()],
    "cgroup files": glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True),
}))
sys.exit(0)

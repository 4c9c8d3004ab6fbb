"""Tries everything that a sandboxed program must not be able to do; prints what happened."""

import ctypes
import errno
import glob
import json
import mmap
import os
import resource
import signal
import socket
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)


def name(number):
    return errno.errorcode.get(number, str(number))


def attempt(function, *arguments):
    """`ok`, or the name of the error."""
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return name(error.errno)


def call(number, *arguments):
    """A system call by its number on x86-64, in a child: some end the caller."""
    pid = os.fork()
    if pid == 0:
        ctypes.set_errno(0)
        padded = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
        result = libc.syscall(ctypes.c_long(number), *padded)
        os._exit(ctypes.get_errno() if result == -1 else 0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return name(os.WEXITSTATUS(status)) if os.WEXITSTATUS(status) else "ok"


def status_fields():
    wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn")
    lines = [line.split(":", 1) for line in open("/proc/self/status")]
    return {key: value.split() for key, value in lines if key in wanted}


ZERO = ctypes.create_string_buffer(4096)
SYSCALLS = {
    "unshare(NEWUSER)": (272, 0x10000000), "unshare(NEWNS)": (272, 0x20000), "unshare(NEWNET)": (272, 0x40000000),
    "unshare(NEWPID)": (272, 0x20000000), "clone(NEWUSER)": (56, 0x10000000 | 17, 0, 0, 0, 0), "setns": (308, 0, 0),
    "keyctl": (250, 0, 0), "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0),
    "bpf": (321, 0, 0, 0), "perf_event_open": (298, 0, 0, 0, 0, 0), "userfaultfd": (323, 0), "kcmp": (312, 1, 1, 0, 0, 0),
    "fanotify_init": (300, 0, 0), "ptrace(TRACEME)": (101, 0, 0, 0, 0), "ptrace(ATTACH 1)": (101, 16, 1, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0), "process_vm_writev": (311, 1, 0, 0, 0, 0, 0), "pidfd_getfd": (438, 0, 0, 0),
    "process_madvise": (440, 0, 0, 0, 0, 0), "io_uring_setup": (425, 1, 0), "io_uring_enter": (426, 0, 0, 0, 0, 0),
    "io_setup": (206, 1, 0), "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0), "pivot_root": (155, 0, 0),
    "chroot": (161, 0), "fsopen": (430, 0, 0), "fsmount": (432, 0, 0, 0), "open_tree": (428, 0, 0, 0),
    "move_mount": (429, 0, 0, 0, 0, 0), "mount_setattr": (442, 0, 0, 0, 0, 0), "open_by_handle_at": (304, 0, 0, 0),
    "name_to_handle_at": (303, 0, 0, 0, 0, 0), "init_module": (175, 0, 0, 0), "finit_module": (313, 0, 0, 0),
    "delete_module": (176, 0, 0), "kexec_load": (246, 0, 0, 0, 0), "kexec_file_load": (320, 0, 0, 0, 0, 0), "reboot": (169, 0, 0, 0, 0),
    "swapon": (167, 0, 0), "swapoff": (168, 0), "clock_settime": (227, 0, 0), "settimeofday": (164, 0, 0), "adjtimex": (159, 0),
    "sethostname": (170, 0, 0), "setdomainname": (171, 0, 0), "iopl": (172, 0), "ioperm": (173, 0, 0, 0), "acct": (163, 0), "quotactl": (179, 0, 0, 0, 0),
    "syslog": (103, 0, 0, 0), "vmsplice": (278, 0, 0, 0, 0), "modify_ldt": (154, 0, 0, 0), "lookup_dcookie": (212, 0, 0, 0),
    "set_mempolicy": (238, 0, 0, 0), "mbind": (237, 0, 0, 0, 0, 0, 0), "move_pages": (279, 0, 0, 0, 0, 0, 0), "migrate_pages": (256, 0, 0, 0, 0),
    "personality(ADDR_NO_RANDOMIZE)": (135, 0x40000), "setuid(0)": (105, 0), "setgid(0)": (106, 0), "setgroups": (116, 0, 0), "capset": (126, 0, 0),
    "mknod(chr)": (133, ctypes.c_char_p(b"/work/c"), 0o20666, 0x101), "mknod(fifo)": (133, ctypes.c_char_p(b"/work/p"), 0o10666, 0),
    "shmget": (29, 0, 4096, 0o1600), "msgget": (68, 0, 0o1600), "semget": (64, 0, 1, 0o1600), "mq_open": (240, ctypes.c_char_p(b"x"), 0o102, 0o600, 0),
    "prlimit64(1)": (302, 1, 7, 0, 0), "prlimit64(1, set)": (302, 1, 7, ZERO, 0), "setpriority(1)": (141, 0, 1, 10),
    "sched_setscheduler(1)": (144, 1, 0, ZERO), "ioprio_set": (251, 1, 1, 0), "sync": (162,), "clone3": (435, 0, 0),
}
FAMILIES = {"INET": 2, "INET6": 10, "NETLINK": 16, "PACKET": 17, "ALG": 38, "VSOCK": 40, "XDP": 44, "BLUETOOTH": 31, "TIPC": 30, "RDS": 21, "KEY": 15}


def socket_of(family):
    socket.socket(family, socket.SOCK_DGRAM if family != 21 else socket.SOCK_SEQPACKET).close()


def read(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(1 << 20))
    except OSError as error:
        return name(error.errno)


def write(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


def dataset():
    """Every route to a change of the data set."""
    file = "/data/data.csv"
    fd = os.open(file, os.O_RDONLY)
    directory = os.open("/data", os.O_RDONLY)
    by_fd = f"/proc/self/fd/{fd}"
    return {
        "create": write("/data/x"), "create by directory": attempt(lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=directory)),
        "create through /proc": write(f"/proc/self/fd/{directory}/x"), "create through root": write("/proc/self/root/data/x"),
        "open": attempt(os.open, file, os.O_WRONLY), "append": attempt(os.open, file, os.O_WRONLY | os.O_APPEND),
        "truncate": attempt(os.truncate, file, 0), "open to truncate": attempt(os.open, file, os.O_RDONLY | os.O_TRUNC),
        "reopen": attempt(os.open, by_fd, os.O_RDWR), "truncate reopened": attempt(os.truncate, by_fd, 0),
        "write read-only": attempt(os.write, fd, b"x"), "truncate read-only": attempt(os.ftruncate, fd, 0),
        "map shared": attempt(lambda: mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)),
        "unlink": attempt(os.unlink, file), "rename": attempt(os.rename, file, "/data/y"), "rename out": attempt(os.rename, file, "/work/y"),
        "link out": attempt(os.link, file, "/work/y"), "link in": attempt(os.link, "/work/script.py", "/data/y"), "symlink": attempt(os.symlink, "a", "/data/y"),
        "mkdir": attempt(os.mkdir, "/data/y"), "rmdir": attempt(os.rmdir, "/data/sub"), "chmod": attempt(os.chmod, file, 0o777),
        "fchmod": attempt(os.fchmod, fd, 0o777), "chown": attempt(os.chown, file, os.getuid(), -1), "utime": attempt(os.utime, file),
        "setxattr": attempt(os.setxattr, file, "user.x", b"1"), "fallocate": attempt(os.posix_fallocate, fd, 0, 99),
        "write below": write("/data/sub/x"), "rename the mount": attempt(os.rename, "/data", "/data2"), "rmdir the mount": attempt(os.rmdir, "/data"),
    }


def other_abi():
    """i386 calls by `int 0x80`: mov eax, 20 (getpid); int 0x80; ret."""
    pid = os.fork()
    if pid == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def execute(path):
    with open(path, "w") as file:
        file.write("#!/bin/true\n")
    os.chmod(path, 0o6755)
    return attempt(os.execv, path, [path]), oct(os.stat(path).st_mode & 0o7777)


def descriptors():
    fds = [fd for fd in os.listdir("/proc/self/fd")]
    return sorted(int(fd) for fd in fds if os.path.exists(f"/proc/self/fd/{fd}") or int(fd) < 3)


def end_of_input():
    try:
        return input()
    except EOFError:
        return "EOF"


def open_until_refused():
    held = []
    try:
        while True:
            held.append(open("/dev/null"))
    except OSError as error:
        return name(error.errno), len(held) + 3


LIMITS = ("CORE", "FSIZE", "MEMLOCK", "NOFILE")
WRITES = ["/x", "/etc/x", "/usr/x", "/run/x", "/var/tmp/x", "/home/x", "/dev/x", "/fumehood/x", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
          "/proc/sysrq-trigger", "/sys/kernel/x", "/sys/fs/cgroup/x", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
          "/sys/fs/cgroup/pids/pids.max", "/fumehood/supervisor", "/usr/bin/python3", "/etc/passwd", "/proc/1/oom_score_adj", "/proc/1/mem"]
EMPTY = ["/proc/keys", "/proc/timer_list", "/proc/interrupts", "/proc/kallsyms", "/proc/cmdline", "/proc/config.gz", "/proc/version", "/proc/kcore",
         "/proc/sched_debug", "/proc/latency_stats", "/etc/resolv.conf"]
CLOSED = ["/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/root/etc/shadow", "/etc/shadow", "/proc/kmsg", "/dev/mem", "/dev/kmsg",
          "/var/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/dev/kvm", "/dev/fuse", "/dev/vsock"]

INHERITED = [fd for fd in descriptors() if fd > 2]
left, right = socket.socketpair()
print(json.dumps({
    "status": status_fields(),
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "syscalls": {key: call(*arguments) for key, arguments in SYSCALLS.items()},
    "sockets": {key: attempt(socket_of, family) for key, family in FAMILIES.items()},
    "raw": attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1),
    "other abi": other_abi(), "x32": call(0x40000000 + 39),
    "mounts": sorted(line.split()[4] for line in open("/proc/self/mountinfo")),
    "work mount": [line.split()[5].split(",") for line in open("/proc/self/mountinfo") if line.split()[4] in ("/work", "/tmp", "/dev/shm")],
    "devices": sorted(os.listdir("/dev")),
    "dataset": dataset(),
    "writes": {path: write(path) for path in WRITES},
    "empty": {path: read(path) for path in EMPTY},
    "powercap": sum(len(files) for _, _, files in os.walk("/sys/devices/virtual/powercap")) + sum(len(files) for _, _, files in os.walk("/sys/firmware")),
    "closed": {path: read(path) for path in CLOSED},
    "init descriptors": attempt(os.listdir, "/proc/1/fd"), "init directory": attempt(os.readlink, "/proc/1/cwd"),
    "init command": open("/proc/1/cmdline").read(),
    "execute": {path: execute(path) for path in ("/work/e", "/tmp/e", "/dev/shm/e")},
    "setuid files": [path for top in ("/bin", "/sbin", "/usr", "/etc", "/opt", "/lib") for folder, _, files in os.walk(top)
                     for path in (os.path.join(folder, file) for file in files) if not os.path.islink(path) and os.lstat(path).st_mode & 0o6000],
    "limits": {key: resource.getrlimit(getattr(resource, "RLIMIT_" + key)) for key in LIMITS},
    "cgroup": sorted({line.strip().rsplit(":", 1)[1] for line in open("/proc/self/cgroup")}),
    "interfaces": [line.split(":")[0].strip() for line in list(open("/proc/net/dev"))[2:]],
    "unix sockets": [line.split()[-1] for line in list(open("/proc/net/unix"))[1:] if line.split()[-1].startswith(("/", "@"))],
    "host": [os.uname().nodename, os.uname().version and "version"], "hosts": open("/etc/hosts").read(),
    "terminals": [os.isatty(fd) for fd in (0, 1, 2)], "input": end_of_input(),
    "descriptors": INHERITED,
    "processes": sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit()) == [1, os.getpid()],
    "workspace": [oct(stat.S_IMODE(os.stat("/work").st_mode)), os.stat("/work").st_uid == os.getuid()],
    "out of memory score": attempt(lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000")),
    "nice": attempt(os.nice, -5),
    "cgroup files": glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True),
    "open files": open_until_refused(),
}))
sys.exit(0)

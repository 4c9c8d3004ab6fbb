"""What the kernel answers: rows 11 to 20, 22, 23."""

import ctypes
import mmap
import os
import platform
import socket
import threading

from doctor import attempt, call, ended, in_child, name

ARM = platform.machine() == "aarch64"
NEWNS, NEWUSER, NEWPID, NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000

# By row: name to its numbers on x86-64 and AArch64 (`None`: not there), and dummy arguments. An answer such as
# EFAULT or EINVAL means that the call reached the kernel.
CALLS = {
    "io_uring": {  # 12
        "io_uring_setup": (425, 425, 1, 0), "io_uring_enter": (426, 426, 0, 0, 0, 0, 0), "io_uring_register": (427, 427, 0, 0, 0, 0),
        "io_setup": (206, 0, 1, 0),
    },
    "namespaces": {  # 13
        "unshare(NEWUSER)": (272, 97, NEWUSER), "unshare(NEWNS)": (272, 97, NEWNS), "unshare(NEWNET)": (272, 97, NEWNET),
        "unshare(NEWPID)": (272, 97, NEWPID), "clone(NEWUSER)": (56, 220, NEWUSER | 17, 0, 0, 0, 0), "setns": (308, 268, 0, 0),
        "clone3": (435, 435, 0, 0),
    },
    "keys": {"keyctl": (250, 219, 0, 0), "add_key": (248, 217, 0, 0, 0, 0, 0), "request_key": (249, 218, 0, 0, 0, 0)},  # 14
    "observation": {  # 15
        "bpf": (321, 280, 0, 0, 0), "perf_event_open": (298, 241, 0, 0, 0, 0, 0), "userfaultfd": (323, 282, 0),
        "kcmp": (312, 272, 1, 1, 0, 0, 0), "fanotify_init": (300, 262, 0, 0), "lookup_dcookie": (212, 18, 0, 0, 0),
    },
    "other processes": {  # 16
        "ptrace(TRACEME)": (101, 117, 0, 0, 0, 0), "ptrace(ATTACH 1)": (101, 117, 16, 1, 0, 0),
        "process_vm_readv": (310, 270, 1, 0, 0, 0, 0, 0), "process_vm_writev": (311, 271, 1, 0, 0, 0, 0, 0),
        "pidfd_getfd": (438, 438, 0, 0, 0), "process_madvise": (440, 440, 0, 0, 0, 0, 0),
    },
    "mounts": {  # 17
        "mount": (165, 40, 0, 0, 0, 0, 0), "umount2": (166, 39, 0, 0), "pivot_root": (155, 41, 0, 0), "chroot": (161, 51, 0),
        "fsopen": (430, 430, 0, 0), "fsmount": (432, 432, 0, 0, 0), "open_tree": (428, 428, 0, 0, 0),
        "move_mount": (429, 429, 0, 0, 0, 0, 0), "mount_setattr": (442, 442, 0, 0, 0, 0, 0),
        "open_by_handle_at": (304, 265, 0, 0, 0), "name_to_handle_at": (303, 264, 0, 0, 0, 0, 0),
    },
    "machine": {  # 20
        "init_module": (175, 105, 0, 0, 0), "finit_module": (313, 273, 0, 0, 0), "delete_module": (176, 106, 0, 0),
        "kexec_load": (246, 104, 0, 0, 0, 0), "reboot": (169, 142, 0, 0, 0, 0), "swapon": (167, 224, 0, 0), "swapoff": (168, 225, 0),
        "clock_settime": (227, 112, 0, 0), "adjtimex": (159, 171, 0), "sethostname": (170, 161, 0, 0), "iopl": (172, None, 0),
        "ioperm": (173, None, 0, 0, 0), "acct": (163, 89, 0), "quotactl": (179, 60, 0, 0, 0, 0), "syslog": (103, 116, 0, 0, 0),
        "vmsplice": (278, 75, 0, 0, 0, 0), "modify_ldt": (154, None, 0, 0, 0), "mbind": (237, 235, 0, 0, 0, 0, 0, 0),
        "set_mempolicy": (238, 237, 0, 0, 0), "move_pages": (279, 239, 0, 0, 0, 0, 0, 0), "capset": (126, 91, 0, 0),
    },
}

# Row 18. Every family is kernel code; AF_UNIX alone is used.
FAMILIES = {"INET": 2, "INET6": 10, "NETLINK": 16, "PACKET": 17, "ALG": 38, "VSOCK": 40, "XDP": 44, "BLUETOOTH": 31,
            "TIPC": 30, "RDS": 21, "KEY": 15}

# Row 22: length of what can be read, or the error.
MASKED = ["/proc/keys", "/proc/timer_list", "/proc/interrupts", "/proc/kallsyms", "/proc/cmdline", "/proc/config.gz",
          "/proc/version", "/proc/kcore", "/proc/sched_debug", "/proc/latency_stats"]
MASKED_DIRECTORIES = ["/proc/acpi", "/proc/asound", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"]

# Row 23.
KERNEL_FILES = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity",
                "/sys/kernel/x", "/sys/fs/cgroup/x", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/release_agent"]

# Calls that wait for ever, end their caller, fork, or are a burden to the host, by number on x86-64: left out of the surface,
# as amicontained does.
UNTRIED = {15, 23, 34, 56, 57, 58, 60, 61, 106, 128, 130, 131, 162, 219, 230, 231, 232, 247, 270, 271, 281, 306, 435, 441}
LAST_CALL = 462


def socket_of(family):
    kind = socket.SOCK_SEQPACKET if family == FAMILIES["RDS"] else socket.SOCK_DGRAM
    socket.socket(family, kind).close()


def pair():
    for end in socket.socketpair():
        end.close()


def thread():
    """`ok` if a thread ran."""
    ran = []
    worker = threading.Thread(target=lambda: ran.append(True))
    worker.start()
    worker.join()
    return "ok" if ran else "did not run"


def other_abi():
    """Calls of i386 by `int 0x80`: mov eax, 20 (getpid); int 0x80; ret."""
    if ARM:
        return "not here"

    def child():
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        return 38 if got == -38 else 0

    outcome = ended(in_child(child))
    return {"0": "ok", "38": "ENOSYS"}.get(outcome, outcome)


def length(path):
    try:
        with open(path, "rb") as file:
            return str(len(file.read(1 << 16)))
    except OSError as error:
        return name(error.errno)


def files_below(path):
    return sum(len(files) for _, _, files in os.walk(path))


def write(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


def surface():
    """How many of all calls are refused, with zeros for arguments."""
    if ARM:
        return None
    numbers = [number for number in range(LAST_CALL + 1) if number not in UNTRIED]
    answers = [call(number, 0, 0, 0, 0, 0, 0) for number in numbers]
    return {"tried": len(numbers), "refused": sum(answer in ("EPERM", "EACCES", "ENOSYS", "SIGSYS") for answer in answers)}


def seccomp_mode():
    """Of the first process: a program can have a filter of its supervisor's as well."""
    with open("/proc/1/status") as file:
        modes = [line.split()[1] for line in file if line.startswith("Seccomp:")]
    return modes[0] if modes else None


def seen(settings):
    def answers(group):
        tried = {key: numbers[1 if ARM else 0] for key, numbers in group.items()}
        return {key: call(number, *group[key][2:]) for key, number in tried.items() if number is not None}

    return {
        "seccomp": seccomp_mode(),
        "calls": {row: answers(group) for row, group in CALLS.items()},
        "sockets": {key: attempt(socket_of, family) for key, family in FAMILIES.items()},
        "socket_pair": attempt(pair),
        "thread": thread(),
        "other_abi": other_abi(),
        "x32": "not here" if ARM else call(0x40000000 + 39),
        "masked": {path: length(path) for path in MASKED},
        "masked_directories": {path: files_below(path) for path in MASKED_DIRECTORIES},
        "writes": {path: write(path) for path in KERNEL_FILES},
        "surface": surface() if settings["thorough"] else None,
    }

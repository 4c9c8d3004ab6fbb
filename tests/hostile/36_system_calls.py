"""Kernel: the system calls that a sandbox has no use for, by their numbers on x86-64, and socket families.

Attacks the kernel that is shared with everybody else. The profile and its reasons are in images/seccomp.md.
"""

import ctypes
import errno
import json
import mmap
import os
import signal
import socket

libc = ctypes.CDLL(None, use_errno=True)


def name(number):
    return errno.errorcode.get(number, str(number))


def call(number, *arguments):
    """In a child: some calls end the caller."""
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


ZERO = ctypes.create_string_buffer(4096)
# What it has anyway: with none PID 1 could not go on, where this is let through.
LIMIT = (ctypes.c_uint64 * 2)(1024, 1024)
CALLS = {
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
    "prlimit64(1)": (302, 1, 7, 0, 0), "prlimit64(1, set)": (302, 1, 7, LIMIT, 0), "setpriority(1)": (141, 0, 1, 10),
    "sched_setscheduler(1)": (144, 1, 0, ZERO), "ioprio_set": (251, 1, 1, 0), "sync": (162,), "clone3": (435, 0, 0),
    "x32": (0x40000000 + 39,),
}
FAMILIES = {"INET": 2, "INET6": 10, "NETLINK": 16, "PACKET": 17, "ALG": 38, "VSOCK": 40, "XDP": 44, "BLUETOOTH": 31, "TIPC": 30, "RDS": 21, "KEY": 15}


def socket_of(family, kind=socket.SOCK_DGRAM, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        return "ok"
    except OSError as error:
        return name(error.errno)


def other_abi():
    """A call of i386 by `int 0x80`: mov eax, 20 (getpid); int 0x80; ret."""
    pid = os.fork()
    if pid == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "ok"


told = {key: call(*arguments) for key, arguments in CALLS.items()}
for key, family in FAMILIES.items():
    told[f"socket {key}"] = socket_of(family, socket.SOCK_SEQPACKET if key == "RDS" else socket.SOCK_DGRAM)
told["socket RAW"] = socket_of(socket.AF_INET, socket.SOCK_RAW, 1)
told["other abi"] = other_abi()
for end in socket.socketpair():
    end.close()
print(json.dumps(told))

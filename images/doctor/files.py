"""What the program can write to, run and find: rows 25 to 34, 56 to 58, 64, and the planted canary."""

import mmap
import os
import socket
import time

from doctor import attempt, ended, in_child, name

# Row 25.
ROOT = ["/x", "/etc/x", "/usr/x", "/run/x", "/var/tmp/x", "/home/x", "/dev/x", "/fumehood/x", "/fumehood/supervisor",
        "/usr/bin/python3", "/etc/passwd"]

TEMPORARY = ["/work", "/tmp", "/dev/shm"]

# Rows 23, 30, 64: ways to the host that must not be there.
SOCKETS = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
           "/run/podman/podman.sock", "/var/lib/kubelet", "/dev/kvm", "/dev/fuse", "/dev/vsock", "/dev/mem", "/dev/kmsg"]

# The most entries looked at in search of set-id files and the canary.
MOST_ENTRIES = 200_000


def write(path):
    return attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)))


def mounts():
    """Every mount, as the kernel lists it."""
    listed = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            fields = before.split()
            listed.append({"target": fields[4], "options": fields[5].split(","), "kind": after.split()[0]})
    return listed


def fill(place, most):
    """Writes until refused; what is written goes away again. A bound for places without one."""
    path = os.path.join(place, "fill")
    chunk = b"x" * (1 << 20)
    written = 0
    outcome = "ok"
    number = 0
    try:
        while written < most:
            # Several files, since one alone may not become larger than the workspace.
            with open(f"{path}{number}", "wb", buffering=0) as file:
                number += 1
                for _ in range(8):
                    written += file.write(chunk)
    except OSError as error:
        outcome = name(error.errno)
    for index in range(number + 1):
        attempt(os.unlink, f"{path}{index}")
    return [outcome, written]


def make_files(place):
    """Empty files until refused; a bound for places without one."""
    made = 0
    outcome = "ok"
    folder = os.path.join(place, "many")
    try:
        os.mkdir(folder)
        while made < 5_000:
            os.close(os.open(f"{folder}/{made}", os.O_WRONLY | os.O_CREAT, 0o600))
            made += 1
    except OSError as error:
        outcome = name(error.errno)
    for index in range(made):
        os.unlink(f"{folder}/{index}")
    attempt(os.rmdir, folder)
    return [outcome, made]


def execute(place):
    """Whether a file that was written there can be run."""
    path = os.path.join(place, "run")
    with open(path, "w") as file:
        file.write("#!/bin/true\n")
    os.chmod(path, 0o6755)

    def child():
        try:
            os.execv(path, [path])
        except OSError as error:
            return error.errno

    outcome = ended(in_child(child))
    os.unlink(path)
    return "ran" if outcome == "0" else name(int(outcome)) if outcome.isdigit() else outcome


def temporary(place, most):
    size = os.statvfs(place)
    return {
        "bytes": size.f_blocks * size.f_frsize, "inodes": size.f_files,
        "fill": fill(place, most), "execute": execute(place),
        # The kernel bounds the inodes of /dev/shm by its memory alone.
        "files": make_files(place) if place != "/dev/shm" else ["untried", 0],
    }


def dataset():
    """Every route to a change of the data set, and whether it can be read at all."""
    file = "/data/data.csv"
    try:
        fd = os.open(file, os.O_RDONLY)
    except OSError as error:
        return {"read": name(error.errno)}
    directory = os.open("/data", os.O_RDONLY)
    by_fd = f"/proc/self/fd/{fd}"
    return {
        "read": attempt(os.read, fd, 1), "create": write("/data/x"), "create by directory": attempt(lambda: os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=directory)),
        "create through root": write("/proc/self/root/data/x"), "open": attempt(os.open, file, os.O_WRONLY),
        "append": attempt(os.open, file, os.O_WRONLY | os.O_APPEND), "truncate": attempt(os.truncate, file, 0),
        "open to truncate": attempt(os.open, file, os.O_RDONLY | os.O_TRUNC), "reopen": attempt(os.open, by_fd, os.O_RDWR),
        "truncate reopened": attempt(os.truncate, by_fd, 0), "write read-only": attempt(os.write, fd, b"x"),
        "map shared": attempt(lambda: mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)),
        "rename": attempt(os.rename, file, "/data/y"), "link out": attempt(os.link, file, "/work/y"), "symlink": attempt(os.symlink, "a", "/data/y"),
        "mkdir": attempt(os.mkdir, "/data/z"), "chmod": attempt(os.chmod, file, 0o777), "utime": attempt(os.utime, file),
        "write below": write("/data/sub/x"), "unlink": attempt(os.unlink, file),
    }


def search(canary, thorough):
    """Set-id files, and the canary of the host by its name."""
    set_id, found, entries = [], [], 0
    tops = ["/"] if thorough else ["/usr/bin", "/usr/sbin", "/work", "/data", "/tmp", "/run"]
    for top in tops:
        for folder, directories, names in os.walk(top):
            if folder == "/":
                directories[:] = [entry for entry in directories if entry not in ("proc", "sys")]
            entries += len(names)
            found += [os.path.join(folder, entry) for entry in names if entry == os.path.basename(canary)]
            for entry in names:
                path = os.path.join(folder, entry)
                try:
                    status = os.lstat(path)
                except OSError:
                    continue
                if status.st_mode & 0o6000 and status.st_mode & 0o170000 == 0o100000:
                    set_id.append(path)
            if entries > MOST_ENTRIES:
                break
    ways = [canary, "/proc/1/root" + canary, "/proc/self/root" + canary, "/proc/1/cwd" + canary]
    found += [way for way in ways if os.path.exists(way)]
    return set_id, sorted(set(found))


def leave_artifacts():
    """Things that must not leave the sandbox, beside one that may; and a survivor that swaps one for another."""
    with open("/work/out/regular", "w") as file:
        file.write("regular")
    os.symlink("/etc/passwd", "/work/out/link")
    with open("/work/out/large", "wb") as file:
        file.truncate(3 << 20)
    try:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("/work/out/socket")
        listener.close()
    except OSError:
        pass
    if os.fork() == 0:
        os.setsid()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for kind in (lambda: open("/work/out/swapped.new", "w").close(), lambda: os.symlink("/etc/passwd", "/work/out/swapped.new")):
                kind()
                os.rename("/work/out/swapped.new", "/work/out/swapped")
        os._exit(0)


def seen(settings):
    status = os.stat("/work")
    # More than any place has, and less than would end the sandbox.
    most = settings["memory_bytes"] // 3
    set_id, canary = search(settings["canary"], settings["thorough"])
    return {
        "root": {path: write(path) for path in ROOT},
        "mounts": mounts(),
        "temporary": {place: temporary(place, most) for place in TEMPORARY},
        "workspace": {"mode": oct(status.st_mode & 0o7777), "owned": status.st_uid == os.getuid(), "write": write("/work/written")},
        "dataset": dataset(),
        "set_id_files": set_id[:20],
        "canary": canary,
        "sockets": [path for path in SOCKETS if os.path.exists(path)],
    }

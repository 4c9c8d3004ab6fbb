"""How much the program can take: rows 35, 37 to 40, 43."""

import os
import resource

from doctor import attempt, ended, in_child, name, text

CHUNK = 4 << 20

# The same limit under control groups of version 2 and 1.
LIMITS_OF_GROUP = {
    "memory": ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    "swap": ("/sys/fs/cgroup/memory.swap.max", "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"),
    "processes": ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
    "cpu": ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"),
}


def group_limit(paths):
    """The first of the files that is there; `None` if the sandbox does not show any."""
    for path in paths:
        if os.path.exists(path):
            return text(path).strip()
    return None


def open_files(most):
    held = []
    try:
        while len(held) < most:
            held.append(os.open("/dev/null", os.O_RDONLY))
        return ["ok", len(held)]
    except OSError as error:
        return [name(error.errno), len(held)]
    finally:
        for fd in held:
            os.close(fd)


def processes(most):
    """Children that wait, until one is refused."""
    end, hold = os.pipe()
    children = []
    outcome = "ok"
    try:
        while len(children) < most:
            pid = os.fork()
            if pid == 0:
                os.close(hold)
                os.read(end, 1)
                os._exit(0)
            children.append(pid)
    except OSError as error:
        outcome = name(error.errno)
    finally:
        os.close(hold)
        os.close(end)
        for pid in children:
            os.waitpid(pid, 0)
    return [outcome, len(children)]


def sparse():
    """A file that claims a tebibyte."""
    def make():
        with open("/work/sparse", "wb") as file:
            file.truncate(1 << 40)
    outcome = attempt(make)
    if os.path.exists("/work/sparse"):
        os.unlink("/work/sparse")
    return outcome


def exhaust_memory(limit):
    """A child takes twice the limit, as far as it gets: how it ended. 42: it got it all."""
    def child():
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        except OSError:
            pass
        held = []
        while len(held) * CHUNK < 2 * limit:
            held.append(b"x" * CHUNK)
        return 42
    return ended(in_child(child))


def core_dump():
    """Whether a crash leaves a core in the workspace."""
    in_child(lambda: os.abort())
    left = sorted(entry for entry in os.listdir("/work") if entry.startswith("core"))
    for entry in left:
        os.unlink("/work/" + entry)
    return left


def seen(settings):
    names = ("CORE", "CPU", "FSIZE", "MEMLOCK", "NOFILE", "NPROC")
    return {
        "limits": {key: list(resource.getrlimit(getattr(resource, "RLIMIT_" + key))) for key in names},
        "open_files": open_files(4096),
        # Some more than allowed: enough to see that nobody counts, and few enough for the memory.
        "processes": processes(settings["processes"] + 20),
        "sparse": sparse(),
        "core_files": core_dump(),
        "oom_score": text("/proc/self/oom_score_adj").strip(),
        # Of the supervisor: what the engine gave it. Below that nobody here gets.
        "first_oom_score": text("/proc/1/oom_score_adj").strip(),
        "lower_oom_score": attempt(lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000")),
        "nice": attempt(os.nice, -5),
        "group": {key: group_limit(paths) for key, paths in LIMITS_OF_GROUP.items()},
    }

"""What every part of the probe uses: trying something, and naming what came of it."""

import ctypes
import errno
import os
import signal

LIBC = ctypes.CDLL(None, use_errno=True)


def name(number):
    """`EPERM` for 1."""
    return errno.errorcode.get(number, str(number))


def attempt(function, *arguments):
    """`ok`, or the name of the error."""
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return name(error.errno)
    except ValueError:
        # Such as a map of a file that is empty by now.
        return "ValueError"


def text(path, most=1 << 16):
    """The beginning of a file, or the name of the error."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError as error:
        return name(error.errno)


def ended(status):
    """How a child ended: the name of its signal, or its exit code as text."""
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return str(os.WEXITSTATUS(status))


def in_child(function):
    """Runs `function` in a child, which its code may end or change; gives the wait status."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            code = function()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def call(number, *arguments):
    """A system call by its number: `ok`, the name of the error, or of the signal that it earned."""
    def child():
        ctypes.set_errno(0)
        padded = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
        result = LIBC.syscall(ctypes.c_long(number), *padded)
        return ctypes.get_errno() if result == -1 else 0

    status = in_child(child)
    if os.WIFSIGNALED(status):
        return ended(status)
    code = os.WEXITSTATUS(status)
    return name(code) if code else "ok"

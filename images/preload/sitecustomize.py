"""Makes an interpreter wait for its program, with libraries imported already.

The supervisor starts the very command that will run the program, `python3 script.py`, before
there is a script, with one more variable: `PYTHONPATH` names the directory of this file. CPython
imports `sitecustomize` while it initialises `site`, before it opens the script, and so comes here.
This module imports what it is told to, waits for the word to go, and takes back whatever it did.
Then the interpreter goes on by itself: the script is run by CPython, not by anything of ours.

The conversation, over the inherited descriptor 3, in lines:

    supervisor   the names of modules, one a line, then an empty line
    here         "here", when this module runs
    here         "problem NAME: CLASS" for each module that cannot be imported
    here         "warm-up: CLASS" if using them once fails
    here         "ready"
    supervisor   "go", and for each limit to lower: its number, the soft and the hard limit;
                 or the end of the stream: nobody needs this interpreter
    here         "gone", when the limits are in force

What has to hold: a program finds nothing that a plain start would not have given it, except that
the modules named, and what they import, are loaded. Hence nothing is imported here but what every
start imports, or a library that is preloaded anyway; what prints at import prints to nowhere; and where the program's
own files would have been imported instead of what is loaded, the interpreter is started anew.

Runs on Python 3.8 and later. Whatever goes wrong in here ends the process: the script must never
be run before the word to go.
"""

import os
import sys

LINK = 3

# What lies beside a script and more than this is not worth looking at: a plain start is cheaper.
MOST_FILES_LOOKED_AT = 10_000

CODE = (".py", ".pyc", ".so")


def say(line):
    data = (line + "\n").encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(LINK, data):]


def hear_names():
    """The names of the modules to import."""
    heard = b""
    while not ("\n" + heard.decode("ascii")).endswith("\n\n"):
        more = os.read(LINK, 65536)
        if not more:
            os._exit(0)
        heard += more
    return heard.decode("ascii").split()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def forget_the_way_here():
    """Undoes the variable that led here, before anything can inherit it.

    Gives the environment as it would have been without it.
    """
    directory = os.environ.pop("PYTHONPATH")
    sys.path.remove(directory)
    sys.path_importer_cache.pop(directory, None)

    entry = os.fsencode("PYTHONPATH=" + directory) + b"\0"
    block = read("/proc/self/environ")
    plain = block[:-len(entry)] if block.endswith(entry) else block
    try:
        wipe(entry)
    except (OSError, ValueError, IndexError):
        # It stays visible in /proc/self/environ, which does no harm.
        pass
    pairs = (pair.partition(b"=") for pair in plain.split(b"\0") if pair)
    return {name: value for name, _, value in pairs}


def wipe(entry):
    """Overwrites the last variable in the memory that /proc/self/environ shows.

    Nothing points to it any more: it was taken out of the C library's list before.
    """
    fields = read("/proc/self/stat").rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end of proc(5)
    memory = os.open("/proc/self/mem", os.O_RDWR)
    try:
        if os.pread(memory, len(entry), end - len(entry)) == entry and end - len(entry) >= start:
            os.pwrite(memory, bytes(len(entry)), end - len(entry))
    finally:
        os.close(memory)


def import_the_images_own():
    """Imports the `sitecustomize` that a plain start would have; gives the error if that fails."""
    del sys.modules[__name__]
    try:
        __import__(__name__)
    except Exception as error:
        return error
    return None


def silence():
    """Lets both output streams lead nowhere; gives copies of what they were."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    copies = [os.dup(stream) for stream in (1, 2)]
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    return copies


def end_silence(copies):
    """What is still in the interpreter's buffers goes where the rest went."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    for stream, copy in zip((1, 2), copies):
        os.dup2(copy, stream)
        os.close(copy)


def import_all(names, warm_up):
    variables = dict(os.environ)

    def attempt(what, problem):
        try:
            what()
        except BaseException as error:
            say("{}: {}".format(problem, type(error).__name__))

    for name in names:
        attempt(lambda: __import__(name), "problem " + name)
    attempt(lambda: exec(warm_up, {"__name__": "warm_up"}), "warm-up")
    # A program's environment is a fixed list; some libraries add to it.
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def spare_the_teardown():
    """Lets the interpreter end without taking the imported libraries apart.

    It would clear module after module and free object by object, which takes longer than most
    programs. Gives a function to be called once everything is imported. What an exit does for a
    program stays: threads are waited for, exit functions run, its own objects are finalised, and
    its files flushed.
    """
    import atexit

    # The names of this module are gone by the time of the exit.
    modules = sys.modules
    before = set(modules)
    imported, caches = [], []
    take_apart = the_programs_end(os.getcwd() + os.sep)
    process, which = os.getpid(), os.getpid
    leave_memory = []

    def forget():
        for name, module in imported:
            if modules.get(name) is module:
                del modules[name]
        for cache, misses in caches:
            if cache.cache_info().misses != misses:
                cache.cache_clear()
        atexit._clear()
        take_apart()
        # Not in a copy of this process: nobody waits for its memory.
        if leave_memory and which() == process:
            leave_memory[0]()

    # Registered before any library registers its own: of exit functions the first comes last.
    atexit.register(forget)

    def keep():
        import gc
        from functools import _lru_cache_wrapper

        imported.extend(item for item in modules.items() if item[0] not in before)
        # The usual way in which a library comes to refer to what is a program's; what is in them
        # now is the libraries'.
        caches.extend(
            (thing, thing.cache_info().misses)
            for thing in gc.get_objects() if type(thing) is _lru_cache_wrapper)
        # Nothing leads to this any more, and the collector leaves alone what is frozen: what is in
        # it lives as long as the process.
        cycle = [imported, list(sys.path_importer_cache.values())]
        cycle.append(cycle)
        del cycle
        leave_memory.extend(the_kernels_part())
        gc.collect()
        gc.freeze()
        # After that, since the program's own names must not be frozen.
        renew_main(imported)

    return keep


def the_kernels_part():
    """Spares the exit what comes after Python: unloading libraries and giving memory back.

    Both take longer than most programs. Exit functions of the C library that are registered later,
    such as those of a program's own libraries, run and may print; those of the libraries that are
    loaded now do not, they would only give back what goes anyway. Gives, if this can be had, a
    function that leaves the memory to a second process, which lies in it and does nothing until it
    is killed with the rest of the sandbox: so the end of this one is seen at once.
    """
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        return []
    try:
        libc = ctypes.CDLL(None)
        address = ctypes.c_void_p
        exit_now, flush_all_files, wait = (
            ctypes.cast(function, address) for function in (libc._exit, libc.fflush, libc.pause))
        # What is registered last is called first; `fflush` with its argument, which means all files.
        libc.on_exit(exit_now, None)
        libc.__cxa_atexit(flush_all_files, None, None)
        clone = libc.clone
    except (AttributeError, OSError, ValueError):
        # Another C library than glibc.
        return []
    bytes_of_stack = 64 * 1024
    stack = ctypes.create_string_buffer(bytes_of_stack)
    top = address((ctypes.addressof(stack) + bytes_of_stack) & ~15)
    clone_vm, no_argument = 0x100, None

    def leave_memory():
        clone(wait, top, clone_vm, no_argument)

    # The stack lives as long as its name.
    leave_memory.stack = stack
    return [leave_memory]


def the_programs_end(directory):
    """Gives the function that takes apart what is the program's own: its module, and those beside it.

    The interpreter would do so a little later, but a library that lives on may refer to a class or a
    function of the program, and through that to all its names: then nothing of it would be finalised.
    """
    import _weakref
    import gc
    import io

    system = sys
    lasting = (type(sys), type, type(the_programs_end))
    files = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)

    class Mark:
        """Lives as long as the names that it is among."""

        __slots__ = ("names", "__weakref__")

    def is_own(name, module):
        file = getattr(module, "__file__", None)
        return name == "__main__" or isinstance(file, str) and file.startswith(directory)

    def mark_and_let_go():
        marks = []
        for name, module in list(system.modules.items()):
            if is_own(name, module):
                mark = Mark()
                mark.names = module.__dict__
                mark.names["__mark__"] = mark
                marks.append(_weakref.ref(mark))
                del system.modules[name]
        return marks

    def flush_all():
        for thing in gc.get_objects():
            if isinstance(thing, files):
                try:
                    thing.flush()
                except Exception:
                    pass

    def take_apart():
        # The interpreter's own way, as far as it leads: everything else is let go, then collected.
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(system, name):
                setattr(system, name, None)
        marks = mark_and_let_go()
        gc.collect()
        for mark in marks:
            left = mark()
            if left is None:
                continue
            # Something that lives on refers to these names. Data first, so that finalisers still
            # find the functions, classes and modules that they use.
            names = left.names
            del left
            for name in [name for name, value in names.items() if not isinstance(value, lasting)]:
                if not name.startswith("__"):
                    del names[name]
            gc.collect()

    def end():
        if len(system._current_frames()) > 1:
            # Threads that are left go on until the interpreter stops them, and need their names.
            return
        # Before: a collected file may lose what its buffer has not got yet. And after: finalisers
        # may write to one that a library still refers to.
        flush_all()
        take_apart()
        flush_all()

    return end


def renew_main(imported):
    """Gives the program a module of its own to be run in, as empty as the one that was there."""
    old = sys.modules["__main__"]
    new = type(sys)("__main__")
    new.__dict__.update(old.__dict__)
    sys.modules["__main__"] = new
    for _, module in imported:
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in names.items() if value is old]:
            names[name] = new


def top_level_names():
    return {name.partition(".")[0] for name in sys.modules}


def wait_for_the_word():
    """Waits for the word to go; gives the limits that came with it."""
    heard = b""
    while not heard.endswith(b"\n"):
        more = os.read(LINK, 4096)
        if not more:
            os._exit(0)
        heard += more
    numbers = [int(word) for word in heard.split()[1:]]
    return [numbers[first:first + 3] for first in range(0, len(numbers), 3)]


def lower(limits):
    """Sets limits of this process: nobody else in the sandbox is allowed to."""
    if not limits:
        return
    was_loaded = "resource" in sys.modules
    import resource

    for number, soft, hard in limits:
        resource.setrlimit(number, (soft, hard))
    if not was_loaded:
        del sys.modules["resource"]


def would_import_otherwise(preloaded):
    """Whether a plain start would find other modules than those that are loaded.

    The directory of the script comes before the library, and a user's own site directory is
    looked for at the start only. A program may add any directory below its own to its path.
    """
    site = sys.modules["site"]
    if site.ENABLE_USER_SITE and os.path.isdir(site.USER_SITE):
        return True
    looked_at = 0
    for directory, _, files in os.walk(os.path.dirname(sys.argv[0]) or "."):
        looked_at += 1 + len(files)
        if looked_at > MOST_FILES_LOOKED_AT:
            return True
        for file in files:
            name = file.partition(".")[0]
            if name == "__init__":
                name = os.path.basename(directory)
            if file.endswith(CODE) and name in preloaded:
                return True
    return False


def start_anew(environment):
    """Replaces this process by a plain start of the same command."""
    arguments = read("/proc/self/cmdline").split(b"\0")[:-1]
    os.execvpe(arguments[0], arguments, environment)


def restart_clocks():
    """The times that modules count from the start of the program."""
    logging = sys.modules.get("logging")
    if logging is not None:
        time = sys.modules["time"]
        whole = isinstance(logging._startTime, int)  # nanoseconds, from Python 3.13 on
        logging._startTime = time.time_ns() if whole else time.time()


def wait_for_the_program():
    """All of the above, in its order; gives the error of the image's own sitecustomize."""
    os.set_inheritable(LINK, False)
    say("here")
    warm_up = read(os.path.join(os.environ["PYTHONPATH"], "warm_up.py"))
    environment = forget_the_way_here()
    error = import_the_images_own()
    before = top_level_names()

    names = hear_names()
    copies = silence()
    if names:
        keep = spare_the_teardown()
        import_all(names, warm_up)
        keep()
    preloaded = top_level_names() - before
    say("ready")

    lower(wait_for_the_word())
    say("gone")
    os.close(LINK)
    end_silence(copies)
    if would_import_otherwise(preloaded):
        start_anew(environment)
    restart_clocks()
    return error


def leave(error):
    """Ends this module as the import of the image's own has ended.

    Usually there is none, and the error is that of a module that does not exist: `site` says nothing
    then, and the import machinery forgets this one.
    """
    # The functions and their module hold each other, as do an error and the frames that it went
    # through: without this they would stay as garbage.
    globals().clear()
    if error is not None:
        try:
            raise error.with_traceback(None)
        finally:
            del error


try:
    own_error = wait_for_the_program()
except BaseException:
    # Not even a traceback: it would be taken for the program's.
    os._exit(70)
leave(own_error)

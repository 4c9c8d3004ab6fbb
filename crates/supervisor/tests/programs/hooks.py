import builtins
import sys
import threading

print(sys.gettrace(), sys.getprofile(), threading.excepthook is threading.__excepthook__)
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__)
print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.exc_info(), hasattr(sys, "last_value"))
print(sys.meta_path, [getattr(hook, "__qualname__", hook) for hook in sys.path_hooks], builtins.__import__)
print(sys.getswitchinterval(), sys.getrecursionlimit(), sys.getdlopenflags(), sys.get_asyncgen_hooks(), sys.getallocatedblocks() > 0)

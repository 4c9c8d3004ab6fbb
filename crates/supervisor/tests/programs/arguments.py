"""The arguments, and what the module of the script knows about itself."""
import sys

print(sys.argv, sys.orig_argv, sys.executable)
print(__file__, __name__, repr(__doc__), __package__, __spec__, __cached__ if "__cached__" in globals() else None)
print(sorted(globals()), type(__loader__), __builtins__)

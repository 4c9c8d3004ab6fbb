"""Nothing of ours is left in the interpreter."""
import gc
import importlib.util
import sys

print([name for name in sys.modules if "customize" in name], importlib.util.find_spec("sitecustomize"))
mine = [module.__name__ for module in list(sys.modules.values()) if "preload" in (getattr(module, "__file__", None) or "")]
print(mine, [path for path in sys.path + list(sys.path_importer_cache) if "preload" in path])
functions = [thing for thing in gc.get_objects() if type(thing).__name__ == "function"]
print([function for function in functions if "preload/" in function.__code__.co_filename])
try:
    import sitecustomize
except ImportError as error:
    print(error)
else:
    print(sitecustomize)

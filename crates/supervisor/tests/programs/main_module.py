import importlib
import sys

import __main__

value = 5
print(__main__.value, __main__.__file__, sys.modules["__main__"] is __main__, __main__.__dict__ is globals())
importlib.import_module("__main__")
import script

print(script.value, script.__file__, script.__name__)

import runpy
import sys

print(sorted(runpy.run_path("other.py", {"given": 1}, "__main__").items())[-1], sys.argv)
print(runpy.run_module("other", run_name="named")["result"])

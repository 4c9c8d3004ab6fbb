"""An interpreter started by the program is a plain one."""
import subprocess
import sys

code = "import sys, os; print(sys.argv, sys.path, sys.flags, sorted(os.environ.items()), sorted(sys.modules), os.listdir('/proc/self/fd'))"
print(subprocess.run([sys.executable, "-c", code, "x"], capture_output=True, text=True, check=True).stdout)
subprocess.run(["python3", "-c", code], check=True)

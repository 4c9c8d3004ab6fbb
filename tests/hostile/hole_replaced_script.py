"""CVE-2024-28185, -28189 (Judge0): a link in place of the script, which the service then wrote through and gave away.

Replaces what the service wrote by links to what it must not change.
"""

import os

for name, target in (("script.py", "/data/data.csv"), ("setup.sh", "@SECRET@"), ("run_script", "/data"), ("given.txt", "/data/data.csv")):
    if os.path.lexists(name):
        os.unlink(name)
    os.symlink(target, name)
os.symlink("/data/sub", "out/models")
os.symlink("/data/data.csv", "out/setup.sh")
with open("out/good.txt", "w") as file:
    file.write("good")

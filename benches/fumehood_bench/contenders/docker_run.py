"""`docker run --rm`, one container for each run, with flags that compare to fumehood's."""

from ..programs import Outcome, Program
from ..settings import Limits
from .base import UID, Context, Contender, environment
from .commands import output_of

DATASET = "/data"
OUTPUT = "/out"


class DockerRun(Contender):
    name = "docker-run"
    title = "`docker run --rm`"
    isolation = "a container for each run"
    note = "Artifacts arrive through a bind mount, unchecked; limits are not told apart."

    def run(self, program: Program) -> Outcome:
        output = self.context.output_directory()
        command = [
            "docker", "run", "--rm", "--pull=never",
            *hardening(self.context, self.context.settings.limits),
            *variables(DATASET, OUTPUT),
        ]
        if program.dataset is not None:
            command += ["--mount", f"type=bind,src={program.dataset},dst={DATASET},readonly"]
        if program.artifacts:
            command += ["--mount", f"type=bind,src={output},dst={OUTPUT}"]
        command += [self.context.image, "python3", "-c", program.code]
        return Outcome(output_of(command), output)


def hardening(context: Context, limits: Limits) -> list[str]:
    """Flags of `docker run` for one program."""
    memory = f"{limits.memory_mb}m"
    return [
        "--label", context.label,
        "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges",
        "--user", f"{UID}:{UID}", "--workdir=/work", "--log-driver=none", "--hostname=sandbox",
        "--tmpfs", f"/work:rw,noexec,nosuid,nodev,size={limits.workspace_mb}m,mode=1777",
        "--tmpfs", f"/tmp:rw,noexec,nosuid,nodev,size={limits.temporary_mb}m,mode=1777",
        "--memory", memory, "--memory-swap", memory,
        "--cpus", str(limits.cpus), "--cpu-shares", str(limits.cpu_shares),
        "--pids-limit", str(limits.processes),
    ]


def variables(dataset: str, output: str) -> list[str]:
    flags = []
    for name, value in environment(dataset, output).items():
        flags += ["--env", f"{name}={value}"]
    return flags

"""`docker exec` into one container that lives as long as the benchmark."""

import shutil
from dataclasses import replace

from ..programs import Outcome, Program
from .base import UID, Contender, Unavailable
from .commands import CommandFailed, output_of
from .docker_run import hardening, variables

DATASETS = "/data"
OUTPUTS = "/outputs"


class DockerExec(Contender):
    name = "docker-exec"
    title = "`docker exec`, one container"
    isolation = "none between runs: they share files, memory, processes and user"
    note = "All runs share one limit, so it is the sum of theirs."

    container = ""

    def prepare(self) -> None:
        context = self.context
        self.outputs = context.output_directory()
        dataset = context.places.work / "dataset"
        most = max(context.settings.clients)
        limits = context.settings.limits
        shared = replace(limits, memory_mb=limits.memory_mb * most, cpus=0.0,
                         processes=limits.processes * most)
        command = [
            "docker", "run", "--detach", "--pull=never", *hardening(context, shared),
            "--mount", f"type=bind,src={dataset},dst={DATASETS},readonly",
            "--mount", f"type=bind,src={self.outputs},dst={OUTPUTS}",
            context.image, "python3", "-c", "import signal; signal.pause()",
        ]
        try:
            self.container = output_of(command).strip()
        except CommandFailed as error:
            raise Unavailable(str(error)) from error

    def run(self, program: Program) -> Outcome:
        output = self.outputs / str(next(self.context.numbers))
        output.mkdir()
        output.chmod(0o777)
        command = [
            "docker", "exec", "--user", f"{UID}:{UID}",
            *variables(DATASETS, f"{OUTPUTS}/{output.name}"),
            self.container, "python3", "-c", program.code,
        ]
        return Outcome(output_of(command), output)

    def close(self) -> None:
        if self.container:
            self.context.engine.remove(self.container)
            self.container = ""
            shutil.rmtree(self.outputs, ignore_errors=True)

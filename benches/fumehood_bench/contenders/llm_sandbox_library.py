"""The library `llm-sandbox` from PyPI on the same engine and image, with and without its pool.

It is given its best case. Its environment setup makes a virtual environment and upgrades pip over
the network, in every container; here that is skipped, as its documentation advises for images that
have their libraries. It calls `python`, or with a pool the interpreter of that environment, which
the image does not have: an image derived from it adds both names for the same interpreter.
Stopping a container whose first process ignores SIGTERM takes the engine 10 seconds; here the
signal is SIGKILL. Its workspace cannot be a tmpfs nor its root read-only, because it copies
programs in through the engine's archive calls.
"""

import io
import os
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ..engine import EngineError
from ..programs import Outcome, Program
from .base import RUN_TIMEOUT, Contender, Unavailable, environment
from .commands import CommandFailed, output_of

DATASET = "/data"
WORKSPACE = "/sandbox"
OUTPUT = f"{WORKSPACE}/out"
# Where version 0.3 looks for the interpreter of a container that comes from a pool.
POOL_INTERPRETER = f"{WORKSPACE}/.sandbox-venv/bin/python"
IMAGE = "fumehood-bench/llm-sandbox"
DOCKERFILE = f"""FROM {{base}}
RUN mkdir -p {Path(POOL_INTERPRETER).parent} \\
    && ln -s "$(command -v python3)" /usr/local/bin/python \\
    && ln -s "$(command -v python3)" {POOL_INTERPRETER}
"""


class ProgramFailed(Exception):
    """The program did not end with 0."""


class LlmSandbox(Contender):
    name = "llm-sandbox"
    title = "`llm-sandbox`, no pool"
    isolation = "a container for each run, root in it, writable root"
    note = "Environment setup skipped, containers stopped with SIGKILL: its best case."

    def prepare(self) -> None:
        try:
            import docker
            import llm_sandbox  # noqa: F401  only whether it is there
        except ImportError as error:
            raise Unavailable(f"the library cannot be imported: {error}") from error
        self.image = self.derived_image()
        most = max(self.context.settings.clients) + 8
        self.client = docker.DockerClient(
            base_url=f"unix://{self.context.engine.path}", timeout=int(RUN_TIMEOUT), max_pool_size=most)

    def derived_image(self) -> str:
        """The image with the names of the interpreter that the library calls."""
        reference = f"{IMAGE}:{self.context.image.removeprefix('sha256:')[:16]}"
        with suppress(EngineError):
            self.context.engine.image(reference)
            return reference
        with tempfile.TemporaryDirectory(dir=self.context.places.work) as directory:
            Path(directory, "Dockerfile").write_text(DOCKERFILE.format(base=self.context.image_name))
            try:
                # The classic builder: the other one may not be installed, and would ask a registry.
                output_of(["docker", "build", "--quiet", "--network=none", "--tag", reference,
                           "--label", self.context.label, directory],
                          env=os.environ | {"DOCKER_BUILDKIT": "0"})
            except CommandFailed as error:
                raise Unavailable(f"its image cannot be made: {error}") from error
        return reference

    def container_settings(self) -> dict:
        """What its documentation calls runtime configuration: arguments of the engine's client."""
        limits = self.context.settings.limits
        name, _, value = self.context.label.partition("=")
        dataset = self.context.places.work / "dataset"
        return {
            "command": ["python3", "-c", "import signal; signal.pause()"],
            "stop_signal": "SIGKILL",
            "labels": {name: value},
            "environment": environment(DATASET, OUTPUT),
            "volumes": {str(dataset): {"bind": DATASET, "mode": "ro"}},
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "mem_limit": f"{limits.memory_mb}m",
            "nano_cpus": int(limits.cpus * 1e9),
            "cpu_shares": limits.cpu_shares,
            "pids_limit": limits.processes,
        }

    def session(self) -> object:
        from llm_sandbox import SandboxSession

        return SandboxSession(
            client=self.client, image=self.image, lang="python", workdir=WORKSPACE,
            skip_environment_setup=True, runtime_configs=self.container_settings(),
        )

    def run(self, program: Program) -> Outcome:
        output = self.context.output_directory()
        with self.session() as session:
            result = session.run(program.code, timeout=RUN_TIMEOUT)
            if result.exit_code != 0:
                raise ProgramFailed(f"ended with {result.exit_code}: {result.stderr.strip()[-200:]}")
            if program.artifacts:
                self.fetch(session, output)
        return Outcome(result.stdout.replace("\r\n", "\n"), output)

    def fetch(self, session: object, output: Path) -> None:
        """Copies the artifacts with its call that gives an archive; the one that also unpacks it
        needs a newer Python than Debian 12 has."""
        archive, _ = getattr(session, "backend_session", session).get_archive(OUTPUT)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                if member.isfile():
                    (output / Path(member.name).name).write_bytes(tar.extractfile(member).read())

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()


class LlmSandboxPool(LlmSandbox):
    name = "llm-sandbox-pool"
    title = "`llm-sandbox`, its pool"
    isolation = "none between runs: its pool gives a used container to the next run"
    note = "As many containers as fumehood's pool has sandboxes, all made beforehand."

    pool = None

    def prepare(self) -> None:
        super().prepare()
        from llm_sandbox.pool import PoolConfig, create_pool_manager

        size = self.context.settings.pool_size
        try:
            self.pool = create_pool_manager(
                client=self.client, lang="python", image=self.image, workdir=WORKSPACE,
                config=PoolConfig(max_pool_size=size, min_pool_size=size, acquisition_timeout=RUN_TIMEOUT,
                                  idle_timeout=None, max_container_lifetime=None),
                skip_environment_setup=True, runtime_configs=self.container_settings(),
            )
        except Exception as error:
            raise Unavailable(f"its pool cannot be made: {error}") from error
        self.await_pool(size)

    def await_pool(self, size: int) -> None:
        """It is filled by a thread of its own."""
        end = time.monotonic() + RUN_TIMEOUT
        while self.pool.get_stats()["total_size"] < size:
            if time.monotonic() > end:
                raise Unavailable(f"its pool was not filled within {RUN_TIMEOUT:.0f} s")
            time.sleep(0.1)

    def session(self) -> object:
        from llm_sandbox.pool.session import PooledSandboxSession

        return PooledSandboxSession(pool_manager=self.pool, workdir=WORKSPACE)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
        super().close()

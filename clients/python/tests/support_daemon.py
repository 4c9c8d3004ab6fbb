"""A daemon of the real program, with a directory and a port of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60

_SETTINGS = """
[app]
allowed_data_root = "data"
max_concurrent_runs = 2
[pool]
size = 0
[doctor]
at_start = false
"""


def program() -> str:
    """The program that is tested, by ``FUMEHOOD_BIN``."""
    built = Path(__file__).parents[3] / "target/debug/fumehood"
    return os.environ.get("FUMEHOOD_BIN") or str(built)


class Daemon:
    """A running daemon; its directory has ``data`` (the allowed root) and ``outputs``.

    What ``prepare`` gives, which is called before the first start, is kept in ``prepared``.
    """

    def __init__(
        self, settings: str = _SETTINGS, prepare: Callable[[Daemon], str] | None = None
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fumehood-python-"))
        (self.directory / "data").mkdir()
        (self.directory / "fumehood.toml").write_text(settings, encoding="utf-8")
        self.port = _free_port()
        self._process: subprocess.Popen[str] | None = None
        self.prepared = ""
        try:
            self.prepared = prepare(self) if prepare is not None else ""
            self.start()
        except BaseException:
            shutil.rmtree(self.directory)
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output_root(self) -> Path:
        return self.directory / "outputs"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Starts the program, the first time or after :meth:`kill`, and waits until it listens."""
        environment = {
            "PATH": "/usr/bin:/bin",
            "FUMEHOOD_API__LISTEN": f"127.0.0.1:{self.port}",
            "OPENAI_API_KEY": "key-of-the-daemon",
        }
        if "DOCKER_HOST" in os.environ:
            environment["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        self._process = subprocess.Popen(
            [program(), "serve", "--drain-seconds", "0"],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        lines = self._process.stderr
        assert lines is not None
        with (self.directory / "log").open("a", encoding="utf-8") as log:
            for line in lines:
                log.write(line)
                if "fumehood listens on " in line:
                    break
            else:
                log.flush()
                raise AssertionError(f"the daemon did not start:\n{self.log}")
        threading.Thread(target=self._keep_log, args=(lines,), daemon=True).start()

    def kill(self) -> None:
        """Ends the program without a warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        """Ends the program and removes its directory."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)
        shutil.rmtree(self.directory)

    def command(self, *arguments: str) -> str:
        """What a command of the program prints in the daemon's directory."""
        done = subprocess.run(
            [program(), *arguments],
            cwd=self.directory,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout.strip()

    def _keep_log(self, lines: IO[str]) -> None:
        with lines, (self.directory / "log").open("a", encoding="utf-8") as log:
            for line in lines:
                log.write(line)
                log.flush()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

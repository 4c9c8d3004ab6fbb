"""One fumehood daemon: its configuration, its process, its HTTP interface."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from .engine import Engine, exchange

START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
CALL_TIMEOUT = 180.0
# How long a client waits for the end of its run: longer than any run of the benchmark queues.
WAIT_SECONDS = 120

LISTENS = re.compile(r"fumehood listens on http://([0-9.]+):([0-9]+)")


class DaemonRefused(Exception):
    """The daemon did not start; the text is what it said."""


class RunRefused(Exception):
    """An answer other than the one that was asked for."""


class Daemon:
    """A process with a state directory of its own."""

    def __init__(self, program: Path, directory: Path, engine: Engine, settings: dict[str, dict]):
        self.program = program
        self.directory = directory
        self.engine = engine
        self.settings = settings
        self.process: subprocess.Popen | None = None
        self.address = ("", 0)
        self.threads = threading.local()

    @property
    def outputs(self) -> Path:
        return self.directory / "outputs"

    @property
    def database(self) -> Path:
        return self.directory / "state" / "fumehood.db"

    def start(self) -> None:
        """Starts it and waits until it can work."""
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "fumehood.toml"
        configuration.write_text(toml(self.settings | {
            "app": self.settings.get("app", {}) | {
                "output_root": str(self.outputs),
                "state_dir": str(self.directory / "state"),
            },
        }))
        # Only what the file says counts.
        variables = {name: value for name, value in os.environ.items()
                     if not name.startswith("FUMEHOOD_")}
        log = self.directory / "daemon.log"
        with open(log, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [str(self.program), "serve", "--config", str(configuration), "--log", "warn",
                 "--listen", "127.0.0.1:0", "--drain-seconds", "1"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=variables,
                cwd=self.directory, start_new_session=True,
            )
        end = time.monotonic() + START_TIMEOUT
        while not (found := LISTENS.search(log.read_text())):
            self.check_alive(log)
            if time.monotonic() > end:
                raise DaemonRefused(f"it did not listen within {START_TIMEOUT:.0f} s")
            time.sleep(0.02)
        self.address = (found[1], int(found[2]))
        while self.call("GET", "/ready")[0] != 200:
            self.check_alive(log)
            if time.monotonic() > end:
                raise DaemonRefused(f"it is not ready: {self.call('GET', '/ready')[1]}")
            time.sleep(0.05)

    def check_alive(self, log: Path) -> None:
        if self.process.poll() is not None:
            said = " ".join(log.read_text().split())
            raise DaemonRefused(said[-300:] or f"it ended with {self.process.returncode}")

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        """Ends it and removes what it has on the engine."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.sweep()

    def kill(self) -> None:
        """Ends it without a chance to put anything in order."""
        self.process.kill()
        self.process.wait()
        self.process = None
        self.sweep()

    def label(self) -> str:
        """What its containers carry."""
        return "fumehood.instance=" + (self.directory / "state" / "instance").read_text().strip()

    def sandboxes(self) -> list[str]:
        """Its containers, waiting, at work or not removed yet."""
        return self.engine.labelled(self.label())

    def sweep(self) -> None:
        with suppress(FileNotFoundError):
            self.engine.remove_labelled(self.label())

    def remove(self) -> None:
        """Stops it and deletes its directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def call(self, method: str, path: str, body: dict | None = None,
             headers: dict[str, str] | None = None) -> tuple[int, dict]:
        """Status and body of an answer, over this thread's own connection."""
        connection = getattr(self.threads, "connection", None)
        if connection is None or (connection.host, connection.port) != self.address:
            connection = http.client.HTTPConnection(*self.address, timeout=CALL_TIMEOUT)
            self.threads.connection = connection
        payload = None if body is None else json.dumps(body)
        sent = dict(headers or {})
        if payload is not None:
            sent["Content-Type"] = "application/json"
        try:
            answer, text = exchange(connection, method, path, payload, sent)
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        return answer.status, json.loads(text)

    def submit(self, request: dict) -> str:
        """Has a run accepted, without waiting for it."""
        status, answer = self.call("POST", "/runs", request)
        if status != 200:
            raise RunRefused(f"{status}: {json.dumps(answer)[:200]}")
        return answer["run_id"]

    def run_to_end(self, request: dict) -> dict:
        """Makes a run and waits for its result."""
        status, answer = self.call("POST", "/runs", request, {"Prefer": f"wait={WAIT_SECONDS}"})
        if status != 200:
            raise RunRefused(f"{status}: {json.dumps(answer)[:200]}")
        if answer["status"] != "SUCCESS":
            reason = answer.get("final_error") or (answer.get("result") or {}).get("error_info")
            raise RunRefused(f"the run is {answer['status']}: {reason}")
        return answer


def toml(settings: dict[str, dict]) -> str:
    """Sections of plain values as TOML, whose numbers, strings and lists are those of JSON."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def further_settings(given: tuple[str, ...], with_pool: bool) -> dict[str, dict]:
    """`SECTION.KEY=VALUE` as sections; what concerns pools is for daemons that have one."""
    sections: dict[str, dict] = {}
    for setting in given:
        name, _, text = setting.partition("=")
        section, _, key = name.partition(".")
        if section == "pool" and not with_pool:
            continue
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        sections.setdefault(section, {})[key] = value
    return sections


def merged(*layers: dict[str, dict]) -> dict[str, dict]:
    """Sections put together; later layers win."""
    sections: dict[str, dict] = {}
    for layer in layers:
        for section, values in layer.items():
            sections.setdefault(section, {}).update(values)
    return sections

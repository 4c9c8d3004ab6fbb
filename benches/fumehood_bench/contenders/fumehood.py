"""fumehood itself, end to end: from POST /runs to the durable result with its artifacts collected.

Three contenders differ in `[pool]` alone: none, interpreters that wait, and interpreters that wait
with libraries imported.
"""

import shutil
import time
from collections.abc import Callable

from ..daemon import Daemon, DaemonRefused, further_settings, merged
from ..programs import Outcome, Program
from .base import Context, Contender, Unavailable

# Uids that each daemon gets for its sandboxes, so that no two daemons share one.
UIDS_EACH = 64
FIRST_UID = 50_000

# A pool that is not full by then will not be.
SETTLE_TIMEOUT = 60.0


class FumehoodCold(Contender):
    name = "fumehood-cold"
    title = "fumehood, no pool"
    isolation = "a container for each run, its settings read back and checked"
    note = ""
    place = 0

    daemon: Daemon | None = None

    def pool(self) -> dict:
        return {"size": 0}

    def prepare(self) -> None:
        daemon = make_daemon(self.context, self.name, {
            "execution": {"uid_base": FIRST_UID + self.place * UIDS_EACH},
            "pool": self.pool(),
        }, self.has_pool)
        try:
            daemon.start()
        except DaemonRefused as error:
            daemon.remove()
            raise Unavailable(f"the daemon refuses: {error}") from error
        self.daemon = daemon
        self.settle()

    def run(self, program: Program) -> Outcome:
        answer = self.daemon.run_to_end(request(program))
        result = answer["result"]
        artifacts = self.daemon.outputs / "models" / result["execution_id"]
        return Outcome(result["stdout"], artifacts, result.get("sandbox"))

    def settle(self) -> None:
        """Waits until used sandboxes are gone, which may happen after the answer."""
        self.await_state(lambda: len(self.daemon.sandboxes()) <= self.pool()["size"])

    def await_state(self, is_reached: Callable[[], bool]) -> None:
        end = time.monotonic() + SETTLE_TIMEOUT
        while not is_reached() and time.monotonic() < end:
            time.sleep(0.05)

    def discard(self, outcome: Outcome) -> None:
        shutil.rmtree(outcome.artifacts, ignore_errors=True)

    def close(self) -> None:
        if self.daemon is not None:
            self.daemon.remove()
            self.daemon = None


class FumehoodWarm(FumehoodCold):
    name = "fumehood-warm"
    title = "fumehood, warm pool"
    note = "An interpreter waits, nothing is imported."
    has_pool = True
    place = 1

    def pool(self) -> dict:
        return {"size": self.context.settings.pool_size, "preload": []}

    def settle(self) -> None:
        """Waits until the pool is full, too; where the daemon does not tell, for a fixed time."""
        super().settle()
        if fill(self.daemon) is None:
            time.sleep(self.context.settings.refill_seconds)
        else:
            self.await_state(lambda: is_full(self.daemon))


class FumehoodPreloaded(FumehoodWarm):
    name = "fumehood-preloaded"
    title = "fumehood, preloaded pool"
    note = "An interpreter waits with the libraries imported."
    place = 2

    def pool(self) -> dict:
        settings = self.context.settings
        return {"size": settings.pool_size, "preload": list(settings.preload)}


def make_daemon(context: Context, name: str, settings: dict[str, dict], with_pool: bool) -> Daemon:
    """A daemon that is not started yet, with the limits that every contender has."""
    chosen = context.settings
    limits = chosen.limits
    common = {
        "app": {
            "allowed_data_root": [str(context.places.work)],
            "max_concurrent_runs": chosen.concurrent_runs,
        },
        "execution": {
            "memory_mb": limits.memory_mb,
            "cpus": limits.cpus,
            "max_processes": limits.processes,
            "workspace_mb": limits.workspace_mb,
        },
        "engine": {"host": f"unix://{context.engine.path}"},
    }
    further = further_settings(chosen.daemon_settings, with_pool)
    directory = context.places.work / "daemons" / name
    # What an earlier, interrupted run of the benchmark left is not this daemon's past.
    shutil.rmtree(directory, ignore_errors=True)
    return Daemon(context.places.daemon, directory, context.engine, merged(common, settings, further))


def request(program: Program) -> dict:
    """The body of POST /runs."""
    body: dict = {"code": program.code}
    if program.dataset is not None:
        body["dataset_path"] = str(program.dataset)
    if program.artifacts:
        body["expected_output_files"] = list(program.artifacts)
    return body


def is_full(daemon: Daemon) -> bool:
    waiting, size = fill(daemon) or (0, 0)
    return waiting >= size


def fill(daemon: Daemon) -> tuple[int, int] | None:
    """How many sandboxes wait and how many should, if `/ready` or `/settings` says so."""
    for path in ("/settings", "/ready"):
        _, answer = daemon.call("GET", path)
        pool = answer.get("pool")
        if not isinstance(pool, dict) or not isinstance(pool.get("size"), int):
            continue
        for name in ("waiting", "ready", "idle", "warm"):
            if isinstance(pool.get(name), int):
                return pool[name], pool["size"]
    return None



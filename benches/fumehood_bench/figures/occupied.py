"""Daemons whose only place for runs is taken, so that what is accepted stays in the queue."""

import time

from ..contenders import Context, Unavailable
from ..contenders.fumehood import make_daemon
from ..daemon import Daemon, DaemonRefused, RunRefused

# Longer than any figure takes.
LONG_RUN = {"code": "import time; time.sleep(590)", "options": {"timeout_seconds": 600}}
START_TIMEOUT = 60.0
QUEUE = 4_000_000_000


def start(context: Context, name: str, settings: dict[str, dict]) -> Daemon:
    """A daemon of this name, or the reason why there is none."""
    daemon = make_daemon(context, name, {"pool": {"size": 0}} | settings, with_pool=False)
    begin(daemon)
    return daemon


def begin(daemon: Daemon) -> None:
    try:
        daemon.start()
    except DaemonRefused as error:
        daemon.remove()
        raise Unavailable(f"the daemon refuses: {error}") from error


def occupy(daemon: Daemon) -> None:
    """Takes the only place: from here on accepted runs wait."""
    try:
        run = daemon.submit(LONG_RUN)
    except RunRefused as error:
        raise Unavailable(f"the long run is refused: {error}") from error
    await_running(daemon, 1)
    status = daemon.call("GET", f"/runs/{run}")[1]["status"]
    if status != "RUNNING":
        raise Unavailable(f"the long run is {status}")


def await_running(daemon: Daemon, count: int) -> None:
    """Waits until so many runs are going on."""
    end = time.monotonic() + START_TIMEOUT
    while len(daemon.call("GET", "/runs?status=RUNNING&limit=100")[1]["runs"]) < count:
        if time.monotonic() > end:
            raise Unavailable(f"{count} runs did not start within {START_TIMEOUT:.0f} s")
        time.sleep(0.1)

"""Runs accepted per second by 32 clients, each on disk before its answer: POST /runs without wait.

The only place is taken by a long run, so nothing but accepting goes on. The load comes from wrk, a
C program, since a client in Python would measure itself. In the end the daemon is killed, and every
run that was acknowledged has to be in its store.
"""

import json
import shutil
import sqlite3
import subprocess

from ..contenders import Context, Unavailable
from ..daemon import Daemon
from . import occupied

CLIENTS = 32
THREADS = 2
SCRIPT = "accepting.lua"


def measure(context: Context) -> dict:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise Unavailable("wrk is not installed (Debian package wrk)")
    daemon = occupied.start(context, "accepting", {
        "app": {"max_concurrent_runs": 1, "max_queued_runs": occupied.QUEUE},
    })
    try:
        occupied.occupy(daemon)
        # The first call makes files grow and caches warm.
        load(context, wrk, daemon, 1)
        before = stored(daemon)
        told = load(context, wrk, daemon, context.settings.accepting_seconds)
        daemon.kill()
        durable = stored(daemon) - before
    finally:
        daemon.remove()
    accepted = told["answers"] - told["refused"]
    return {
        "clients": CLIENTS,
        "seconds": round(told["seconds"], 3),
        "accepted": accepted,
        "refused": told["refused"],
        "socket_errors": told["socket_errors"],
        "accepted_per_second": round(accepted / told["seconds"], 1),
        "milliseconds": told["milliseconds"],
        # What was accepted and not acknowledged any more when wrk stopped is there as well.
        "in_store_after_kill": durable,
        "all_durable": durable >= accepted,
    }


def load(context: Context, wrk: str, daemon: Daemon, seconds: int) -> dict:
    host, port = daemon.address
    script = context.places.repository / "benches" / SCRIPT
    command = [wrk, f"-t{THREADS}", f"-c{CLIENTS}", f"-d{seconds}s", "--timeout", "10s",
               "-s", str(script), f"http://{host}:{port}/runs"]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=seconds + 60, check=False)
    for line in ended.stdout.splitlines():
        if line.startswith("{"):
            return json.loads(line)
    raise Unavailable(f"wrk gave no numbers: {(ended.stderr or ended.stdout)[-200:]}")


def stored(daemon: Daemon) -> int:
    database = sqlite3.connect(f"file:{daemon.database}?mode=ro", uri=True, timeout=10)
    try:
        return database.execute("SELECT count(*) FROM runs").fetchone()[0]
    finally:
        database.close()

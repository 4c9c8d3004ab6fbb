"""Memory of the daemon's process: idle, and with 1,000 runs waiting while 8 write without end."""

import time
from pathlib import Path

from ..contenders import Context
from . import occupied

FLOODS = 8
WAITING = 1_000
FLOOD = {
    "code": "import sys\nwhile True:\n    sys.stdout.write('x' * 65536)\n",
    "options": {"timeout_seconds": 300},
}
QUEUED = {"code": "print('waiting')"}
SETTLE_SECONDS = 2.0
INTERVAL = 0.25


def measure(context: Context) -> dict:
    daemon = occupied.start(context, "memory", {
        "app": {"max_concurrent_runs": FLOODS, "max_queued_runs": WAITING + FLOODS},
    })
    try:
        # Idle is a daemon that has worked before, not one that has touched nothing yet.
        daemon.run_to_end({"code": "print('once')"})
        time.sleep(SETTLE_SECONDS)
        idle = memory_of(daemon.pid)

        for _ in range(FLOODS):
            daemon.submit(FLOOD)
        occupied.await_running(daemon, FLOODS)
        for _ in range(WAITING):
            daemon.submit(QUEUED)
        highest = dict.fromkeys(idle, 0)
        end = time.monotonic() + context.settings.flood_seconds
        while time.monotonic() < end:
            now = memory_of(daemon.pid)
            highest = {name: max(highest[name], now[name]) for name in highest}
            time.sleep(INTERVAL)
        # What was measured is only what it says if the floods still go on.
        occupied.await_running(daemon, FLOODS)
    finally:
        daemon.remove()
    return {
        "idle_mib": mebibytes(idle),
        "loaded_mib": mebibytes(highest),
        "floods": FLOODS,
        "waiting": WAITING,
        "seconds": context.settings.flood_seconds,
    }


def memory_of(pid: int) -> dict[str, int]:
    """Resident and proportional size in KiB."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Rss", "Pss"):
            found[name.lower()] = int(rest.split()[0])
    return found


def mebibytes(kibibytes: dict[str, int]) -> dict[str, float]:
    return {name: round(value / 1024, 2) for name, value in kibibytes.items()}

"""The calls that clients make most, with 100,000 finished runs in the store and with one page of them.

Two daemons side by side, asked in turns. Their only place is taken, so nothing else goes on. The
finished runs are copies of a real one, put into the file of a daemon that is not running.
"""

import random
import shutil
import sqlite3
import string
import time
import uuid
from collections.abc import Callable

from ..contenders import Context
from ..contenders.fumehood import make_daemon
from ..daemon import Daemon
from ..percentiles import summary
from . import occupied

FINISHED = {"code": "print('hello')"}
ACCEPTED = {"code": "print('waiting')"}
# Both stores fill a page and have a next one, so that their lists are answers of the same size.
PAGE = 20
BLOCK = 20
COPY_BATCH = 5_000


def measure(context: Context) -> dict:
    settings = {"app": {"max_concurrent_runs": 1, "max_queued_runs": occupied.QUEUE}}
    daemons: dict[str, Daemon] = {}
    try:
        empty = daemons["empty"] = occupied.start(context, "store-empty", settings)
        run = make_finished_run(empty)
        empty.stop()
        full = daemons["full"] = copy_of(context, empty, settings)
        known = {"empty": fill(empty, run, PAGE + 1), "full": fill(full, run, context.settings.stored_runs)}
        for daemon in daemons.values():
            occupied.begin(daemon)
            occupied.occupy(daemon)
        seconds = ask(daemons, known, run, context.settings.hot_calls)
    finally:
        for daemon in daemons.values():
            daemon.remove()
    return {
        "finished_runs": {name: len(runs) for name, runs in known.items()},
        "calls": {call: {store: summary(samples) for store, samples in stores.items()}
                  for call, stores in seconds.items()},
    }


def make_finished_run(daemon: Daemon) -> str:
    """A run with a key of the client, so that waiting for it can be repeated."""
    status, answer = daemon.call("POST", "/runs", FINISHED, waiting_for_it())
    assert status == 200 and answer["status"] == "SUCCESS", answer
    return answer["run_id"]


def waiting_for_it() -> dict[str, str]:
    return {"Prefer": "wait=60", "Idempotency-Key": "finished"}


def copy_of(context: Context, daemon: Daemon, settings: dict[str, dict]) -> Daemon:
    """A daemon with a copy of a stopped one's state, and an identity of its own."""
    copy = make_daemon(context, "store-full", {"pool": {"size": 0}} | settings, with_pool=False)
    # Another uid for its long run than that of the daemon beside it.
    copy.settings["execution"]["uid_base"] = 50_064
    shutil.copytree(daemon.directory / "state", copy.directory / "state")
    (copy.directory / "state" / "instance").unlink()
    return copy


def fill(daemon: Daemon, template: str, count: int) -> list[str]:
    """Copies a finished run until there are `count`; gives all ids."""
    ids = [template]
    database = sqlite3.connect(daemon.database)
    try:
        (execution,) = database.execute(
            "SELECT id FROM executions WHERE run_id = ?", (template,)).fetchone()
        (episode,) = database.execute(
            "SELECT json_extract(episode, '$.episode_id') FROM episodes WHERE run_id = ?",
            (template,)).fetchone()
        rows = rows_of(database, template)
        while len(ids) < count:
            batch = [new_ids() for _ in range(min(COPY_BATCH, count - len(ids)))]
            with database:
                for statement, row in rows:
                    database.executemany(statement, (
                        renamed(row, dict(zip((template, execution, episode), new, strict=True)))
                        for new in batch))
            ids += [run for run, _, _ in batch]
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        database.close()
    return ids


def rows_of(database: sqlite3.Connection, run: str) -> list[tuple[str, tuple]]:
    """Every row that belongs to a run, each with the statement that inserts one like it.

    Tables and columns are asked for, so that a new one is copied too. Rowids are given anew; keys
    of clients are theirs and unique.
    """
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = []
    # The run first: the others refer to it.
    for table in sorted(tables, key=lambda name: name != "runs"):
        columns = [(name, kind == "INTEGER" and key == 1)
                   for _, name, kind, _, _, key in database.execute(f"PRAGMA table_info({table})")]
        names = [name for name, is_rowid in columns if not is_rowid]
        owner = "id" if table == "runs" else "run_id"
        if owner not in names or table == "idempotency_keys":
            continue
        places = ", ".join("?" * len(names))
        insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"
        select = f"SELECT {', '.join(names)} FROM {table} WHERE {owner} = ?"
        rows += [(insert, row) for row in database.execute(select, (run,))]
    return rows


def renamed(row: tuple, new_names: dict[str, str]) -> tuple:
    """The row with every id replaced, wherever it stands."""
    return tuple(replaced(value, new_names) if isinstance(value, str) else value for value in row)


def replaced(text: str, new_names: dict[str, str]) -> str:
    for old, new in new_names.items():
        text = text.replace(old, new)
    return text


def new_ids() -> tuple[str, str, str]:
    """Ids of a run, its execution and its episode, in the forms that the daemon reads."""
    letters = random.choices(string.ascii_lowercase + string.digits, k=8)
    return str(uuid.uuid4()), "exec_" + "".join(letters), str(uuid.uuid4())


def ask(daemons: dict[str, Daemon], known: dict[str, list[str]], finished: str,
        calls: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each call on each store, in turns of blocks."""
    numbers = random.Random(0)

    def get(daemon: Daemon, ids: list[str]) -> tuple[int, dict]:
        return daemon.call("GET", f"/runs/{numbers.choice(ids)}")

    asked: dict[str, Callable[[Daemon, list[str]], tuple[int, dict]]] = {
        "accept": lambda daemon, _: daemon.call("POST", "/runs", ACCEPTED),
        "get": get,
        "list": lambda daemon, _: daemon.call("GET", f"/runs?limit={PAGE}&status=SUCCESS"),
        # The answer of a client that waits: the run, its episodes and the whole result.
        "wait": lambda daemon, _: daemon.call("POST", "/runs", FINISHED, waiting_for_it()),
    }
    seconds: dict[str, dict[str, list[float]]] = {
        call: {store: [] for store in daemons} for call in asked}
    for number in range(-1, -(-calls // BLOCK)):
        for call, how in asked.items():
            # Who begins changes; the first block of all is not counted.
            stores = list(daemons) if number % 2 else list(reversed(daemons))
            for store in stores:
                for _ in range(BLOCK):
                    begin = time.perf_counter()
                    status, answer = how(daemons[store], known[store])
                    taken = time.perf_counter() - begin
                    if status != 200:
                        raise RuntimeError(f"{call}: {status} {answer}")
                    if number >= 0:
                        seconds[call][store].append(taken)
    return seconds

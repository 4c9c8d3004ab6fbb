"""One run of the benchmark: prepares, measures, writes, and leaves nothing behind."""

import datetime
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import figures, host, matrix, programs, report, targets
from .contenders import ALL, Contender, Context, Unavailable
from .contenders.fumehood import make_daemon
from .daemon import DaemonRefused
from .engine import Engine, EngineError
from .load import describe
from .settings import Places, Settings, parse

# A load above this share of the cores means that something else goes on.
BUSY_SHARE = 0.25

REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    settings, given = parse()
    places = Places(
        repository=REPOSITORY,
        work=given.work.resolve(),
        results=(given.results or REPOSITORY / "benches" / "results").resolve(),
        daemon=given.daemon.resolve(),
        # Not resolved: the name in the virtual environment is what makes its libraries known.
        bare_python=given.bare_python.absolute(),
    )
    signal.signal(signal.SIGTERM, interrupted)
    context = Context(settings, places, Engine())
    with workshop(context):
        try:
            context.image_name = image_name(context)
            context.image = context.engine.image(context.image_name)["Id"]
        except (DaemonRefused, EngineError) as error:
            say(f"error: {error}")
            return 1
        document = without_paths(measure(context), places)
    for path in report.write(document, places.results):
        say(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    print(report.table.targets(document))
    return 0


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def workshop(context: Context) -> Iterator[None]:
    """A work directory that nobody else uses, and nothing on the engine afterwards."""
    work = context.places.work
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another run of this benchmark is going on in this directory") from None
        remove_leftovers(context, work)
        work.joinpath("owner").write_text(context.label)
        try:
            yield
        except KeyboardInterrupt:
            say("interrupted: removing what was made")
            raise SystemExit(130) from None
        finally:
            # A second Ctrl-C would leave containers behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            remove_leftovers(context, work)


def remove_leftovers(context: Context, work: Path) -> None:
    """What this run made, or an earlier one in this directory that was killed."""
    owner = work / "owner"
    labels = {context.label} | ({owner.read_text()} if owner.exists() else set())
    labels |= {f"fumehood.instance={path.read_text().strip()}"
               for path in work.glob("daemons/*/state/instance")}
    for label in labels:
        context.engine.remove_labelled(label)
        context.engine.remove_images_labelled(label)
    for name in ("outputs", "daemons"):
        shutil.rmtree(work / name, ignore_errors=True)
    owner.unlink(missing_ok=True)


def image_name(context: Context) -> str:
    """The image that fumehood uses by default is everybody's."""
    daemon = make_daemon(context, "asked", {"pool": {"size": 0}}, with_pool=False)
    try:
        daemon.start()
        return daemon.call("GET", "/settings")[1]["image"]
    finally:
        daemon.remove()


def measure(context: Context) -> dict:
    """The whole document."""
    settings = context.settings
    begin = time.monotonic()
    facts = host.facts(context)
    warnings = [f"not comparable: {text}" for text in host.differences(facts["versions"])]
    if settings.quick:
        warnings.append("a quick form: too few runs for conclusions")
    if facts["daemon"]["build"] != "release":
        warnings.append("not a release build of fumehood")
    if facts["host"]["load_before"] > BUSY_SHARE * facts["host"]["cores"]:
        warnings.append(f"the host was busy before: load {facts['host']['load_before']}")
    chosen = programs.load(context.places.repository / "benches" / "programs", context.places.work,
                           settings.programs)
    told, cells = measure_contenders(context, chosen)
    document = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "facts": facts,
        "settings": settings.as_json(),
        "warnings": warnings,
        "programs": [{"name": program.name, "title": program.title, "code": program.code} for program in chosen],
        "contenders": told,
        "cells": [cell.as_json() for cell in cells],
        "figures": {name: taken(name, context) for name in figures.ALL if settings.asks_for(name)},
        "load_after": round(os.getloadavg()[0], 2),
        "seconds": 0,
    }
    document["seconds"] = round(time.monotonic() - begin)
    document["targets"] = [target.as_json() for target in targets.judge(document)]
    return document


def without_paths(document: dict, places: Places) -> dict:
    """The document without paths of this machine, which messages of errors may name."""
    text = json.dumps(document)
    for path, word in ((places.work, "WORK"), (places.repository, "REPOSITORY"), (Path.home(), "HOME")):
        text = text.replace(json.dumps(str(path))[1:-1] + "/", f"{word}/")
    return json.loads(text)


def measure_contenders(context: Context, chosen: list[programs.Program]) -> tuple[list[dict], list[matrix.Cell]]:
    """What is told of each contender, and the cells of those that can take part."""
    told: list[dict] = []
    taking_part: list[Contender] = []
    cells: list[matrix.Cell] = []
    try:
        for kind in ALL:
            if not context.settings.asks_for(kind.name):
                continue
            contender = kind(context)
            unavailable = None
            say(f"preparing {kind.name}")
            try:
                # Also where it then cannot take part, since it may have made things by then.
                taking_part.append(contender)
                contender.prepare()
            except Unavailable as reason:
                unavailable = str(reason)
                say(f"  n/a: {unavailable}")
                taking_part.remove(contender)
                close(contender)
            told.append({"name": kind.name, "title": kind.title, "isolation": kind.isolation,
                         "note": kind.note, "has_pool": kind.has_pool, "unavailable": unavailable})
        if taking_part:
            for where, cells in matrix.measure(context.settings, taking_part, chosen):
                say(where)
    finally:
        for contender in taking_part:
            close(contender)
    return told, cells


def close(contender: Contender) -> None:
    """One that cannot be closed does not keep the others from it; the sweep at the end gets it."""
    try:
        contender.close()
    except Exception as error:
        say(f"{contender.name} could not be closed: {describe(error)}")


def taken(name: str, context: Context) -> dict:
    """A figure, or why there is none."""
    say(f"figure: {name}")
    try:
        return figures.ALL[name](context)
    except Unavailable as reason:
        say(f"  n/a: {reason}")
        return {"unavailable": str(reason)}
    except Exception as error:  # the other numbers are not to be lost
        say(f"  failed: {describe(error)}")
        return {"unavailable": f"failed: {describe(error)}"}


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

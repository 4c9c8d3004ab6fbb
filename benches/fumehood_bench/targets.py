"""The project's targets, judged as ratios of numbers from one run of the benchmark.

A target is reached, not reached, or unknown, where a number that it needs was not measured. Failed
runs of fumehood are never overlooked: a cell with one reaches nothing.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass

from .matrix import CLOSED, PACED


# How the runs of a contender start while its pool keeps up, and how many may have started otherwise.
FROM_THE_POOL = {"fumehood-warm": "warm", "fumehood-preloaded": "preloaded"}
MOST_FROM_ELSEWHERE = 0.01


@dataclass(frozen=True)
class Target:
    """One target and what became of it."""

    name: str
    wanted: str
    measured: str
    reached: bool | None
    basis: str

    def as_json(self) -> dict:
        return asdict(self)


class Unknown(Exception):
    """A number is missing; the text says which and why."""


class Failed(Exception):
    """Runs of fumehood failed, or were not what the target is about."""


class Numbers:
    """Reads the results document."""

    def __init__(self, document: dict):
        self.document = document

    def milliseconds(self, contender: str, program: str, mode: str, which: str, ours: bool = False) -> float:
        """A percentile at one client at a time."""
        for cell in self.document["cells"]:
            key = (cell["contender"], cell["program"], cell["mode"], cell["clients"])
            if key == (contender, program, mode, 1):
                if ours:
                    check(cell)
                if cell["milliseconds"] is not None:
                    return cell["milliseconds"][which]
        raise Unknown(self.why_not(contender) or f"{contender} was not measured with {program} ({mode})")

    def why_not(self, contender: str) -> str | None:
        for told in self.document["contenders"]:
            if told["name"] == contender and told["unavailable"]:
                return f"{contender}: {told['unavailable']}"
        return None

    def figure(self, name: str) -> dict:
        figure = self.document["figures"].get(name)
        if figure is None:
            raise Unknown(f"{name} was not measured")
        if "unavailable" in figure and isinstance(figure["unavailable"], str):
            raise Unknown(f"{name}: {figure['unavailable']}")
        return figure


def check(cell: dict) -> None:
    """Raises where a cell of fumehood is no basis for a target."""
    if cell["failures"]:
        raise Failed(f"{cell['failures']} runs of {cell['contender']} failed")
    wanted = FROM_THE_POOL.get(cell["contender"])
    starts = cell["served"]["start"]
    if cell["mode"] != PACED or wanted is None or not starts:
        return
    others = sum(count for start, count in starts.items() if start != wanted)
    if others > MOST_FROM_ELSEWHERE * sum(starts.values()):
        raise Failed(f"the pool did not keep up: {others} of {sum(starts.values())} runs were not {wanted}")


# What is measured, in words, and whether that is enough.
Verdict = tuple[str, bool]


def judge(document: dict) -> list[Target]:
    """Every target, in the order in which they are shown."""
    numbers = Numbers(document)
    targets = []
    for name, wanted, basis, verdict in TARGETS:
        try:
            measured, reached = verdict(numbers)
        except Unknown as reason:
            measured, reached = f"n/a: {reason}", None
        except Failed as reason:
            measured, reached = str(reason), False
        targets.append(Target(name, wanted, measured, reached, basis))
    return targets


def preloaded_against(reference: str, times: float) -> Callable[[Numbers], Verdict]:
    def verdict(numbers: Numbers) -> Verdict:
        theirs = numbers.milliseconds(reference, "train", CLOSED, "p50")
        ours = numbers.milliseconds("fumehood-preloaded", "train", PACED, "p50", ours=True)
        return f"1/{theirs / ours:.1f} ({ours:.1f} ms to {theirs:.0f} ms)", ours * times <= theirs
    return verdict


def share_of(ours: tuple[str, str], theirs: str, most: float) -> Callable[[Numbers], Verdict]:
    contender, mode = ours

    def verdict(numbers: Numbers) -> Verdict:
        reference = numbers.milliseconds(theirs, "hello", CLOSED, "p50")
        own = numbers.milliseconds(contender, "hello", mode, "p50", ours=True)
        return f"{own / reference:.2f} ({own:.1f} ms to {reference:.1f} ms)", own <= most * reference
    return verdict


def tail_of_warm(numbers: Numbers) -> Verdict:
    p50, p99 = (numbers.milliseconds("fumehood-warm", "hello", PACED, which, ours=True)
                for which in ("p50", "p99"))
    return f"{p99 / p50:.2f} ({p99:.1f} ms to {p50:.1f} ms)", p99 <= 3 * p50


def sustained(numbers: Numbers) -> Verdict:
    figure = numbers.figure("sustained")
    rates = figure["runs_per_second"]
    for name in ("engine-loop", "fumehood-warm"):
        if name not in rates:
            raise Unknown(f"{name}: {figure['unavailable'].get(name, 'not measured')}")
    if figure["failures"]["fumehood-warm"]:
        raise Failed(f"{figure['failures']['fumehood-warm']} runs of fumehood-warm failed")
    ours, theirs = rates["fumehood-warm"], rates["engine-loop"]
    return f"{ours / theirs:.2f} ({ours:.2f}/s to {theirs:.2f}/s)", ours >= 0.95 * theirs


def accepting(numbers: Numbers) -> Verdict:
    figure = numbers.figure("accepting")
    rate = figure["accepted_per_second"]
    lost = "" if figure["all_durable"] else ", but acknowledged runs are missing in the store"
    good = figure["all_durable"] and not figure["refused"] and not figure["socket_errors"]
    trouble = f", {figure['refused']} refused" if figure["refused"] else ""
    return f"{rate:.0f}/s{trouble}{lost}", rate >= 2000 and good


def idle_memory(numbers: Numbers) -> Verdict:
    idle = numbers.figure("memory")["idle_mib"]["rss"]
    return f"{idle:.1f} MiB", idle <= 40


def loaded_memory(numbers: Numbers) -> Verdict:
    figure = numbers.figure("memory")
    more = figure["loaded_mib"]["rss"] - figure["idle_mib"]["rss"]
    return f"{more:.1f} MiB more", more < 20


def hot_calls(numbers: Numbers) -> Verdict:
    calls = numbers.figure("hot-calls")["calls"]
    ratios = {name: stores["full"]["p50"] / stores["empty"]["p50"] for name, stores in calls.items()}
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return told, max(ratios.values()) <= 1.2


ONE = "p50 at one at a time"
# Name, what is wanted, what it is judged by, and the judgement.
TARGETS: tuple[tuple[str, str, str, Callable[[Numbers], Verdict]], ...] = (
    ("scikit-learn, preloaded, to bare subprocess", "≤ 1/60", f"{ONE}; ours while the pool keeps up",
     preloaded_against("bare-python", 60)),
    ("scikit-learn, preloaded, to `docker run --rm`", "≤ 1/70", f"{ONE}; ours while the pool keeps up",
     preloaded_against("docker-run", 70)),
    ("trivial, warm, to bare subprocess", "≤ 1.0", f"{ONE}; ours while the pool keeps up",
     share_of(("fumehood-warm", PACED), "bare-python", 1.0)),
    ("trivial, warm, p99 to p50", "≤ 3", "one at a time, while the pool keeps up", tail_of_warm),
    ("trivial, cold, to `docker run --rm`", "≤ 0.65", ONE,
     share_of(("fumehood-cold", CLOSED), "docker-run", 0.65)),
    ("sustained runs/s, warm, to raw engine loop", "≥ 0.95", "8 at a time, refilling included", sustained),
    ("accepting, each run durable", "≥ 2,000/s", "32 clients", accepting),
    ("daemon's memory, idle", "≤ 40 MiB", "resident set", idle_memory),
    ("… with 1,000 waiting and 8 floods", "< 20 MiB more", "resident set, highest seen", loaded_memory),
    ("hot calls, full store to empty store", "≤ 1.2", "p50 of each call", hot_calls),
)

"""Measuring every contender with every program at every number of clients, in turns.

Timings on a shared or virtual host drift. So the runs of a cell are spread over rounds, and in each
round every contender has a block; who begins changes from round to round.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from .contenders import Contender
from .load import Block, closed_loop, paced
from .percentiles import milliseconds, summary
from .programs import Program
from .settings import Settings

CLOSED = "closed"
PACED = "paced"

# Blocks shorter than this many runs for each client would hardly ever have all clients at work.
LEAST_RUNS_PER_CLIENT = 2


@dataclass
class Cell:
    """One contender with one program in one mode."""

    contender: str
    program: str
    mode: str
    clients: int
    seconds: list[float] = field(default_factory=list)
    errors: Counter = field(default_factory=Counter)
    starts: Counter = field(default_factory=Counter)
    dataset_mounts: Counter = field(default_factory=Counter)
    wall_seconds: float = 0.0

    def add(self, block: Block) -> None:
        self.wall_seconds += block.wall_seconds
        for sample in block.samples:
            if sample.error is not None:
                self.errors[sample.error] += 1
                continue
            self.seconds.append(sample.seconds)
            if sample.served:
                self.starts[str(sample.served.get("start"))] += 1
                self.dataset_mounts[str(sample.served.get("dataset_mount"))] += 1

    def as_json(self) -> dict:
        rate = len(self.seconds) / self.wall_seconds if self.wall_seconds else None
        return {
            "contender": self.contender,
            "program": self.program,
            "mode": self.mode,
            "clients": self.clients,
            "runs": len(self.seconds),
            "failures": self.errors.total(),
            "errors": dict(self.errors),
            "milliseconds": summary(self.seconds),
            "runs_per_second": rate and round(rate, 3) if self.mode == CLOSED else None,
            "served": {"start": dict(self.starts), "dataset_mount": dict(self.dataset_mounts)},
            "samples": [milliseconds(seconds) for seconds in self.seconds],
        }


@dataclass(frozen=True)
class Rounds:
    """How the runs of a cell are spread."""

    count: int
    block: int


def rounds_of(settings: Settings, clients: int) -> Rounds:
    """At least the runs asked for, in as many rounds as blocks of a sensible length allow."""
    block = max(math.ceil(settings.runs / settings.rounds), LEAST_RUNS_PER_CLIENT * clients)
    return Rounds(math.ceil(settings.runs / block), block)


def in_turn(contenders: list[Contender], number: int) -> list[Contender]:
    """The contenders of a round: each time another one begins."""
    first = number % len(contenders)
    return contenders[first:] + contenders[:first]


def measure(
    settings: Settings, contenders: list[Contender], programs: list[Program]
) -> Iterator[tuple[str, list[Cell]]]:
    """Gives what it is about to do, and all cells so far, before each round."""
    cells: dict[tuple, Cell] = {}

    def cell(contender: Contender, program: Program, mode: str, clients: int) -> Cell:
        key = (contender.name, program.name, mode, clients)
        return cells.setdefault(key, Cell(*key))

    for program in programs:
        for clients in settings.clients:
            rounds = rounds_of(settings, clients)
            for number in range(rounds.count):
                where = f"{program.name}, {clients} at a time, round {number + 1} of {rounds.count}"
                yield where, list(cells.values())
                for contender in in_turn(contenders, number):
                    if number == 0:
                        warm_up(contender, program, clients, settings.warm_ups)
                    attempt, judge = calls(contender, program)
                    block = closed_loop(attempt, judge, clients, rounds.block)
                    cell(contender, program, CLOSED, clients).add(block)
                    settle(contender)
                    if contender.has_pool and clients == min(settings.clients):
                        block = paced(attempt, judge, rounds.block, lambda its=contender: settle(its))
                        cell(contender, program, PACED, 1).add(block)
                        settle(contender)
    yield "done", list(cells.values())


def warm_up(contender: Contender, program: Program, clients: int, each: int) -> None:
    """Runs that are dropped; whatever is made once is made by then."""
    attempt, judge = calls(contender, program)
    closed_loop(attempt, judge, clients, max(each, clients))
    settle(contender)


def settle(contender: Contender) -> None:
    """Lets it recover, so that it costs the next one nothing. If it cannot, its runs will tell."""
    with suppress(Exception):
        contender.settle()


def calls(contender: Contender, program: Program) -> tuple:
    return (
        lambda: contender.run(program),
        lambda outcome: contender.judge(program, outcome),
    )

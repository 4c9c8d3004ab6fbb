"""Generating load and timing it: a closed loop of clients, and a paced one that waits between runs.

What is timed is one call of `attempt`, whatever the contender; judging and deleting what the run
left happens after the clock has stopped.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Makes one run and gives what it left; raises if it failed.
Attempt = Callable[[], object]
# Judges what a run left and removes it; gives how it was served, raises if something is missing.
Judge = Callable[[object], dict | None]


# Contenders bound their runs themselves. Where that fails and nothing ends for so long, the block is
# given up, and the runs that still go on have failed.
STALL_SECONDS = 240.0


@dataclass
class Sample:
    """One run."""

    seconds: float
    error: str | None = None
    served: dict | None = None


@dataclass
class Block:
    """Runs that were made in one go."""

    samples: list[Sample] = field(default_factory=list)
    wall_seconds: float = 0.0


def timed(attempt: Attempt, judge: Judge) -> Sample:
    """One run, timed, then judged."""
    begin = time.perf_counter()
    try:
        outcome = attempt()
        seconds = time.perf_counter() - begin
    except Exception as error:  # whatever a contender raises is a failed run of it
        return Sample(time.perf_counter() - begin, error=describe(error))
    try:
        return Sample(seconds, served=judge(outcome))
    except Exception as error:
        return Sample(seconds, error=describe(error))


def closed_loop(attempt: Attempt, judge: Judge, clients: int, runs: int, lead_in: int = 0) -> Block:
    """`clients` at a time, each starting its next run when the last has ended.

    The first `lead_in` runs are made and left out, and the wall clock starts with the last of
    them: a pool that was full at the start is then empty, and gives nothing away for free.
    """
    loop = _ClosedLoop(attempt, judge, clients, runs, lead_in)
    return loop.run()


def paced(attempt: Attempt, judge: Judge, runs: int, until_ready: Callable[[], None]) -> Block:
    """One at a time, each only when the contender has recovered from the last."""
    block = Block()
    for _ in range(runs):
        until_ready()
        sample = timed(attempt, judge)
        block.samples.append(sample)
        block.wall_seconds += sample.seconds
    return block


class _ClosedLoop:
    def __init__(self, attempt: Attempt, judge: Judge, clients: int, runs: int, lead_in: int):
        self.attempt = attempt
        self.judge = judge
        self.clients = clients
        self.total = lead_in + runs
        self.lead_in = lead_in
        self.lock = threading.Lock()
        self.started = 0
        self.ended = 0
        self.stopped = False
        self.window_begin = time.perf_counter()
        self.last_end = time.perf_counter()
        self.block = Block()

    def run(self) -> Block:
        threads = [threading.Thread(target=self.client, daemon=True)
                   for _ in range(min(self.clients, self.total))]
        self.window_begin = time.perf_counter()
        try:
            for thread in threads:
                thread.start()
            self.await_clients(threads)
        finally:
            # On Ctrl-C the runs going on end, and no further one starts.
            self.stopped = True
        self.block.wall_seconds = time.perf_counter() - self.window_begin
        return self.block

    def await_clients(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
                with self.lock:
                    if time.perf_counter() - self.last_end < STALL_SECONDS:
                        continue
                    hung = Sample(STALL_SECONDS, error=f"no run ended within {STALL_SECONDS:.0f} s")
                    self.block.samples += [hung] * (self.started - self.ended)
                    return

    def client(self) -> None:
        while (number := self.ticket()) is not None:
            sample = timed(self.attempt, self.judge)
            with self.lock:
                self.ended += 1
                self.last_end = time.perf_counter()
                if self.stopped:
                    return
                if number >= self.lead_in:
                    self.block.samples.append(sample)
                if self.ended == self.lead_in:
                    self.window_begin = time.perf_counter()

    def ticket(self) -> int | None:
        with self.lock:
            if self.stopped or self.started == self.total:
                return None
            self.started += 1
            return self.started - 1


def describe(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1][:200]}" if text else type(error).__name__

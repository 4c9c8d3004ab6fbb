"""Runs per second that last: fumehood with its pool beside the raw engine loop, in turns.

A pool that was filled beforehand gives its first runs away cheaply. So each block begins with more
runs than the pool holds, which are left out, and what refilling costs is in the number.
"""

from ..contenders import Contender, Context, Unavailable
from ..contenders.engine_loop import EngineLoop
from ..contenders.fumehood import FumehoodCold, FumehoodWarm
from ..load import closed_loop
from ..matrix import calls, in_turn
from ..programs import load

CLIENTS = 8
ROUNDS = 3
CONTENDERS: tuple[type[Contender], ...] = (EngineLoop, FumehoodCold, FumehoodWarm)


def measure(context: Context) -> dict:
    settings = context.settings
    rounds = 1 if settings.quick else ROUNDS
    program = load(context.places.repository / "benches" / "programs", context.places.work, ("hello",))[0]
    result: dict = {"clients": CLIENTS, "program": program.name, "unavailable": {}}
    taking_part: list[Contender] = []
    try:
        for kind in CONTENDERS:
            contender = kind(context)
            try:
                contender.prepare()
                taking_part.append(contender)
            except Unavailable as reason:
                result["unavailable"][kind.name] = str(reason)
        totals = {contender.name: [0, 0.0, 0] for contender in taking_part}
        for number in range(rounds):
            for contender in in_turn(taking_part, number):
                attempt, judge = calls(contender, program)
                block = closed_loop(attempt, judge, CLIENTS, settings.runs, lead_in=2 * settings.pool_size)
                total = totals[contender.name]
                total[0] += sum(sample.error is None for sample in block.samples)
                total[1] += block.wall_seconds
                total[2] += sum(sample.error is not None for sample in block.samples)
                contender.settle()
    finally:
        for contender in taking_part:
            contender.close()
    result["runs_per_second"] = {name: round(runs / wall, 3) for name, (runs, wall, _) in totals.items()}
    result["runs"] = {name: runs for name, (runs, _, _) in totals.items()}
    result["failures"] = {name: failed for name, (_, _, failed) in totals.items()}
    return result

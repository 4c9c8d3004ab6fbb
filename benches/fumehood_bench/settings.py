"""What a benchmark run is asked to do: its arguments, and nothing that it finds out itself."""

import argparse
from dataclasses import asdict, dataclass, field
from pathlib import Path

CONTENDERS = (
    "bare-python",
    "docker-run",
    "docker-exec",
    "engine-loop",
    "llm-sandbox",
    "llm-sandbox-pool",
    "fumehood-cold",
    "fumehood-warm",
    "fumehood-preloaded",
)
FIGURES = ("sustained", "accepting", "memory", "hot-calls")

DEFAULT_RUNS = 100
QUICK_RUNS = 10
# What a generated program for tables imports; the interpreter that waits has them imported.
DEFAULT_PRELOAD = (
    "numpy",
    "pandas",
    # What pandas itself imports only when it writes the first CSV.
    "pandas.io.formats.csvs",
    "sklearn",
    "sklearn.linear_model",
    "sklearn.metrics",
    "sklearn.model_selection",
    "sklearn.tree",
)


@dataclass(frozen=True)
class Limits:
    """What each program may use; every contender that can limit it gets the same."""

    memory_mb: int = 2048
    cpus: float = 1.0
    processes: int = 256
    workspace_mb: int = 1024
    temporary_mb: int = 256
    # Half the usual weight against everything else on a busy host, as fumehood gives it.
    cpu_shares: int = 512


@dataclass(frozen=True)
class Settings:
    """Everything that can be chosen; written into the results as it is."""

    runs: int = DEFAULT_RUNS
    rounds: int = 5
    warm_ups: int = 2
    clients: tuple[int, ...] = (1, 8, 32)
    programs: tuple[str, ...] = ("hello", "train")
    only: tuple[str, ...] = ()
    pool_size: int = 8
    preload: tuple[str, ...] = DEFAULT_PRELOAD
    refill_seconds: float = 3.0
    concurrent_runs: int = 8
    daemon_settings: tuple[str, ...] = ()
    accepting_seconds: int = 10
    flood_seconds: int = 15
    stored_runs: int = 100_000
    hot_calls: int = 500
    quick: bool = False
    limits: Limits = field(default_factory=Limits)

    def asks_for(self, name: str) -> bool:
        """Whether a contender or figure of this name is to be measured."""
        return not self.only or name in self.only

    def as_json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Places:
    """Where things are; never written into the results, since paths say where somebody works."""

    repository: Path
    work: Path
    results: Path
    daemon: Path
    bare_python: Path


def parse(arguments: list[str] | None = None) -> tuple[Settings, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        prog="benches/run.sh",
        description="Measures fumehood beside other ways to run a Python program, on one host, "
        "engine and image, and writes benches/results/.",
        epilog="Contenders: " + ", ".join(CONTENDERS) + ". Figures: " + ", ".join(FIGURES) + ".",
    )
    add = parser.add_argument
    # Only run.sh installs anything; it is here for --help.
    add("--yes", action="store_true", help="agree to every installation")
    add("--quick", action="store_true", help=f"a short form: {QUICK_RUNS} runs, small figures")
    add("--runs", type=positive, help=f"runs of each cell at least [{DEFAULT_RUNS}]")
    add("--rounds", type=positive, help="blocks that the runs of a cell are spread over [5]")
    add("--clients", type=counts, help="requests at a time, with commas [1,8,32]")
    add("--programs", type=words, help="of hello,train [both]")
    add("--only", type=words, default=(), help="contenders and figures, with commas [all]")
    add("--pool-size", type=positive, help="fumehood's pool.size where it has a pool [8]")
    add("--preload", type=words, help="modules of the preloaded contender, with commas")
    add("--refill-seconds", type=float, help="pause for a pool that does not tell whether it is full [3]")
    add("--concurrent-runs", type=positive, help="fumehood's app.max_concurrent_runs [8]")
    add("--daemon-setting", action="append", default=[], metavar="SECTION.KEY=VALUE",
        help="a further setting of the fumehood daemons; pool.… goes to those with a pool only")
    add("--stored-runs", type=positive, help="finished runs of the full store [100000]")
    add("--results", type=Path, help="directory of the results [benches/results]")
    # run.sh knows these.
    add("--daemon", type=Path, required=True, help=argparse.SUPPRESS)
    add("--bare-python", type=Path, required=True, help=argparse.SUPPRESS)
    add("--work", type=Path, required=True, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)

    for name in given.only:
        if name not in CONTENDERS + FIGURES:
            parser.error(f"--only: {name} is none of {', '.join(CONTENDERS + FIGURES)}")
    for setting in given.daemon_setting:
        section, _, rest = setting.partition(".")
        if not (section and "=" in rest):
            parser.error(f"--daemon-setting: {setting} is not SECTION.KEY=VALUE")
    return chosen(given), given


def chosen(given: argparse.Namespace) -> Settings:
    values: dict = {"only": given.only, "daemon_settings": tuple(given.daemon_setting)}
    if given.quick:
        values |= {
            "quick": True,
            "runs": QUICK_RUNS,
            "rounds": 2,
            "warm_ups": 1,
            "clients": (1, 8),
            "accepting_seconds": 3,
            "flood_seconds": 5,
            "stored_runs": 5_000,
            "hot_calls": 60,
        }
    for name in ("runs", "rounds", "clients", "programs", "pool_size", "preload",
                 "refill_seconds", "concurrent_runs", "stored_runs"):
        if getattr(given, name) is not None:
            values[name] = getattr(given, name)
    return Settings(**values)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be at least 1")
    return number


def counts(text: str) -> tuple[int, ...]:
    return tuple(positive(part) for part in text.split(","))


def words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())

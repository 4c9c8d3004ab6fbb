"""The programs that every contender runs, the data set they read, and what a good run leaves."""

import random
from dataclasses import dataclass
from pathlib import Path

ROWS = 150
FEATURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
# Means of three classes; close enough to each other that a model has something to learn.
CENTRES = ((5.0, 3.4, 1.5, 0.2), (5.9, 2.8, 4.3, 1.3), (6.6, 3.0, 5.6, 2.0))
SPREAD = 0.6

# The environment that fumehood gives to a program, so far as it decides how fast it is.
THREADS = {name: "1" for name in (
    "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
ENVIRONMENT = {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"} | THREADS


class Incomplete(Exception):
    """A run ended without what it should have left."""


@dataclass(frozen=True)
class Outcome:
    """What a run left. None is what the contender cannot tell."""

    stdout: str | None
    artifacts: Path | None
    served: dict | None = None


@dataclass(frozen=True)
class Program:
    """A program and what it needs and leaves."""

    name: str
    title: str
    code: str
    output: str
    dataset: Path | None = None
    artifacts: tuple[str, ...] = ()

    def check(self, outcome: Outcome) -> None:
        """Raises where something is missing: a run without its results is not a fast run."""
        if outcome.stdout is not None and not outcome.stdout.startswith(self.output):
            raise Incomplete(f"standard output is {outcome.stdout[:80]!r}")
        if not self.artifacts:
            return
        if outcome.artifacts is None:
            raise Incomplete("there are no artifacts")
        for name in self.artifacts:
            path = outcome.artifacts / name
            if not (path.is_file() and path.stat().st_size > 0):
                raise Incomplete(f"artifact {name} is missing or empty")


def load(sources: Path, work: Path, names: tuple[str, ...]) -> list[Program]:
    """The programs of these names; makes the data set."""
    dataset = work / "dataset"
    write_dataset(dataset)
    known = {
        "hello": Program(
            name="hello",
            title='`print("hello")`',
            code=(sources / "hello.py").read_text(),
            output="hello\n",
        ),
        "train": Program(
            name="train",
            title="pandas and scikit-learn",
            code=(sources / "train.py").read_text(),
            output="accuracy ",
            dataset=dataset,
            artifacts=("predictions.csv", "summary.json", "model.pkl"),
        ),
    }
    return [known[name] for name in names]


def write_dataset(directory: Path) -> None:
    """The same file every time."""
    numbers = random.Random(0)
    directory.mkdir(parents=True, exist_ok=True)
    lines = [",".join((*FEATURES, "target"))]
    for row in range(ROWS):
        target = row % len(CENTRES)
        values = (numbers.gauss(centre, SPREAD) for centre in CENTRES[target])
        lines.append(",".join([*(f"{value:.2f}" for value in values), str(target)]))
    (directory / "train.csv").write_text("\n".join(lines) + "\n")
    # Readable for whatever user a contender gives to its programs.
    directory.chmod(0o755)
    (directory / "train.csv").chmod(0o644)

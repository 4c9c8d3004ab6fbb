"""What a contender has to be able to do, and what several of them share."""

import itertools
import os
import shutil
from pathlib import Path

from ..engine import Engine
from ..programs import ENVIRONMENT, Outcome, Program
from ..settings import Places, Settings

# A run that takes longer has failed.
RUN_TIMEOUT = 150.0

# Not root, and none of the uids that the daemons give to their sandboxes.
UID = 50_250

# Whose containers these are, so that they can be found and removed however the benchmark ends.
LABEL = "fumehood.bench"


class Unavailable(Exception):
    """A contender cannot take part here; the text is the reason that is shown."""


class Context:
    """What contenders and figures share in one run of the benchmark."""

    def __init__(self, settings: Settings, places: Places, engine: Engine):
        self.settings = settings
        self.places = places
        self.engine = engine
        # The image of all contenders: its name, and the digest that it is used by.
        self.image_name = ""
        self.image = ""
        self.label = f"{LABEL}={os.getpid()}"
        self.numbers = itertools.count()

    def output_directory(self) -> Path:
        """A new directory that any user may write to."""
        path = self.places.work / "outputs" / str(next(self.numbers))
        path.mkdir(parents=True)
        path.chmod(0o777)
        return path


class Contender:
    """One way to run a program. Subclasses say in `isolation` what separates two runs."""

    name = ""
    title = ""
    isolation = ""
    note = ""
    # Whether it gets ready for the next run by itself, so that a pause between runs matters.
    has_pool = False

    def __init__(self, context: Context):
        self.context = context

    def prepare(self) -> None:
        """Makes everything that is made once. Raises `Unavailable`."""

    def run(self, program: Program) -> Outcome:
        """One run from nothing to its results on this host. This is what is timed."""
        raise NotImplementedError

    def settle(self) -> None:
        """Waits until it is as it was before it ran anything."""

    def discard(self, outcome: Outcome) -> None:
        """Removes what a run left."""
        if outcome.artifacts is not None:
            shutil.rmtree(outcome.artifacts, ignore_errors=True)

    def close(self) -> None:
        """Removes everything that `prepare` made."""

    def judge(self, program: Program, outcome: Outcome) -> dict | None:
        """Checks and removes what a run left; gives how it was served."""
        try:
            program.check(outcome)
        finally:
            self.discard(outcome)
        return outcome.served


def environment(dataset: str, output: str) -> dict[str, str]:
    """A program's variables, given where its data set and its output directory are."""
    return ENVIRONMENT | {"FUMEHOOD_DATASET": dataset, "FUMEHOOD_OUTPUT": output}

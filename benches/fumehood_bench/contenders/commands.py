"""Running a command of the host, bounded, with its output."""

import subprocess

from .base import RUN_TIMEOUT


class CommandFailed(Exception):
    """A command ended with another exit code than 0."""


def output_of(command: list[str], timeout: float = RUN_TIMEOUT, **options: object) -> str:
    """What it wrote to standard output."""
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=timeout, check=False, **options)
    if ended.returncode != 0:
        last = ended.stderr.strip().splitlines()[-1:]
        raise CommandFailed(f"{command[0]} ended with {ended.returncode}: {' '.join(last)[:200]}")
    return ended.stdout

"""The structure of the package."""

from __future__ import annotations

from pathlib import Path

# Longer files have more than one reason to change.
MAX_LINES = 300


def test_files_are_short() -> None:
    package = Path(__file__).parents[1]
    files = [*package.glob("src/**/*.py"), *package.glob("tests/*.py")]
    assert len(files) > 20
    long = [path for path in files if len(path.read_text().splitlines()) > MAX_LINES]
    assert long == []

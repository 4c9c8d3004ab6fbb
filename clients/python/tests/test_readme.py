"""What the README shows does work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fumehood import PythonRunner

if TYPE_CHECKING:
    from support_daemon import Daemon

_README = Path(__file__).parents[1] / "README.md"
_PROGRAMS = re.findall(r"```python\n(.*?)```", _README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("program", _PROGRAMS)
def test_programs_of_the_readme_run(
    program: str, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (daemon.directory / "data" / "wine").mkdir(exist_ok=True)
    monkeypatch.setenv("FUMEHOOD_URL", daemon.url)
    monkeypatch.chdir(daemon.directory)
    names: dict[str, object] = {}
    exec(program, names)
    assert getattr(names["result"], "status") in {"SUCCESS", "INVALID_OUTPUT"}  # noqa: B009
    runner = names.get("runner")
    if isinstance(runner, PythonRunner):
        runner.close()


def test_there_are_programs_in_the_readme() -> None:
    assert len(_PROGRAMS) == 2

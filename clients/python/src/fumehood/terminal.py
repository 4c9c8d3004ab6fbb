"""Showing live output where people look."""

from __future__ import annotations

import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood._events import Output

_KEPT = "\n\t\r"


def echo(output: Output) -> None:
    """Writes a piece of output to this process's stream of the same name, for ``on_output``.

    A terminal obeys what it is shown, so it is not shown control characters of a program; a file
    or a pipe gets the text as it is.
    """
    stream = sys.stderr if output.stream == "stderr" else sys.stdout
    text = harmless(output.text) if stream.isatty() else output.text
    stream.write(text)
    stream.flush()


def harmless(text: str) -> str:
    """The text with U+FFFD for what could change a terminal, tabs and line ends aside."""
    return "".join(
        character if character in _KEPT or unicodedata.category(character) != "Cc" else "\ufffd"
        for character in text
    )

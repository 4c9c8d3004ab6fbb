"""Server-sent events: bytes in pieces of any size become events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fumehood.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LONGEST_EVENT = 4 << 20

ENDED = frozenset({"SUCCESS", "FAIL", "CANCELLED"})


@dataclass(frozen=True)
class Output:
    """A piece of what a program writes while it runs.

    Attributes:
        stream: ``"stdout"`` or ``"stderr"``.
        text: As it was written; bytes that are no UTF-8 are U+FFFD.
    """

    stream: str
    text: str


@dataclass(frozen=True)
class Event:
    """Something that happened in a run.

    Attributes:
        kind: ``status``, ``execution_started``, ``output``, ``execution_ended``, or ``gap`` where
            earlier events are no longer kept by the daemon.
        data: What the daemon says about it.
        id: What a reader names to go on after it; ``None`` for some. Its form is the daemon's.
    """

    kind: str
    data: Mapping[str, Any]
    id: str | None = None

    @property
    def output(self) -> Output | None:
        """What a program wrote, if that is what happened."""
        if self.kind != "output":
            return None
        return Output(str(self.data.get("stream")), str(self.data.get("text", "")))

    @property
    def is_last(self) -> bool:
        """Whether the run is over with it."""
        return self.kind == "status" and self.data.get("status") in ENDED


class EventDecoder:
    """Decodes one stream.

    Lines end with a line feed only: text in the data may hold every other character that some
    libraries take for a line's end (U+2028, U+0085, form feeds).
    """

    def __init__(self) -> None:
        self._rest = b""
        self._id: str | None = None
        self._kind = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are complete with this piece.

        Raises:
            UnavailableError: What arrives is no stream of events of fumehood.
        """
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            event = self._line(line.removesuffix(b"\r"))
            if event is not None:
                yield event
        if len(self._rest) + sum(map(len, self._data)) > _LONGEST_EVENT:
            raise _nonsense("an event without end")

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._complete()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            self._id = value.decode("ascii", "replace")
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)
        return None

    def _complete(self) -> Event | None:
        number, kind, text = self._id, self._kind, b"\n".join(self._data)
        self._id, self._kind, self._data = None, "", []
        if not text:
            return None
        try:
            data = json.loads(text)
        except ValueError:
            raise _nonsense("data that is no JSON") from None
        return Event(kind or "message", data if isinstance(data, dict) else {}, number)


def _nonsense(what: str) -> UnavailableError:
    return UnavailableError(
        f"The stream of events has {what}.",
        "Check that FUMEHOOD_URL is the daemon's address, without something in between.",
        status=200,
    )

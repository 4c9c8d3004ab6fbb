"""The decoder of server-sent events, and when a failed exchange is tried again."""

from __future__ import annotations

import json

import pytest

from fumehood import (
    ConflictError,
    FumehoodError,
    QuotaExceededError,
    RetryPolicy,
    TransportError,
    UnavailableError,
)
from fumehood._events import Event, EventDecoder
from fumehood.terminal import harmless

_DATA = {"stream": "stdout", "text": "a\u2028b\x85c\x0b\x0c\x1cd \u00e9\n"}
_STREAM = (
    b': still here\n\nid: 7\nevent: output\ndata: {"stream":"stdout","text":'
    + json.dumps(_DATA["text"], ensure_ascii=False).encode()
    + b'}\n\nevent: gap\r\ndata: {}\r\n\r\nid: 8\nevent: status\ndata: {"status":"SUCCESS"}\n\n'
)
_EVENTS = [
    Event("output", _DATA, "7"),
    Event("gap", {}),
    Event("status", {"status": "SUCCESS"}, "8"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
def test_events_come_whole_from_pieces_of_any_size(size: int) -> None:
    decoder = EventDecoder()
    pieces = [_STREAM[start : start + size] for start in range(0, len(_STREAM), size)]
    events = [event for piece in pieces for event in decoder.feed(piece)]
    assert events == _EVENTS
    assert [event.is_last for event in events] == [False, False, True]


def test_an_event_that_is_cut_off_is_none() -> None:
    begin = _STREAM.index(b"event: gap")
    assert list(EventDecoder().feed(_STREAM[: begin - 1])) == []


@pytest.mark.parametrize(
    "piece", [b"x" * (5 << 20), b"data: {\n\n", (b"data: %s\n" % bytes(1 << 20)) * 5]
)
def test_what_is_no_stream_of_events_is_refused(piece: bytes) -> None:
    with pytest.raises(UnavailableError, match="stream of events"):
        list(EventDecoder().feed(piece))


def test_what_may_pass_is_tried_again_later_and_later() -> None:
    policy = RetryPolicy(attempts=4, first_delay=1.0, longest_delay=3.0)
    delays = [policy.delay(TransportError("x"), failures) for failures in (1, 2, 3)]
    for delay, longest in zip(delays, (1.0, 2.0, 3.0)):
        assert 0.75 * longest <= delay <= longest
    with pytest.raises(TransportError):
        policy.delay(TransportError("x"), 4)
    asked = QuotaExceededError("x", status=429, retry_after=2.5)
    assert policy.delay(asked, 1) == 2.5


@pytest.mark.parametrize(
    "failure",
    [
        ConflictError("x", status=409),
        QuotaExceededError("x", status=429, retry_after=3600),
        UnavailableError("x", status=500),
    ],
)
def test_what_does_not_pass_is_raised_at_once(failure: FumehoodError) -> None:
    with pytest.raises(type(failure)):
        RetryPolicy().delay(failure, 1)


def test_a_terminal_is_not_spoken_to() -> None:
    assert harmless("a\x1b[31m\x07\tb\x9b\n") == "a\ufffd[31m\ufffd\tb\ufffd\n"

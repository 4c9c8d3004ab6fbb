"""Following a run's events over connections that may break."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx

from fumehood._events import Event, EventDecoder
from fumehood._plans import path_of
from fumehood.errors import FumehoodError, TransportError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fumehood._retry import RetryPolicy

# The daemon says that it is there every 15 seconds.
_LONGEST_SILENCE = 45.0

_SHORTEST_PATIENCE = 0.1


class Follower:
    """Where a reader is in a run's events, from one connection to the next."""

    def __init__(
        self,
        run_id: str,
        last_event_id: str | None,
        policy: RetryPolicy,
        deadline: float | None = None,
    ) -> None:
        self._run_id = run_id
        self._last_id = last_event_id
        self._policy = policy
        self._deadline = deadline
        self._failures = 0
        self._decoder = EventDecoder()
        self.is_over = False

    def request(self, timeout: float) -> dict[str, Any]:
        """Httpx's arguments to ask for what comes after the last event that arrived."""
        self._decoder = EventDecoder()
        headers = {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        silence = max(_SHORTEST_PATIENCE, min(_LONGEST_SILENCE, self._left()))
        return {
            "method": "GET",
            "url": path_of(self._run_id, "/events"),
            "headers": headers,
            "timeout": httpx.Timeout(timeout, read=silence),
        }

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are complete with this piece.

        Raises:
            WaitTimeoutError: The deadline has passed.
        """
        for event in self._decoder.feed(piece):
            self._failures = 0
            if event.id is not None:
                self._last_id = event.id
            self.is_over = self.is_over or event.is_last
            yield event
        self._check_deadline()

    def broken(self, failure: FumehoodError | None = None) -> float:
        """Seconds to wait before the next connection; ``None``: the last one just ended.

        Raises:
            FumehoodError: ``failure``, if there is no point in another one.
            WaitTimeoutError: The deadline has passed.
        """
        self._check_deadline()
        if self.is_over:
            return 0.0
        self._failures += 1
        ended = TransportError("The stream of events ended before the run.")
        return min(self._policy.delay(failure or ended, self._failures), max(0.0, self._left()))

    def _left(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - time.monotonic()

    def _check_deadline(self) -> None:
        if not self.is_over and self._left() <= 0:
            raise WaitTimeoutError(
                f"The run {self._run_id} has not ended.",
                "Give wait_seconds more time, or the program a smaller timeout_seconds.",
            )

"""What to exchange with the daemon, without a socket: the same for both clients.

A plan yields steps and is sent the answers; a connection that failed is thrown into it as
:class:`fumehood.TransportError`.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union
from urllib.parse import quote, urlencode

from fumehood._answers import Answer
from fumehood._events import ENDED
from fumehood._request import Request, Submission
from fumehood._retry import RetryPolicy
from fumehood.errors import (
    ApiError,
    FumehoodError,
    RunFailedError,
    TransportError,
    UnavailableError,
    WaitTimeoutError,
)
from fumehood.models import Artifact, Result, Run

if TYPE_CHECKING:
    from collections.abc import Callable

# Shorter than what proxies wait for an answer.
_LONGEST_WAIT = 50

_PAUSE_WITHOUT_WAIT = 1.0

# Whoever withdraws a run wants to be gone.
_WITHDRAWAL = RetryPolicy(attempts=3, longest_delay=1.0)


@dataclass(frozen=True)
class Sleep:
    """Let time pass; nothing is sent back."""

    seconds: float


T = TypeVar("T")
V = TypeVar("V")
Plan = Generator[Union[Request, Sleep], Optional[Answer], T]


def exchange(request: Request, policy: RetryPolicy) -> Plan[Answer]:
    """One request, repeated as the policy has it."""
    failures = 0
    while True:
        failure: FumehoodError
        try:
            answer = yield request
        except TransportError as error:
            failure = error
        else:
            if answer is None:
                raise TypeError("a request was not answered")
            if not answer.is_error:
                return answer
            failure = answer.error()
        failures += 1
        yield Sleep(policy.delay(failure, failures))


def document(path: str, policy: RetryPolicy) -> Plan[dict[str, Any]]:
    """``GET`` of a JSON object."""
    answer = yield from exchange(Request("GET", path), policy)
    return answer.document()


def _read(reader: Callable[[dict[str, Any]], V], found: dict[str, Any]) -> V:
    try:
        return reader(found)
    except (KeyError, TypeError, AttributeError) as error:
        raise UnavailableError(
            f"The answer is not one of fumehood: {error!r}",
            "Check that FUMEHOOD_URL is the daemon's address, and that the daemon is not older.",
            status=200,
        ) from error


def path_of(run_id: str, part: str = "") -> str:
    """The path of a run, whatever its id holds."""
    return f"/runs/{quote(run_id, safe='')}{part}"


def run(run_id: str, policy: RetryPolicy) -> Plan[Run]:
    """A run as it is now."""
    return _read(Run.read, (yield from document(path_of(run_id), policy)))


def page(
    status: str | None, limit: int, cursor: str | None, policy: RetryPolicy
) -> Plan[tuple[list[Run], str | None]]:
    """A page of runs, newest first, and where the next one begins."""
    wanted = {"limit": str(limit), "status": status, "cursor": cursor}
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    found = yield from document(f"/runs?{query}", policy)
    return _read(lambda one: ([Run.read(run) for run in one["runs"]], one["next_cursor"]), found)


def artifacts(run_id: str, policy: RetryPolicy) -> Plan[list[Artifact]]:
    """What a run left."""
    found = yield from document(path_of(run_id, "/artifacts"), policy)
    return _read(lambda one: [Artifact.read(artifact) for artifact in one["artifacts"]], found)


def submit(submission: Submission, policy: RetryPolicy) -> Plan[Submission]:
    """The submission with the id of its run."""
    answer = yield from exchange(submission.request(), policy)
    return _read(lambda one: replace(submission, run_id=one["run_id"]), answer.document())


def cancel(run_id: str, policy: RetryPolicy) -> Plan[Run]:
    """Ends a run; one that has ended stays as it is."""
    answer: Answer | None = None
    try:
        answer = yield from exchange(Request("POST", path_of(run_id, "/cancel")), policy)
    except FumehoodError as error:
        if getattr(error, "status", None) != 409:  # noqa: PLR2004
            raise
    if answer is None:
        return (yield from run(run_id, policy))
    return _read(Run.read, answer.document())


def is_to_be_withdrawn(submission: Submission, error: BaseException) -> bool:
    """Whether a call that ends with ``error`` may leave a run behind that nobody waits for."""
    if isinstance(error, RunFailedError):
        return False
    return bool(submission.run_id) or not isinstance(error, ApiError)


def withdraw(submission: Submission) -> Plan[None]:
    """Ends a run of which perhaps nobody knows whether it was accepted."""
    if not submission.run_id:
        submission = yield from submit(submission, _WITHDRAWAL)
    yield from cancel(submission.run_id, _WITHDRAWAL)


def deadline(wait_seconds: float | None) -> float | None:
    """When a caller's patience ends, on the clock of ``time.monotonic``."""
    return None if wait_seconds is None else time.monotonic() + wait_seconds


def result(submission: Submission, until: float | None, policy: RetryPolicy) -> Plan[Result]:
    """What the last execution of the run comes to, once the run has ended.

    The interface gives the whole result only to who waits for a submission: the same request again.
    """
    while True:
        left = _LONGEST_WAIT if until is None else int(until - time.monotonic() + 0.5)
        wait = max(0, min(_LONGEST_WAIT, left))
        answer = yield from exchange(submission.request(wait), policy)
        found = answer.document()
        # Where many wait already, the daemon answers at once and without a result.
        was_granted = "result" in found
        if was_granted and found.get("status") in ENDED:
            ended = _read(Run.read, found)
            if found["result"] is None:
                raise RunFailedError(ended, None)
            return _read(partial(Result.read, ended), found["result"])
        if until is not None and time.monotonic() >= until:
            raise WaitTimeoutError(
                f"The run {submission.run_id} is still {found.get('status')}.",
                "Give wait_seconds more time, or the program a smaller timeout_seconds.",
            )
        if not was_granted:
            yield Sleep(_PAUSE_WITHOUT_WAIT)

"""What can go wrong, as exceptions: each says what happened and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood.models import Result, Run


class FumehoodError(Exception):
    """Any failure of this package.

    Attributes:
        message: What happened; the daemon's own words where it said something.
        remedy: What to do about it, empty if nothing is known.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class ConfigurationError(FumehoodError):
    """The client was given something that it cannot use, such as a malformed address."""


class TransportError(FumehoodError):
    """The daemon could not be reached, or an answer did not arrive whole or in time."""


class WaitTimeoutError(FumehoodError):
    """The caller's own patience (``wait_seconds``) is over; the program's limit is not meant."""


class ArtifactsUnavailableError(FumehoodError):
    """The files that a program left cannot be had from here."""


class RunFailedError(FumehoodError):
    """A run did not succeed. Raised only where the caller asked for that, or without any result.

    Attributes:
        run: The run as it ended.
        result: What its last execution came to; ``None`` if there is none.
    """

    def __init__(self, run: Run, result: Result | None) -> None:
        if result is None:
            what = f"The run ended as {run.status} without the result of an execution"
            super().__init__(f"{what}: {run.final_error}" if run.final_error else f"{what}.")
        else:
            super().__init__(f"{result.status}: {result.error_info or result.cause.message}")
        self.run = run
        self.result = result


class ApiError(FumehoodError):
    """The daemon answered a request with an error.

    Attributes:
        status: The HTTP status.
        retry_after: Seconds after which another try makes sense, if the daemon said so.
    """

    def __init__(
        self, message: str, remedy: str = "", *, status: int, retry_after: float | None = None
    ) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.retry_after = retry_after


class InvalidRequestError(ApiError):
    """The request itself is wrong (400, 405, 413, 421, 422): sending it again is of no use."""


class AuthenticationError(ApiError):
    """There is no token, or it is good no more (401)."""


class PermissionDeniedError(ApiError):
    """The token's role does not allow this (403)."""


class NotFoundError(ApiError):
    """There is no such run, or it belongs to somebody else (404)."""


class ConflictError(ApiError):
    """The run has ended already, or the key was used with another request (409)."""


class QuotaExceededError(ApiError):
    """A quota is used up or the queue is full (429)."""


class UnavailableError(ApiError):
    """The daemon cannot take this at the moment (any 5xx), or its answer made no sense."""

"""From what arrives over HTTP to a document, or to the exception that says what is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fumehood import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_SHOWN = 500

_REMEDIES = {
    401: "Set FUMEHOOD_TOKEN, or pass token=…, to a token of `fumehood token create`.",
    403: "Use a token with a higher role.",
    404: "Check the run's id, and that the token belongs to the tenant that submitted it.",
    413: "Put large files into the data set instead of input_files.",
    421: "Call the daemon by 127.0.0.1, or add the name to its api.allowed_hosts.",
    429: "Wait for what runs to end, and try again.",
    503: "`GET /ready` and the daemon's log say what is missing.",
}

_CLASSES: dict[int, type[errors.ApiError]] = {
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    429: errors.QuotaExceededError,
}


@dataclass(frozen=True)
class Answer:
    """A complete response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_error(self) -> bool:
        """Whether it is anything but what was asked for."""
        return not 200 <= self.status < 300  # noqa: PLR2004

    def document(self) -> dict[str, Any]:
        """The JSON object in it.

        Raises:
            UnavailableError: It is no JSON object: something else than the daemon answered.
        """
        try:
            document = json.loads(self.body)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise errors.UnavailableError(
                f"The answer is not fumehood's: {_shown(self.body)}",
                "Check that FUMEHOOD_URL is the daemon's address.",
                status=self.status,
            )
        return document

    def error(self) -> errors.ApiError:
        """The exception for an answer that is an error."""
        fallback = errors.InvalidRequestError if self.status < 500 else errors.UnavailableError  # noqa: PLR2004
        return _CLASSES.get(self.status, fallback)(
            _message(self),
            _REMEDIES.get(self.status, ""),
            status=self.status,
            retry_after=_wait(self),
        )


def _message(answer: Answer) -> str:
    try:
        detail = json.loads(answer.body)["detail"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status}: {_shown(answer.body)}"
    if isinstance(detail, list):
        return "; ".join(_problem(one) for one in detail)
    return str(detail)


def _problem(one: object) -> str:
    """A wrong field, such as ``options.cpus: Input should be greater than 0``."""
    if not isinstance(one, dict):
        return str(one)
    place = [str(step) for step in one.get("loc", [])]
    name = ".".join(place[1:] if len(place) > 1 else place)
    return f"{name}: {one.get('msg')}"


def _wait(answer: Answer) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _shown(body: bytes) -> str:
    return body[:_LONGEST_SHOWN].decode("utf-8", "replace") or "(nothing)"

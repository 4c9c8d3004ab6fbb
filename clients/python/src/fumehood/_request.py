"""From what a caller wants to the requests of the interface."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Union

from fumehood.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FileContent = Union[str, bytes]

_NO_BODY = b""


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        patience: Seconds that the daemon may take on purpose before it answers.
    """

    method: str
    path: str
    body: bytes = _NO_BODY
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: float = 0.0


@dataclass(frozen=True)
class Submission:
    """A run that is asked for, and can be asked for again without becoming two.

    Attributes:
        key: The idempotency key.
        run_id: What the daemon calls the run; empty until it was accepted.
    """

    key: str
    body: bytes = field(repr=False)
    run_id: str = ""

    def request(self, wait_seconds: int | None = None) -> Request:
        """``POST /runs``; with ``wait_seconds`` it is answered when the run has ended, or then."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": self.key}
        if wait_seconds is not None:
            headers["Prefer"] = f"wait={wait_seconds}"
        return Request("POST", "/runs", self.body, headers, float(wait_seconds or 0))


class SubmitOptions(TypedDict, total=False):
    """What a run may be given besides its program and its data set.

    Attributes:
        instruction: What to achieve, for a run whose program is yet to be written.
        input_files: Files of the workspace, by their paths in it; small ones (see ``dataset``).
        expected_output_files: Without these the run is no success.
        bash_script: Kept as ``setup.sh`` beside the artifacts, never run.
        timeout_seconds: Wall clock of the program.
        memory_mb: Memory in MiB, its files included.
        cpus: Share of CPUs, such as 0.5.
        options: Further options of the daemon, such as ``{"image": …, "max_processes": 64}``.
        idempotency_key: What makes repeating safe, if the caller has something better than a
            random one: the same key and the same content are the same run, whoever sends it.
    """

    instruction: str | None
    input_files: Mapping[str, FileContent] | None
    expected_output_files: Iterable[str]
    bash_script: str | None
    timeout_seconds: float | None
    memory_mb: int | None
    cpus: float | None
    options: Mapping[str, Any] | None
    idempotency_key: str | None


_PLAIN_FIELDS = {"instruction": "user_instruction", "bash_script": "bash_script"}
_LIMITS = ("timeout_seconds", "memory_mb", "cpus")


def submission(code: str | None, dataset: str | None, given: SubmitOptions) -> Submission:
    """What is sent for a run.

    Raises:
        InvalidRequestError: It cannot be written down.
        TypeError: There is no such option.
    """
    wanted: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    key = wanted.pop("idempotency_key", None) or str(uuid.uuid4())
    body: dict[str, Any] = {} if code is None else {"code": code}
    if dataset is not None:
        body["dataset_path"] = dataset
    for name, field_name in _PLAIN_FIELDS.items():
        if name in wanted:
            body[field_name] = wanted.pop(name)
    files = wanted.pop("input_files", {})
    body["input_files"] = {name: _content(data) for name, data in files.items()}
    body["expected_output_files"] = list(wanted.pop("expected_output_files", ()))
    limits = {name: wanted.pop(name) for name in _LIMITS if name in wanted}
    body["options"] = {**wanted.pop("options", {}), **limits}
    if wanted:
        raise TypeError(f"there is no option {', '.join(sorted(wanted))}")
    return Submission(key, _encoded(body))


def _content(data: FileContent) -> str | dict[str, str]:
    if isinstance(data, str):
        return data
    return {"base64": base64.b64encode(data).decode("ascii")}


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(
            f"The request cannot be written as JSON: {error}",
            "Texts must be valid Unicode, and numbers finite.",
            status=422,
        ) from error

"""Client of fumehood, a daemon that runs model-written code in single-use sandboxes.

>>> import fumehood
>>> with fumehood.Client() as client:
...     result = client.run("print(6 * 7)", on_output=fumehood.echo)
42
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from fumehood._events import Event, Output
from fumehood._request import Submission, SubmitOptions
from fumehood._retry import RetryPolicy
from fumehood.aio import AsyncClient
from fumehood.client import Client
from fumehood.errors import (
    ApiError,
    ArtifactsUnavailableError,
    AuthenticationError,
    ConfigurationError,
    ConflictError,
    FumehoodError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    QuotaExceededError,
    RunFailedError,
    TransportError,
    UnavailableError,
    WaitTimeoutError,
)
from fumehood.models import Artifact, Cause, Result, Run, Usage
from fumehood.runner import ExecutionResult, PythonRunner
from fumehood.terminal import echo

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = version("fumehood")

__all__ = [
    "ApiError",
    "Artifact",
    "ArtifactsUnavailableError",
    "AsyncClient",
    "AuthenticationError",
    "Cause",
    "Client",
    "ConfigurationError",
    "ConflictError",
    "Event",
    "ExecutionResult",
    "FumehoodError",
    "InvalidRequestError",
    "NotFoundError",
    "Output",
    "PermissionDeniedError",
    "PythonRunner",
    "QuotaExceededError",
    "Result",
    "RetryPolicy",
    "Run",
    "RunFailedError",
    "Submission",
    "SubmitOptions",
    "TransportError",
    "UnavailableError",
    "Usage",
    "WaitTimeoutError",
    "echo",
]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext fumehood`` adds the magic ``%%fumehood``."""
    from fumehood.magic import FumehoodMagics  # noqa: PLC0415

    shell.register_magics(FumehoodMagics)

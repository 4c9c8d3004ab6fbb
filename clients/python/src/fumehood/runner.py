"""A drop-in for the runner that fumehood replaces: the same calls, in a sandbox.

Its callers change one import. A program that fails, times out or is refused gives a result, as
before. What is not about the program is raised instead: no daemon, no token, a timeout above the
daemon's ceiling. It is not to be shown to a model as the program's fault.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood import _artifacts
from fumehood.client import Client
from fumehood.errors import InvalidRequestError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from fumehood._request import FileContent
    from fumehood.models import Result

_BAD_REQUEST = 400
_REFUSED = "Insecure file path detected: "
_SETUP_NAME = "setup.sh"


class ExecutionResult(dict[str, Any]):
    """What one execution came to: a dictionary with attributes.

    As a dictionary it fits where a pydantic model of the same fields is declared, so that a service
    can go on to keep results in its own types. The daemon's further fields, such as ``cause``,
    ``limit`` and ``usage``, are in it as well.
    """

    success: bool
    status: str
    return_code: int | None
    stdout: str
    stderr: str
    duration_seconds: float
    timed_out: bool
    output_files: list[str]
    missing_expected_files: list[str]
    error_info: str | None
    workspace_dir: str | None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def model_dump(self) -> dict[str, Any]:
        """As a plain dictionary, under pydantic's name for it."""
        return dict(self)


class PythonRunner:
    """Runs Python programs in sandboxes of a daemon. Safe to use from several threads.

    Args:
        workspace_root: Accepted for the sake of its callers; workspaces are the daemon's.
        default_timeout_seconds: Wall clock of a program; the daemon's default if not given.
        timeout_seconds: The same, and goes before it.
        url: The daemon's address, as for :class:`fumehood.Client`.
        token: As for :class:`fumehood.Client`.
        dataset: Directory below the daemon's allowed root, read-only at ``/data``.
        output_root: Where the daemon keeps artifacts, as for :class:`fumehood.Client`.
    """

    def __init__(
        self,
        workspace_root: str | os.PathLike[str] | None = None,
        default_timeout_seconds: float | None = None,
        timeout_seconds: float | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        dataset: str | None = None,
        output_root: str | os.PathLike[str] | None = None,
    ) -> None:
        self.workspace_root = workspace_root
        self.timeout = timeout_seconds or default_timeout_seconds
        self._dataset = dataset
        self._client = Client(url, token, output_root=output_root)

    def run_code(
        self,
        code: str,
        input_files: Mapping[str, FileContent] | None = None,
        bash_script: str | None = None,
        expected_output_files: list[str] | None = None,
        workspace_dir: str | os.PathLike[str] | None = None,
        timeout_seconds: float | None = None,
    ) -> ExecutionResult:
        """Runs a program and tells what it came to.

        Args:
            code: The program.
            input_files: Files of its workspace by name.
            bash_script: Kept as ``setup.sh`` beside the artifacts; never run.
            expected_output_files: Without these the run is ``INVALID_OUTPUT``.
            workspace_dir: Folder that gets a copy of what the program left, and ``setup.sh``. What
                was in it before is not shown to the program: name that in ``input_files``.
            timeout_seconds: Wall clock of this program.

        Returns:
            The result. Its ``workspace_dir`` is the folder that was given, or otherwise where the
            daemon keeps the artifacts, as far as that is known here.

        Raises:
            FumehoodError: It could not be run at all.
            ArtifactsUnavailableError: ``workspace_dir`` was given, and the files are not here.
        """
        timeout = self.timeout if timeout_seconds is None else timeout_seconds
        try:
            result = self._client.run(
                code,
                self._dataset,
                input_files=input_files,
                bash_script=bash_script,
                expected_output_files=expected_output_files or (),
                timeout_seconds=timeout,
            )
        except InvalidRequestError as error:
            if error.status == _BAD_REQUEST and error.message.startswith(_REFUSED):
                return _refusal(error.message, workspace_dir)
            raise
        found = ExecutionResult(result.raw)
        found["workspace_dir"] = str(self._place(result, bash_script, workspace_dir))
        return found

    def close(self) -> None:
        """Closes the connections to the daemon."""
        self._client.close()

    def _place(
        self,
        result: Result,
        bash_script: str | None,
        workspace_dir: str | os.PathLike[str] | None,
    ) -> Path:
        if workspace_dir is None:
            kept = _artifacts.directory(self._client.output_root, result)
            return kept if kept.is_dir() else Path(result.workspace_dir)
        self._client.save_artifacts(result, workspace_dir)
        if bash_script is not None:
            (Path(workspace_dir) / _SETUP_NAME).write_text(bash_script, encoding="utf-8")
        return Path(workspace_dir)


def _refusal(message: str, workspace_dir: str | os.PathLike[str] | None) -> ExecutionResult:
    return ExecutionResult(
        success=False,
        status="FAILURE",
        return_code=-1,
        stdout="",
        stderr="",
        duration_seconds=0.0,
        timed_out=False,
        output_files=[],
        missing_expected_files=[],
        error_info=message,
        workspace_dir=None if workspace_dir is None else str(workspace_dir),
    )

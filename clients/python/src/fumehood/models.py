"""What the daemon says about runs and executions, as values.

Unknown fields are left out here and kept in ``raw``, so that a newer daemon does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fumehood.errors import RunFailedError


@dataclass(frozen=True)
class Artifact:
    """A file that a program left.

    Attributes:
        path: Relative to the execution's artifact directory, with forward slashes.
        size: Bytes.
        sha256: Of its content, in hexadecimal.
    """

    path: str
    size: int
    sha256: str

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Artifact:
        """From the daemon's document."""
        return cls(raw["path"], raw["size"], raw["sha256"])


@dataclass(frozen=True)
class Cause:
    """The one complete reason why an execution ended.

    Attributes:
        kind: ``exited``, ``signal``, ``limit``, ``cancelled`` or ``infrastructure``.
        message: In words and numbers, with the remedy.
        limit: ``time``, ``cpu``, ``memory``, ``processes``, ``disk``, ``file_size`` or ``None``.
        configured: What that limit was set to, in seconds, bytes or a count.
        observed: What was measured, in the same unit.
        evidence: What it is judged from.
    """

    kind: str
    message: str
    limit: str | None = None
    configured: float | None = None
    observed: float | None = None
    evidence: tuple[str, ...] = ()

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Cause:
        """From the daemon's document."""
        return cls(
            kind=raw["kind"],
            message=raw["message"],
            limit=raw.get("limit"),
            configured=raw.get("configured"),
            observed=raw.get("observed"),
            evidence=tuple(raw.get("evidence", ())),
        )


@dataclass(frozen=True)
class Usage:
    """What an execution used.

    Attributes:
        cpu_seconds: Of all its processes.
        peak_memory_bytes: Of the sandbox, files in it included; ``None`` where unknown.
        peak_resident_bytes: Of its largest process.
        peak_workspace_bytes: ``None`` where unknown.
    """

    cpu_seconds: float
    peak_memory_bytes: int | None
    peak_resident_bytes: int
    peak_workspace_bytes: int | None

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Usage:
        """From the daemon's document."""
        return cls(
            raw["cpu_seconds"],
            raw.get("peak_memory_bytes"),
            raw["peak_resident_bytes"],
            raw.get("peak_workspace_bytes"),
        )


@dataclass(frozen=True)
class Run:
    """A run. What is a result is ``None`` until its end.

    Attributes:
        run_id: A UUID.
        status: ``QUEUED``, ``RUNNING``, ``SUCCESS``, ``FAIL`` or ``CANCELLED``.
        final_metrics: The ``metrics`` of the program's ``out/summary.json``.
        execution_duration: Seconds of the last execution.
        final_error: The last error's category, or why the run died.
        raw: Everything that the daemon said.
    """

    run_id: str
    status: str
    success: bool | None = None
    iterations: int | None = None
    final_metrics: dict[str, Any] | None = None
    execution_duration: float | None = None
    final_error: str | None = None
    dataset_name: str | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Run:
        """From the daemon's document."""
        return cls(
            run_id=raw["run_id"],
            status=raw["status"],
            success=raw.get("success"),
            iterations=raw.get("iterations"),
            final_metrics=raw.get("final_metrics"),
            execution_duration=raw.get("execution_duration"),
            final_error=raw.get("final_error"),
            dataset_name=raw.get("dataset_name"),
            raw=raw,
        )


@dataclass(frozen=True)
class Result:
    """What one execution came to; ``docs/results.md`` of the daemon tells of every field.

    Attributes:
        run: The run that it is the last execution of.
        success: Exit code 0, and every expected file is there.
        status: ``SUCCESS``, ``FAILURE``, ``INVALID_OUTPUT``, ``TIMEOUT``, ``CANCELLED``, ``ERROR``.
        return_code: The program's; a signal as its negative number; -1 if refused before the start.
        stdout: Its head, cut at the daemon's cap; ``stdout_tail`` has the end then.
        stdout_bytes: How many bytes were written in all.
        duration_seconds: Wall clock of the program, not of the queue.
        output_files: Files it left, relative to ``out`` or to the workspace.
        error_info: Why it is no success, in a sentence.
        cause: The complete reason.
        warnings: Limits that it survived, and everything that was lost.
        artifacts: The same files with their sizes and hashes.
        raw: Everything that the daemon said.
    """

    run: Run = field(repr=False)
    execution_id: str
    success: bool
    status: str
    return_code: int | None
    stdout: str
    stderr: str
    duration_seconds: float
    timed_out: bool
    output_files: tuple[str, ...]
    missing_expected_files: tuple[str, ...]
    error_info: str | None
    workspace_dir: str
    limit: str | None
    cause: Cause
    warnings: tuple[str, ...]
    stdout_bytes: int
    stderr_bytes: int
    stdout_tail: str | None
    stderr_tail: str | None
    usage: Usage | None
    started_at: str | None
    finished_at: str
    artifacts: tuple[Artifact, ...] = field(repr=False)
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, run: Run, raw: dict[str, Any]) -> Result:
        """From the daemon's document."""
        usage = raw.get("usage")
        return cls(
            run=run,
            execution_id=raw["execution_id"],
            success=raw["success"],
            status=raw["status"],
            return_code=raw["return_code"],
            stdout=raw["stdout"],
            stderr=raw["stderr"],
            duration_seconds=raw["duration_seconds"],
            timed_out=raw["timed_out"],
            output_files=tuple(raw["output_files"]),
            missing_expected_files=tuple(raw["missing_expected_files"]),
            error_info=raw["error_info"],
            workspace_dir=raw["workspace_dir"],
            limit=raw.get("limit"),
            cause=Cause.read(raw["cause"]),
            warnings=tuple(raw.get("warnings", ())),
            stdout_bytes=raw["stdout_bytes"],
            stderr_bytes=raw["stderr_bytes"],
            stdout_tail=raw.get("stdout_tail"),
            stderr_tail=raw.get("stderr_tail"),
            usage=None if usage is None else Usage.read(usage),
            started_at=raw.get("started_at"),
            finished_at=raw["finished_at"],
            artifacts=tuple(Artifact.read(one) for one in raw.get("artifacts", ())),
            raw=raw,
        )

    def check(self) -> Result:
        """This result, if it is a success.

        Raises:
            RunFailedError: It is none; the message has the reason.
        """
        if not self.success:
            raise RunFailedError(self.run, self)
        return self

"""The files that a program left, copied from the daemon's artifact directory on the same host."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fumehood.errors import ArtifactsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fumehood.models import Artifact, Result

_PIECE = 1 << 20
_MODE = 0o644


def directory(output_root: Path, result: Result) -> Path:
    """Where the daemon has put them (``models/exec_…`` in its output root)."""
    return output_root / "models" / result.execution_id


def copy(output_root: Path, result: Result, folder: str | os.PathLike[str]) -> list[Path]:
    """Copies them into ``folder``, each whole and checked against its hash; gives the copies.

    Raises:
        ArtifactsUnavailableError: One is not there, or is another than the daemon tells of.
    """
    source, target = directory(output_root, result), Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    return [_copy_one(artifact, source, target) for artifact in result.artifacts]


def content(output_root: Path, result: Result, artifact: Artifact) -> bytes:
    """The bytes of one of them, which should be small.

    Raises:
        ArtifactsUnavailableError: It is not there, or is another than the daemon tells of.
    """
    return b"".join(_pieces(artifact, directory(output_root, result)))


def _copy_one(artifact: Artifact, source: Path, target: Path) -> Path:
    copied = target / _name(artifact)
    copied.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(prefix=".fumehood-", dir=copied.parent)
    try:
        with os.fdopen(descriptor, "wb") as writer:
            for piece in _pieces(artifact, source):
                writer.write(piece)
            os.fchmod(writer.fileno(), _MODE)
        Path(unfinished).replace(copied)
    except BaseException:
        Path(unfinished).unlink()
        raise
    return copied


def _pieces(artifact: Artifact, source: Path) -> Iterator[bytes]:
    """What is in it; whether that was right is known at the end."""
    digest = hashlib.sha256()
    try:
        with (source / _name(artifact)).open("rb") as reader:
            while piece := reader.read(_PIECE):
                digest.update(piece)
                yield piece
    except OSError as error:
        raise _unavailable(f"{artifact.path} cannot be read: {error.strerror}") from error
    if digest.hexdigest() != artifact.sha256:
        raise _unavailable(f"{artifact.path} is not the file that the program left.")


def _name(artifact: Artifact) -> PurePosixPath:
    name = PurePosixPath(artifact.path)
    if name.is_absolute() or ".." in name.parts:
        raise ArtifactsUnavailableError(f"{artifact.path!r} is no name of an artifact.")
    return name


def _unavailable(what: str) -> ArtifactsUnavailableError:
    return ArtifactsUnavailableError(
        what,
        "This daemon does not send files over its interface. On its own host, set "
        "output_root=… or FUMEHOOD_APP__OUTPUT_ROOT to its app.output_root.",
    )

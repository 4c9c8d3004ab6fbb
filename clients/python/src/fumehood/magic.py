"""The Jupyter magic ``%%fumehood``: runs a cell in a sandbox.

``%load_ext fumehood`` adds it, ``%%fumehood?`` tells of its arguments.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import Image, display

from fumehood import _artifacts
from fumehood.client import Client
from fumehood.errors import ArtifactsUnavailableError, FumehoodError
from fumehood.terminal import echo

if TYPE_CHECKING:
    from fumehood.models import Result

# By how they begin. No SVG: a notebook would run the scripts in one.
_IMAGE_FORMATS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}
_IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".gif"}
_LARGEST_IMAGE = 10 << 20
_MOST_IMAGES = 20


class CellError(FumehoodError):
    """A cell's program did not succeed. A notebook shows it as one line."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


@magics_class
class FumehoodMagics(Magics):
    """The magic of this package."""

    @magic_arguments()
    @argument("--dataset", metavar="DIR", help="data set, read-only at /data")
    @argument("--timeout", metavar="SECONDS", type=float, help="time limit of the program")
    @argument("--memory", metavar="MIB", type=int, help="memory limit")
    @argument("--cpus", metavar="N", type=float, help="share of CPUs")
    @argument("--input", metavar="FILE", action="append", default=[], help="file for the workspace")
    @argument("--expect", metavar="NAME", action="append", default=[], help="file it has to leave")
    @argument("--artifacts", metavar="DIR", help="folder to copy what it left into")
    @argument("--output", metavar="NAME", help="variable that gets the result")
    @argument("--url", help="the daemon; otherwise FUMEHOOD_URL")
    @argument("--output-root", metavar="DIR", help="the daemon's app.output_root on this host")
    @argument("--no-raise-error", action="store_true", help="a program that fails is no error")
    @cell_magic
    def fumehood(self, line: str, cell: str) -> None:
        """Run the cell in a sandbox: its output as it comes, plots left in ``out``, usage.

        Interrupting the cell cancels the run. The notebook's variables are not there, and what
        the program defines is not here afterwards.
        """
        arguments = parse_argstring(self.fumehood, line)
        try:
            with Client(arguments.url, output_root=arguments.output_root) as client:
                result = client.run(
                    cell,
                    arguments.dataset,
                    on_output=echo,
                    input_files={Path(name).name: _read(name) for name in arguments.input},
                    expected_output_files=arguments.expect,
                    timeout_seconds=arguments.timeout,
                    memory_mb=arguments.memory,
                    cpus=arguments.cpus,
                )
                if arguments.output:
                    self.shell.user_ns[arguments.output] = result
                _show_images(result, client.output_root)
                print(_summary(result))  # noqa: T201
                if arguments.artifacts:
                    client.save_artifacts(result, arguments.artifacts)
        except FumehoodError as error:
            raise CellError(error.message, error.remedy) from None
        if not (result.success or arguments.no_raise_error):
            raise CellError(f"{result.status}: {result.error_info or result.cause.message}")


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise FumehoodError(f"--input {name} cannot be read: {error.strerror}") from error


def _show_images(result: Result, output_root: Path) -> None:
    """Shows the plots, or says where they are."""
    endings = {one.path: PurePosixPath(one.path).suffix.lower() for one in result.artifacts}
    plots = [one for one in result.artifacts if endings[one.path] in _IMAGE_ENDINGS]
    for plot in plots[:_MOST_IMAGES]:
        if plot.size > _LARGEST_IMAGE:
            print(f"{plot.path} is too large to be shown here.")  # noqa: T201
            continue
        try:
            data = _artifacts.content(output_root, result, plot)
        except ArtifactsUnavailableError as error:
            print(f"Plots cannot be shown: {error}")  # noqa: T201
            return
        kinds = (kind for begin, kind in _IMAGE_FORMATS.items() if data.startswith(begin))
        kind = next(kinds, None)
        if kind is not None:
            display(Image(data=data, format=kind, alt=plot.path))
    left_out = len(plots) - _MOST_IMAGES
    if left_out > 0:
        print(f"{left_out} more plots are not shown.")  # noqa: T201


def _summary(result: Result) -> str:
    parts: list[Any] = [result.status, f"{result.duration_seconds:.2f} s"]
    if result.usage is not None:
        parts.append(f"{result.usage.cpu_seconds:.2f} s of CPU time")
        peak = result.usage.peak_memory_bytes
        if peak is not None:
            parts.append(f"at most {peak / (1 << 20):.0f} MiB")
    parts.append(result.execution_id)
    lines = [" · ".join(parts)]
    lines += [f"warning: {one}" for one in result.warnings]
    names = [one.path for one in result.artifacts]
    if names:
        lines.append(
            f"left: {', '.join(names[:_MOST_IMAGES])}" + (" …" * (len(names) > _MOST_IMAGES))
        )
    return "\n".join(lines)

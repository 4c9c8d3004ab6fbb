"""The magic in a real kernel."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support_daemon import Daemon

    from fumehood import Client

_EXAMPLE = Path(__file__).parents[1] / "examples" / "first_steps.ipynb"
_PATIENCE = 60

_PLOT = """%%fumehood --output result --expect plot.png
import base64, sys
png = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
       "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
open("out/plot.png", "wb").write(base64.b64decode(png))
open("out/forged.png", "w").write("<svg onload='alert(1)'/>")
open("out/hostile.svg", "w").write("<svg onload='alert(1)'/>")
print("<script>alert(1)</script> ☃")
print("to stderr", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def notebooks(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where kernels are started, and what they are told."""
    directory = tmp_path_factory.mktemp("notebooks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUMEHOOD_URL", daemon.url)
        patch.setenv("FUMEHOOD_APP__OUTPUT_ROOT", str(daemon.output_root))
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(directory / name))
        patch.chdir(directory)
        yield directory


@pytest.fixture(scope="module")
def kernel(notebooks: Path) -> Iterator[Kernel]:
    manager, channels = start_new_kernel(cwd=str(notebooks))
    made = Kernel(manager, channels)
    assert made.execute("%load_ext fumehood").error == ""
    yield made
    channels.stop_channels()
    manager.shutdown_kernel(now=True)


@dataclass
class Shown:
    """What a cell shows."""

    stdout: str = ""
    stderr: str = ""
    error: str = ""
    data: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Kernel:
    """A kernel that runs."""

    manager: Any
    channels: Any

    def execute(self, cell: str, interrupt_at: str = "") -> Shown:
        """Executes a cell, perhaps only until it has shown something."""
        shown = Shown()
        interrupts = [interrupt_at] if interrupt_at else []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                name = content["name"]
                setattr(shown, name, getattr(shown, name) + content["text"])
            elif message["msg_type"] == "error":
                shown.error = "\n".join(content["traceback"]) or content["ename"]
            elif message["msg_type"] in {"display_data", "execute_result"}:
                shown.data.append(content["data"])
            if interrupts and interrupts[0] in shown.stdout:
                interrupts.clear()
                self.manager.interrupt_kernel()

        self.channels.execute_interactive(cell, timeout=_PATIENCE, output_hook=hear)
        return shown


def test_a_cell_shows_output_plots_and_usage(kernel: Kernel) -> None:
    shown = kernel.execute(_PLOT)
    assert shown.stdout.startswith("<script>alert(1)</script> ☃\n")
    assert "SUCCESS · " in shown.stdout
    assert " s of CPU time · at most " in shown.stdout
    assert "left: forged.png, hostile.svg, plot.png" in shown.stdout
    assert (shown.stderr, shown.error) == ("to stderr\n", "")
    # Of the three only what is an image, and text as nothing but text.
    assert [sorted(one) for one in shown.data] == [["image/png", "text/plain"]]
    shown = kernel.execute("print(result.run.status, result.output_files)")
    assert shown.stdout == "SUCCESS ('forged.png', 'hostile.svg', 'plot.png')\n"


def test_a_cell_has_files_and_limits(kernel: Kernel, notebooks: Path) -> None:
    (notebooks / "given.txt").write_text("given")
    shown = kernel.execute(
        "%%fumehood --input given.txt --artifacts kept --timeout 20 --memory 256 --cpus 0.5\n"
        "open('out/copy.txt', 'w').write(open('given.txt').read())"
    )
    assert (shown.error, shown.stdout[:7]) == ("", "SUCCESS")
    assert (notebooks / "kept" / "copy.txt").read_text() == "given"


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%fumehood\nraise ValueError('mine')", "FAILURE: "),
        ("%%fumehood --dataset /etc\nprint(1)", "outside allowed data root"),
        ("%%fumehood --input none.txt\nprint(1)", "--input none.txt cannot be read: No such file"),
        ("%%fumehood --url http://\nprint(1)", "FUMEHOOD_URL"),
    ],
)
def test_a_cell_that_fails_says_why_in_few_words(kernel: Kernel, cell: str, words: str) -> None:
    shown = kernel.execute(cell)
    assert words in shown.error
    assert len(shown.error.splitlines()) <= 2


def test_a_failure_need_not_be_an_error(kernel: Kernel) -> None:
    shown = kernel.execute("%%fumehood --no-raise-error\nraise SystemExit(3)")
    assert shown.error == ""
    assert "FAILURE · " in shown.stdout


def test_plots_that_are_not_here_are_told_of(kernel: Kernel) -> None:
    shown = kernel.execute("%%fumehood --output-root /none\nopen('out/a.png', 'w')")
    assert "Plots cannot be shown: a.png cannot be read" in shown.stdout
    assert shown.error == ""


def test_interrupting_the_kernel_cancels_the_run(kernel: Kernel, client: Client) -> None:
    began = "import time\nprint('began', flush=True)\ntime.sleep(60)"
    shown = kernel.execute(f"%%fumehood\n{began}", interrupt_at="began")
    assert "KeyboardInterrupt" in shown.error
    run = next(client.runs())
    bound = time.monotonic() + 20
    while (run := client.get(run.run_id)).status != "CANCELLED":
        assert time.monotonic() < bound, run
        time.sleep(0.05)


@pytest.mark.usefixtures("notebooks")
def test_the_example_notebook_is_true(daemon: Daemon) -> None:
    dataset = daemon.directory / "data" / "flowers"
    dataset.mkdir()
    rows = "".join(f"{n % 7},{n % 5},{int(n % 7 > 3)}\n" for n in range(200))
    (dataset / "train.csv").write_text(f"width,height,target\n{rows}")
    notebook = nbformat.read(_EXAMPLE, as_version=4)
    NotebookClient(notebook, timeout=_PATIENCE, kernel_name="python3").execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    shown = "".join(one.get("text", "") for one in outputs)
    assert "accuracy" in shown
    assert "left: " in shown

"""The magic in a real kernel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

if TYPE_CHECKING:
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


@pytest.fixture(autouse=True)
def _environment(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_URL", daemon.url)
    monkeypatch.setenv("FUMEHOOD_APP__OUTPUT_ROOT", str(daemon.output_root))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)


def executed(*cells: str) -> list[list[Any]]:
    """The outputs of each cell."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in ("%load_ext fumehood", *cells)])
    NotebookClient(notebook, timeout=_PATIENCE, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells[1:]]


def text(outputs: list[Any], stream: str = "stdout") -> str:
    return "".join(one.text for one in outputs if one.get("name") == stream)


def test_a_cell_shows_output_plots_and_usage(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given")
    plot, seen, copied, failed = executed(
        _PLOT,
        "print(result.run.status, result.output_files)",
        "%%fumehood --input given.txt --artifacts kept --timeout 20 --memory 256 --cpus 0.5\n"
        "open('out/copy.txt', 'w').write(open('given.txt').read())",
        "%%fumehood --no-raise-error\nraise SystemExit(3)",
    )
    shown = text(plot)
    assert shown.startswith("<script>alert(1)</script> ☃\n")
    assert "SUCCESS · " in shown
    assert " s of CPU time · at most " in shown
    assert "left: forged.png, hostile.svg, plot.png" in shown
    assert text(plot, "stderr") == "to stderr\n"
    # Of the three only what is an image, and text as nothing but text.
    data = [one.data for one in plot if one.output_type == "display_data"]
    assert [sorted(one) for one in data] == [["image/png", "text/plain"]]
    assert not any("text/html" in one.get("data", {}) for one in plot)
    assert text(seen) == "SUCCESS ('forged.png', 'hostile.svg', 'plot.png')\n"
    assert "SUCCESS" in text(copied)
    assert (tmp_path / "kept" / "copy.txt").read_text() == "given"
    assert "FAILURE · " in text(failed)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%fumehood\nraise ValueError('mine')", "FAILURE: "),
        ("%%fumehood --dataset /etc\nprint(1)", "outside allowed data root"),
        ("%%fumehood --input none.txt\nprint(1)", "--input none.txt cannot be read: No such file"),
        ("%%fumehood --url http://\nprint(1)", "FUMEHOOD_URL"),
    ],
)
def test_a_cell_that_fails_says_why_in_one_line(cell: str, words: str) -> None:
    with pytest.raises(CellExecutionError) as caught:
        executed(cell)
    assert words in str(caught.value)
    assert "fumehood/client.py" not in str(caught.value)


def test_interrupting_the_kernel_cancels_the_run(client: Client) -> None:
    manager, kernel = start_new_kernel()
    try:
        kernel.execute_interactive("%load_ext fumehood", timeout=_PATIENCE)
        began = "import time\nprint('began', flush=True)\ntime.sleep(60)"
        asked = kernel.execute(f"%%fumehood\n{began}")
        while True:
            message = kernel.get_iopub_msg(timeout=_PATIENCE)
            if "began" in message["content"].get("text", ""):
                break
        manager.interrupt_kernel()
        reply = kernel.get_shell_msg(timeout=_PATIENCE)
        assert reply["parent_header"]["msg_id"] == asked
        assert reply["content"]["ename"] == "KeyboardInterrupt"
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
    run = next(client.runs())
    bound = time.monotonic() + 20
    while (run := client.get(run.run_id)).status != "CANCELLED":
        assert time.monotonic() < bound, run
        time.sleep(0.05)


def test_the_example_notebook_is_true(daemon: Daemon) -> None:
    dataset = daemon.directory / "data" / "flowers"
    dataset.mkdir()
    rows = "".join(f"{n % 7},{n % 5},{int(n % 7 > 3)}\n" for n in range(200))
    (dataset / "train.csv").write_text(f"width,height,target\n{rows}")
    notebook = nbformat.read(_EXAMPLE, as_version=4)
    NotebookClient(notebook, timeout=_PATIENCE, kernel_name="python3").execute()
    shown = "".join(text(cell.outputs) for cell in notebook.cells if cell.cell_type == "code")
    assert "accuracy" in shown
    assert "left: " in shown

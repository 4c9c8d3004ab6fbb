"""What the replaced runner's callers and tests rely on."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Optional

import pydantic
import pytest

from fumehood import ArtifactsUnavailableError, InvalidRequestError, PythonRunner, TransportError

FIELDS = [
    "success",
    "status",
    "return_code",
    "stdout",
    "stderr",
    "duration_seconds",
    "timed_out",
    "output_files",
    "missing_expected_files",
    "error_info",
    "workspace_dir",
]


def test_prints_and_leaves_a_file_in_out(runner: PythonRunner) -> None:
    result = runner.run_code("print('Hello World')\nopen('out/test.txt', 'w').write('OK')")
    assert result.success is True
    assert (result.status, result.return_code, result.timed_out) == ("SUCCESS", 0, False)
    assert "Hello World" in result.stdout
    assert result.output_files == ["test.txt"]
    assert result.error_info is None
    assert result.duration_seconds > 0
    # Relative, as the contract has it: its parent is what references are relative to.
    assert result.workspace_dir is not None
    assert Path(result.workspace_dir).parent == Path("outputs/models")
    assert (Path(result.workspace_dir) / "test.txt").read_text() == "OK"


def test_tells_of_an_exception(runner: PythonRunner) -> None:
    result = runner.run_code("raise ValueError('Intentional error')")
    assert (result.success, result.status, result.return_code) == (False, "FAILURE", 1)
    assert "ValueError: Intentional error" in result.stderr


def test_ends_a_program_at_its_time_limit(runner: PythonRunner) -> None:
    code = "print('before', end='', flush=True)\nimport time\ntime.sleep(60)"
    result = runner.run_code(code, timeout_seconds=1)
    assert (result.success, result.status, result.timed_out) == (False, "TIMEOUT", True)
    assert result.return_code is None
    assert result.error_info == result.stderr == "Execution timed out after 1 seconds."
    assert result.stdout == "before"


@pytest.mark.usefixtures("runner")
def test_has_a_time_limit_of_its_own() -> None:
    nap = "import time\ntime.sleep(1.2)"
    limited, other = PythonRunner("workspaces", 1), PythonRunner(None, 300, timeout_seconds=1)
    assert limited.run_code(nap).timed_out
    assert other.run_code(nap).timed_out
    assert limited.run_code(nap, timeout_seconds=30).success
    limited.close()
    other.close()


@pytest.mark.parametrize("code", ["", "   \n  "])
def test_refuses_empty_code(runner: PythonRunner, code: str) -> None:
    result = runner.run_code(code)
    assert (result.success, result.error_info) == (False, "Code artifact is empty.")


def test_hides_keys(runner: PythonRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-caller")
    monkeypatch.setenv("GEMINI_API_KEY", "other-key-of-the-caller")
    result = runner.run_code("import os\nprint(dict(os.environ), os.getenv('OPENAI_API_KEY'))")
    assert result.success
    assert result.stdout.endswith(" None\n")
    assert "key-of-the" not in result.stdout
    assert "API_KEY" not in result.stdout


@pytest.mark.parametrize("name", ["../escape.txt", "../../evil.sh", "/etc/x", "a/../../x", ".", ""])
def test_refuses_names_that_leave_the_workspace(runner: PythonRunner, name: str) -> None:
    result = runner.run_code("print('ran')", input_files={name: "evil content"})
    assert (result.success, result.status, result.return_code) == (False, "FAILURE", -1)
    expected = f"Insecure file path detected: Invalid path {name} escapes workspace."
    assert result.error_info == expected
    assert result.stdout == ""
    assert sorted(result) == sorted(FIELDS)


def test_gives_the_program_its_input_files(runner: PythonRunner) -> None:
    files: dict[str, str | bytes] = {"data.csv": "id,val\n1,10\n", "deep/er.bin": b"\x00\xff"}
    code = "print(open('data.csv').read(), open('deep/er.bin', 'rb').read())"
    result = runner.run_code(code, files)
    assert result.stdout == "id,val\n1,10\n b'\\x00\\xff'\n"
    assert result.output_files == []


def test_tells_of_a_missing_file(runner: PythonRunner, tmp_path: Path) -> None:
    result = runner.run_code(
        "print('did not write predictions')",
        workspace_dir=str(tmp_path),
        expected_output_files=["predictions.csv", "a.txt"],
    )
    assert (result.success, result.status, result.return_code) == (False, "INVALID_OUTPUT", 0)
    assert result.missing_expected_files == ["predictions.csv", "a.txt"]
    assert result.error_info == "Missing expected output files: predictions.csv, a.txt"


def test_takes_shell_characters_literally(runner: PythonRunner) -> None:
    text = "hello & dir; $(id) `id` | > x"
    result = runner.run_code(f"print({text!r})")
    assert result.stdout == f"{text}\n"
    assert result.output_files == []


def test_copies_into_a_given_workspace(runner: PythonRunner, tmp_path: Path) -> None:
    workspace = tmp_path / "made" / "here"
    result = runner.run_code(
        "import os\nos.mkdir('out/models')\nopen('out/models/m.txt', 'w').write('model')\n"
        "open('predictions.csv', 'w').write('pred\\n1\\n')",
        workspace_dir=workspace,
        expected_output_files=["predictions.csv"],
        bash_script="touch canary",
    )
    assert result.success, result
    assert result.workspace_dir == str(workspace)
    assert result.output_files == ["models/m.txt", "predictions.csv"]
    found = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*"))
    assert found == ["models", "models/m.txt", "predictions.csv", "setup.sh"]
    assert (workspace / "setup.sh").read_text() == "touch canary"


def test_keeps_the_shell_script_and_does_not_run_it(runner: PythonRunner) -> None:
    result = runner.run_code("print(1)", bash_script="touch out/canary; touch canary")
    assert result.output_files == []
    assert (Path(str(result.workspace_dir)) / "setup.sh").read_text().startswith("touch")
    assert not Path("canary").exists()


def test_fits_where_a_service_declares_its_own_result(runner: PythonRunner) -> None:
    class ExecutionResult(pydantic.BaseModel):
        success: bool
        status: str
        return_code: Optional[int]  # noqa: UP045
        stdout: str
        duration_seconds: float
        output_files: list[str]

    class Record(pydantic.BaseModel):
        execution_result: ExecutionResult

    result = runner.run_code("print(1)")
    record = Record(execution_result=result)  # type: ignore[arg-type]
    assert record.execution_result.stdout == "1\n"
    assert all(name in result.model_dump() for name in FIELDS)
    result.workspace_dir = "elsewhere"
    kept = pickle.loads(pickle.dumps(result))
    assert kept["workspace_dir"] == kept.workspace_dir == "elsewhere"
    with pytest.raises(AttributeError):
        result.nothing_of_this_name  # noqa: B018


def test_is_called_as_the_replaced_one() -> None:
    names = list(inspect.signature(PythonRunner.run_code).parameters)[1:]
    assert names == [
        "code",
        "input_files",
        "bash_script",
        "expected_output_files",
        "workspace_dir",
        "timeout_seconds",
    ]


def test_raises_what_is_not_about_the_program(
    runner: PythonRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequestError, match=r"options\.timeout_seconds"):
        runner.run_code("print(1)", timeout_seconds=1e9)
    monkeypatch.chdir(tmp_path)
    elsewhere = PythonRunner()
    assert elsewhere.run_code("open('out/a', 'w')").success
    with pytest.raises(ArtifactsUnavailableError, match="FUMEHOOD_APP__OUTPUT_ROOT"):
        elsewhere.run_code("open('out/a', 'w')", workspace_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    elsewhere.close()


def test_raises_where_there_is_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    lost = PythonRunner(url="http://127.0.0.1:1")
    with pytest.raises(TransportError, match="fumehood serve"):
        lost.run_code("print(1)")
    lost.close()

"""The client against a real daemon."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from fumehood import (
    ArtifactsUnavailableError,
    Client,
    NotFoundError,
    Output,
    RunFailedError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from support_daemon import Daemon

    from fumehood import Run

SLEEPER = "import time\nprint('began', flush=True)\ntime.sleep(60)"


def until_ended(client: Client, run_id: str) -> Run:
    bound = time.monotonic() + 30
    while (run := client.get(run_id)).status in {"QUEUED", "RUNNING"}:
        assert time.monotonic() < bound, run
        time.sleep(0.05)
    return run


def newest(client: Client) -> Run:
    return next(client.runs(page_size=1))


def test_a_run_tells_everything(client: Client, daemon: Daemon) -> None:
    (daemon.directory / "data" / "wine").mkdir(exist_ok=True)
    (daemon.directory / "data" / "wine" / "train.csv").write_text("a\n1\n")
    outputs: list[Output] = []
    result = client.run(
        "import os, sys\nprint(os.listdir('/data'), os.environ['OMP_NUM_THREADS'])\n"
        "print('to stderr', file=sys.stderr)\n"
        'open("out/summary.json", "w").write(\'{"metrics": {"accuracy": 0.5}}\')',
        "data/wine",
        on_output=outputs.append,
        memory_mb=512,
        cpus=0.5,
        options={"max_processes": 64},
        expected_output_files=["summary.json"],
        check=True,
    )
    assert result.stdout == "['train.csv'] 1\n"
    assert result.stderr == "to stderr\n"
    for stream in ("stdout", "stderr"):
        live = "".join(output.text for output in outputs if output.stream == stream)
        assert live == result.raw[stream]
    assert (result.cause.kind, result.limit, result.warnings) == ("exited", None, ())
    assert result.usage is not None
    assert result.usage.cpu_seconds > 0
    assert [one.path for one in result.artifacts] == ["summary.json"]
    run = client.get(result.run.run_id)
    assert run == result.run or run.raw.items() <= result.run.raw.items()
    assert (run.status, run.dataset_name) == ("SUCCESS", "wine")
    assert run.final_metrics == {"accuracy": 0.5}
    assert client.artifacts(run.run_id) == list(result.artifacts)
    assert client.episodes(run.run_id)["episodes"][0]["execution_status"] == "SUCCESS"
    assert result.execution_id in str(client.receipt(run.run_id))
    assert client.health()["status"] == "ok"


def test_a_failure_is_a_result_and_raised_on_demand(client: Client) -> None:
    result = client.run("import sys\nsys.exit(3)")
    assert (result.success, result.return_code) == (False, 3)
    with pytest.raises(RunFailedError, match="FAILURE: ") as caught:
        result.check()
    assert caught.value.result is result
    with pytest.raises(RunFailedError, match=r"3\.txt"):
        client.run("pass", expected_output_files=["3.txt"], check=True)


def test_a_limit_is_told_with_numbers(client: Client) -> None:
    result = client.run("x = bytearray(10**9)\nprint(len(x))", memory_mb=128)
    assert (result.status, result.limit, result.cause.kind) == ("FAILURE", "memory", "limit")
    assert result.cause.configured == 128 << 20


@pytest.mark.parametrize("text", ["ünïcödé 🚀 \x85\x0b\x0c\x1c\u2028\u2029 |", "a\r\nb\rc\x00\x1b"])
def test_every_character_comes_through(client: Client, text: str) -> None:
    pieces: list[Output] = []
    code = f"import sys\nsys.stdout.write(open('é.txt', newline='').read())\nassert {text!r}"
    result = client.run(code, input_files={"é.txt": text}, on_output=pieces.append)
    assert result.stdout == text
    assert "".join(piece.text for piece in pieces) == text


def test_large_output_keeps_head_and_tail(client: Client) -> None:
    pieces: list[Output] = []
    code = "import sys\nsys.stdout.write(''.join(f'{n}\\n' for n in range(200_000)))"
    result = client.run(code, on_output=pieces.append)
    whole = "".join(f"{n}\n" for n in range(200_000))
    assert result.success
    assert result.stdout_bytes == len(whole)
    assert result.stdout.endswith("\n...[TRUNCATED]")
    assert whole.startswith("".join(piece.text for piece in pieces))
    assert result.stdout_tail is not None
    assert whole.endswith(result.stdout_tail)


def test_large_programs_are_sent(client: Client) -> None:
    result = client.run(f"text = {'é' * 1_000_000!r}\nprint(len(text))")
    assert result.stdout == "1000000\n"


def test_runs_go_side_by_side(client: Client) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda n: client.run(f"print({n})", on_output=lambda _: None), range(4))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(4)]


def test_runs_are_listed_page_by_page(client: Client) -> None:
    ids = [client.submit("pass").run_id for _ in range(3)]
    found = [run.run_id for run, _ in zip(client.runs(page_size=2), range(3))]
    assert found == ids[::-1]
    for run_id in ids:
        until_ended(client, run_id)
    assert all(run.status == "FAIL" for run in client.runs("FAIL"))


def test_a_submitted_run_can_be_waited_for_or_cancelled(client: Client) -> None:
    submitted = client.submit("print('later')")
    assert client.wait(submitted).stdout == "later\n"
    assert client.cancel(submitted.run_id).status == "SUCCESS"
    submitted = client.submit(SLEEPER)
    kinds = []
    for event in client.events(submitted.run_id):
        kinds.append(event.kind)
        if event.output is not None:
            client.cancel(submitted.run_id)
    assert kinds[-1] == "status"
    assert client.wait(submitted).status == "CANCELLED"


def test_a_run_that_never_began_has_no_result(client: Client) -> None:
    blockers = [client.submit(SLEEPER) for _ in range(2)]
    waiting = client.submit("print(1)")
    client.cancel(waiting.run_id)
    with pytest.raises(RunFailedError, match="CANCELLED without the result"):
        client.wait(waiting)
    for blocker in blockers:
        client.cancel(blocker.run_id)
        until_ended(client, blocker.run_id)


def test_an_unknown_run_is_not_found(client: Client) -> None:
    for ask in (client.get, client.cancel, client.artifacts, lambda i: list(client.events(i))):
        with pytest.raises(NotFoundError, match="Run not found"):
            ask("../../etc/passwd")


@pytest.mark.parametrize("is_live", [True, False])
def test_a_run_does_not_outlive_the_callers_patience(client: Client, is_live: bool) -> None:  # noqa: FBT001
    on_output = (lambda _: None) if is_live else None
    began = time.monotonic()
    with pytest.raises(WaitTimeoutError, match="wait_seconds"):
        client.run(SLEEPER, wait_seconds=1.5, on_output=on_output)
    assert time.monotonic() - began < 6
    assert until_ended(client, newest(client).run_id).status == "CANCELLED"


def test_a_run_does_not_outlive_a_listener_that_fails(client: Client) -> None:
    def fail(_output: Output) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.run(SLEEPER, on_output=fail)
    assert until_ended(client, newest(client).run_id).status == "CANCELLED"


@pytest.mark.parametrize("on_output", ["fumehood.echo", "None"])
def test_an_interrupt_cancels_the_run(client: Client, daemon: Daemon, on_output: str) -> None:
    script = f"import fumehood\nfumehood.Client().run({SLEEPER!r}, on_output={on_output})"
    before = newest(client).run_id
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        env={"FUMEHOOD_URL": daemon.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    bound = time.monotonic() + 30
    while (run := newest(client)).run_id == before or run.status != "RUNNING":
        assert time.monotonic() < bound, run
        time.sleep(0.05)
    if on_output != "None":
        assert child.stdout is not None
        assert child.stdout.readline() == "began\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert until_ended(client, run.run_id).status == "CANCELLED"


def test_artifacts_are_copied_whole_and_checked(
    client: Client, daemon: Daemon, tmp_path: Path
) -> None:
    code = "import os\nos.makedirs('out/a/b')\nopen('out/a/b/c.bin', 'wb').write(bytes(3 << 20))"
    result = client.run(code, artifacts_to=tmp_path / "kept")
    assert (tmp_path / "kept/a/b/c.bin").stat().st_size == 3 << 20
    assert client.save_artifacts(result, tmp_path / "kept") == [tmp_path / "kept/a/b/c.bin"]
    kept = daemon.output_root / "models" / result.execution_id / "a/b/c.bin"
    kept.write_bytes(b"another")
    with pytest.raises(ArtifactsUnavailableError, match="not the file that the program left"):
        client.save_artifacts(result, tmp_path / "other")
    kept.unlink()
    with pytest.raises(ArtifactsUnavailableError, match="does not send files"):
        client.save_artifacts(result, tmp_path / "other")
    assert [path for path in (tmp_path / "other").rglob("*") if path.is_file()] == []

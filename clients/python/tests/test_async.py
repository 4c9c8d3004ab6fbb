"""The client for event loops, against a real daemon."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from conftest import QUICK
from support_proxy import Cut, Proxy

from fumehood import AsyncClient, NotFoundError, Output, WaitTimeoutError

if TYPE_CHECKING:
    from pathlib import Path

    from support_daemon import Daemon

SLEEPER = "import time\nprint('began', flush=True)\ntime.sleep(60)"


async def until_cancelled(client: AsyncClient, run_id: str) -> None:
    async def poll() -> None:
        while (await client.get(run_id)).status != "CANCELLED":
            await asyncio.sleep(0.05)

    await asyncio.wait_for(poll(), 30)


async def newest(client: AsyncClient) -> str:
    async for run in client.runs(page_size=1):
        return run.run_id
    raise AssertionError("there is no run")


def test_has_every_method_of_the_other_client(daemon: Daemon, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncClient(daemon.url, output_root=daemon.output_root) as client:
            pieces: list[Output] = []
            code = "print('é')\nopen('out/a.txt', 'w').write('a')"
            result = await client.run(
                code, on_output=pieces.append, artifacts_to=tmp_path, check=True
            )
            assert result.stdout == "".join(piece.text for piece in pieces) == "é\n"
            assert (tmp_path / "a.txt").read_text() == "a"
            run_id = result.run.run_id
            assert await client.artifacts(run_id) == list(result.artifacts)
            assert (await client.episodes(run_id))["run_id"] == run_id
            assert result.execution_id in str(await client.receipt(run_id))
            assert (await client.health())["status"] == "ok"
            assert (await client.cancel(run_id)).status == "SUCCESS"
            submitted = await client.submit("print(2)")
            assert (await client.wait(submitted)).stdout == "2\n"
            assert await newest(client) == submitted.run_id
            with pytest.raises(NotFoundError):
                await client.get("x")

    asyncio.run(scenario())


def test_runs_go_side_by_side(daemon: Daemon) -> None:
    async def scenario() -> list[str]:
        async with AsyncClient(daemon.url) as client:
            results = await asyncio.gather(*(client.run(f"print({n})") for n in range(4)))
            return [result.stdout for result in results]

    assert asyncio.run(scenario()) == [f"{n}\n" for n in range(4)]


def test_listeners_may_be_coroutines_and_connections_may_break(proxy: Proxy) -> None:
    async def scenario() -> None:
        pieces: list[str] = []

        async def listen(output: Output) -> None:
            await asyncio.sleep(0)
            pieces.append(output.text)

        proxy.cuts.append(Cut(b"GET /runs/", after=1500, times=2))
        proxy.cuts.append(Cut(b"POST /runs HTTP"))
        async with AsyncClient(proxy.url, retries=QUICK) as client:
            code = (
                "import time\nfor n in range(40):\n    print(n, flush=True)\n    time.sleep(0.03)"
            )
            result = await client.run(code, on_output=listen)
        assert "".join(pieces) == result.stdout == "".join(f"{n}\n" for n in range(40))
        assert proxy.cuts[0].times == 0

    asyncio.run(scenario())


def test_a_cancelled_task_cancels_its_run(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with AsyncClient(daemon.url) as client:
            began = asyncio.Event()
            running = asyncio.create_task(
                client.run(SLEEPER, on_output=lambda _output: began.set())
            )
            await asyncio.wait_for(began.wait(), 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until_cancelled(client, await newest(client))
            with pytest.raises(WaitTimeoutError):
                await client.run(SLEEPER, wait_seconds=1)
            await until_cancelled(client, await newest(client))

    asyncio.run(scenario())

"""What the network and the daemon's life may do to a client."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING

import pytest
from conftest import QUICK
from support_daemon import Daemon
from support_proxy import Cut, Proxy

from fumehood import Client, ConflictError, Output, RetryPolicy, TransportError

if TYPE_CHECKING:
    from types import FrameType

COUNTER = "import time\nfor n in range(60):\n    print('line', n, flush=True)\n    time.sleep(0.03)"
LINES = "".join(f"line {n}\n" for n in range(60))


def number_of_runs(client: Client) -> int:
    return sum(1 for _ in client.runs())


def test_output_goes_on_where_the_connection_was_cut(proxied: Client, proxy: Proxy) -> None:
    proxy.cuts.append(Cut(b"GET /runs/", after=1500, times=4))
    pieces: list[Output] = []
    result = proxied.run(COUNTER, on_output=pieces.append)
    assert result.stdout == LINES
    assert "".join(piece.text for piece in pieces) == LINES
    asked = [
        re.search(rb"(?i)\nlast-event-id: [0-9a-f]{8}-(\d+)", request) for request in proxy.seen
    ]
    resumed = [int(found.group(1)) for found in asked if found]
    assert len(resumed) == 4
    assert resumed == sorted(set(resumed))


def test_events_are_repeated_for_who_does_not_say_where_it_was(client: Client) -> None:
    """The control of the test before: without the number everything comes again."""
    submitted = client.submit("print(1)")
    first = list(client.events(submitted.run_id))
    assert list(client.events(submitted.run_id)) == first
    rest = list(client.events(submitted.run_id, last_event_id=first[1].id))
    assert rest == first[2:]


@pytest.mark.parametrize("after", [0, 20])
def test_a_lost_answer_does_not_make_two_runs(
    client: Client, proxied: Client, proxy: Proxy, after: int
) -> None:
    before = number_of_runs(client)
    proxy.cuts.append(Cut(b"POST /runs HTTP", after=after, times=3))
    assert proxied.run("print('once')").stdout == "once\n"
    submissions = [request for request in proxy.seen if request.startswith(b"POST /runs HTTP")]
    assert len(submissions) >= 4
    assert number_of_runs(client) == before + 1


def test_without_the_same_key_there_are_two(client: Client) -> None:
    """The control of the test before."""
    before = number_of_runs(client)
    for key in ("a", "b", "b"):
        client.wait(client.submit("print(1)", idempotency_key=f"{before}-{key}"))
    assert number_of_runs(client) == before + 2
    with pytest.raises(ConflictError, match="another request body"):
        client.submit("print(2)", idempotency_key=f"{before}-b")


def test_patience_with_the_network_ends(proxy: Proxy) -> None:
    proxy.cuts.append(Cut(b"POST", times=99))
    twice = RetryPolicy(attempts=2, first_delay=0.01)
    words = "cannot be reached"
    with Client(proxy.url, retries=twice) as client, pytest.raises(TransportError, match=words):
        client.submit("print(1)")
    assert len(proxy.seen) == 2


def test_an_answer_that_does_not_come_is_not_waited_for(proxy: Proxy) -> None:
    proxy.cuts.append(Cut(b"POST", is_silent=True))
    with Client(proxy.url, timeout=0.5, retries=QUICK) as client:
        assert client.submit("print(1)").run_id


def test_an_interrupt_before_the_answer_leaves_no_run_behind(
    client: Client, proxied: Client, proxy: Proxy
) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = number_of_runs(client)
    proxy.cuts.append(Cut(b"POST /runs HTTP", is_silent=True))
    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            proxied.run("import time\ntime.sleep(60)")
    finally:
        signal.signal(signal.SIGALRM, usual)
    assert number_of_runs(client) == before + 1
    run = next(client.runs())
    bound = time.monotonic() + 20
    while client.get(run.run_id).status != "CANCELLED":
        assert time.monotonic() < bound
        time.sleep(0.05)


def test_a_run_is_followed_across_a_daemon_that_is_killed_and_started_again() -> None:
    daemon = Daemon()
    code = "import time\nfor n in range(6):\n    print(n, flush=True)\n    time.sleep(0.4)"
    pieces: list[str] = []

    def listen(output: Output) -> None:
        pieces.append(output.text)
        if len(pieces) == 2:
            daemon.kill()
            daemon.start()

    try:
        with Client(daemon.url) as client:
            result = client.run(code, on_output=listen)
            assert number_of_runs(client) == 1
        assert (result.success, result.stdout) == (True, "0\n1\n2\n3\n4\n5\n"), result
        assert "".join(pieces).endswith("5\n")
    finally:
        daemon.stop()

"""One daemon for most tests, and a client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support_daemon import Daemon
from support_proxy import Proxy

from fumehood import Client, PythonRunner, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = RetryPolicy(first_delay=0.05, longest_delay=0.5)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    running = Daemon()
    yield running
    running.stop()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    with Client(daemon.url, output_root=daemon.output_root) as made:
        yield made


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[Proxy]:
    made = Proxy(daemon.port)
    yield made
    made.close()


@pytest.fixture
def proxied(proxy: Proxy) -> Iterator[Client]:
    """A client behind the proxy that does not wait long."""
    with Client(proxy.url, retries=QUICK) as made:
        yield made


@pytest.fixture
def runner(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[PythonRunner]:
    monkeypatch.setenv("FUMEHOOD_URL", daemon.url)
    # As where daemon and service are started in the same directory.
    monkeypatch.chdir(daemon.directory)
    made = PythonRunner()
    yield made
    made.close()

"""One daemon for most tests, and a client of it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from support_daemon import Daemon
from support_proxy import Proxy

from fumehood import Client, PythonRunner, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.terminal import TerminalReporter

QUICK = RetryPolicy(first_delay=0.05, longest_delay=0.5)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """One more line, in the words of the other tests of the repository, which are counted by it."""
    reports = terminalreporter.stats
    passed, failed = len(reports.get("passed", [])), len(reports.get("failed", []))
    failed += len(reports.get("error", []))
    word = "FAILED" if failed else "ok"
    terminalreporter.write_line(f"test result: {word}. {passed} passed; {failed} failed")


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    running = Daemon()
    yield running
    # What a test that failed left would be kept for the next daemon, and there is none.
    with Client(running.url) as client:
        for status in ("QUEUED", "RUNNING"):
            for run in client.runs(status):
                client.cancel(run.run_id)
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
def http_server() -> Iterator[str]:
    """Something else that speaks HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            body = b"<html>" if self.path == "/health" else b"{}"
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def runner(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[PythonRunner]:
    monkeypatch.setenv("FUMEHOOD_URL", daemon.url)
    # As where daemon and service are started in the same directory.
    monkeypatch.chdir(daemon.directory)
    made = PythonRunner()
    yield made
    made.close()

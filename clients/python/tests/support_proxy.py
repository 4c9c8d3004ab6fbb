"""A TCP proxy that cuts answers off."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field

_PIECE = 1 << 16


@dataclass
class Cut:
    """What happens to some requests.

    Attributes:
        request: How the requests begin, such as ``POST /runs HTTP``.
        after: Bytes of the answer, its head included, that are let through before the cut.
        times: How many of the requests it happens to.
        is_silent: The connection stays open and nothing comes any more, instead of a reset.
    """

    request: bytes
    after: int = 0
    times: int = 1
    is_silent: bool = False


@dataclass
class Proxy:
    """Listens on a port of its own and passes everything to another one."""

    target: int
    cuts: list[Cut] = field(default_factory=list)
    seen: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Closes everything."""
        _end(self._listener)
        for connection in self._open:
            _end(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            self._open += [client, server]
            link = _Link(self, client, server)
            threading.Thread(target=link.pass_requests, daemon=True).start()
            threading.Thread(target=link.pass_answers, daemon=True).start()

    def cut_for(self, request: bytes) -> Cut | None:
        """What is to happen to this request; counts it."""
        self.seen.append(request)
        for cut in self.cuts:
            if cut.times and request.startswith(cut.request):
                cut.times -= 1
                return cut
        return None


@dataclass
class _Link:
    proxy: Proxy
    client: socket.socket
    server: socket.socket
    cut: Cut | None = None
    passed: int = 0

    def pass_requests(self) -> None:
        while piece := _receive(self.client):
            if piece.startswith((b"GET ", b"POST ")):
                self.cut, self.passed = self.proxy.cut_for(piece), 0
            try:
                self.server.sendall(piece)
            except OSError:
                break
        _end(self.server)

    def pass_answers(self) -> None:
        while piece := _receive(self.server):
            if self.cut is not None:
                piece = piece[: max(0, self.cut.after - self.passed)]
            try:
                self.client.sendall(piece)
            except OSError:
                break
            self.passed += len(piece)
            if self.cut is not None and self.passed >= self.cut.after:
                if not self.cut.is_silent:
                    _end(self.client)
                return
        _end(self.client)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(_PIECE)
    except OSError:
        return b""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()

"""A small client of the Docker Engine's HTTP interface over its unix socket, with keep-alive."""

import http.client
import json
import os
import socket
import threading
from urllib.parse import quote, urlencode

CALL_TIMEOUT = 120.0


class EngineError(Exception):
    """The engine refused, or could not be asked."""


def socket_path() -> str:
    """Where the engine listens: as the docker command finds it."""
    host = os.environ.get("DOCKER_HOST", "")
    return host.removeprefix("unix://") if host.startswith("unix://") else "/var/run/docker.sock"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str):
        super().__init__("engine", timeout=CALL_TIMEOUT)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


# What a connection shows that the other side has closed while nobody used it.
STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


def exchange(connection: http.client.HTTPConnection, method: str, path: str, payload: str | None,
             headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
    """A request and its answer over a kept connection, which is made anew if it went stale."""
    is_fresh = connection.sock is None
    try:
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
    except STALE:
        if is_fresh:
            raise
        connection.close()
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
    return answer, answer.read()


class Engine:
    """One connection for each thread, kept."""

    def __init__(self) -> None:
        self.path = socket_path()
        self.threads = threading.local()

    def call(self, method: str, path: str, body: object = None) -> object:
        connection = getattr(self.threads, "connection", None)
        if connection is None:
            connection = self.threads.connection = UnixConnection(self.path)
        payload = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer, text = exchange(connection, method, path, payload, headers)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise EngineError(f"{method} {path}: {error}") from error
        if answer.status >= 400:
            raise EngineError(f"{method} {path}: {answer.status} {text[:200].decode(errors='replace')}")
        # Some answers have no JSON, as that of /_ping.
        return json.loads(text) if text[:1] in (b"{", b"[") else None

    def create(self, body: dict) -> str:
        return self.call("POST", "/containers/create", body)["Id"]

    def start(self, container: str) -> None:
        self.call("POST", f"/containers/{container}/start")

    def wait(self, container: str) -> int:
        return self.call("POST", f"/containers/{container}/wait")["StatusCode"]

    def remove(self, container: str) -> None:
        self.call("DELETE", f"/containers/{container}?force=true&v=true")

    def image(self, reference: str) -> dict:
        return self.call("GET", f"/images/{quote(reference, safe='')}/json")

    def remove_images_labelled(self, label: str) -> None:
        """Removes the images that carry the label."""
        query = urlencode({"filters": json.dumps({"label": [label]})})
        for found in self.call("GET", f"/images/json?{query}"):
            self.call("DELETE", f"/images/{found['Id']}?force=true")

    def labelled(self, label: str, running_only: bool = False) -> list[str]:
        """The containers that carry `name=value`."""
        query = urlencode({
            "all": "false" if running_only else "true",
            "filters": json.dumps({"label": [label]}),
        })
        return [found["Id"] for found in self.call("GET", f"/containers/json?{query}")]

    def remove_labelled(self, label: str) -> int:
        """Removes what carries the label; what is gone in between is fine."""
        found = self.labelled(label)
        for container in found:
            try:
                self.remove(container)
            except EngineError as error:
                if " 404 " not in str(error) and " 409 " not in str(error):
                    raise
        return len(found)

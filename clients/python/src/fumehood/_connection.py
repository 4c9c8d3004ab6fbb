"""Where the daemon is, who asks, and how both are told to httpx."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from fumehood._answers import Answer
from fumehood.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from fumehood._request import Request

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT = 30.0


@dataclass(frozen=True)
class Connection:
    """The daemon as a caller named it.

    Attributes:
        url: Its address without a slash at the end.
        token: ``fh_…``, or ``None`` for a daemon without tokens.
        timeout: Seconds that connecting, sending and receiving may each stand still.
        output_root: The daemon's ``app.output_root`` as seen from here, if it is on this host.
    """

    url: str
    token: str | None = field(repr=False)
    timeout: float
    output_root: Path

    @classmethod
    def to(
        cls,
        url: str | None,
        token: str | None,
        timeout: float,
        output_root: str | os.PathLike[str] | None,
    ) -> Connection:
        """What is ``None`` comes from the environment.

        Raises:
            ConfigurationError: The address is none.
        """
        address = (url or os.environ.get("FUMEHOOD_URL") or DEFAULT_URL).strip().rstrip("/")
        try:
            parsed = httpx.URL(address)
        except httpx.InvalidURL as error:
            raise _no_address(address) from error
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise _no_address(address)
        found = token or os.environ.get("FUMEHOOD_TOKEN") or None
        if found is not None and not (found.isascii() and found.isprintable()):
            raise ConfigurationError("The token has characters that no token has.")
        root = output_root or os.environ.get("FUMEHOOD_APP__OUTPUT_ROOT") or "outputs"
        return cls(address, found, timeout, Path(root))

    def arguments(self) -> dict[str, Any]:
        """Arguments of both of httpx's clients."""
        headers = {"User-Agent": f"fumehood-python/{version('fumehood')}"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": self.timeout,
            # A proxy of the environment has no way to this host's own addresses.
            "trust_env": not _is_loopback(httpx.URL(self.url).host),
        }

    def timeouts(self, request: Request) -> httpx.Timeout:
        """Bounds of one request."""
        return httpx.Timeout(self.timeout, read=self.timeout + request.patience)

    def failed(self, error: httpx.HTTPError) -> TransportError:
        """The exception for a request that got no answer."""
        what = str(error) or type(error).__name__
        return TransportError(
            f"{self.url} cannot be reached: {what}",
            "Start the daemon with `fumehood serve`, or set FUMEHOOD_URL to where it is.",
        )


def answer(response: httpx.Response) -> Answer:
    """A response whose body was read."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(response.status_code, headers, response.content)


def _no_address(address: str) -> ConfigurationError:
    return ConfigurationError(
        f"{address!r} is not the address of a daemon.",
        f"Write it as {DEFAULT_URL}, in url=… or in FUMEHOOD_URL.",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

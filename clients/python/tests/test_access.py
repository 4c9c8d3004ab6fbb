"""Who may ask for what, and how much of it."""

from __future__ import annotations

import pytest
from support_daemon import Daemon

from fumehood import (
    AuthenticationError,
    Client,
    ConfigurationError,
    InvalidRequestError,
    PermissionDeniedError,
    QuotaExceededError,
    RetryPolicy,
    UnavailableError,
)

NO_RETRIES = RetryPolicy(attempts=1)

_SETTINGS = """
[app]
allowed_data_root = "data"
[pool]
size = 0
[doctor]
at_start = false
[auth]
tokens_file = "tokens"
[tenants.alice]
max_concurrent_runs = 1
max_queued_runs = 1
"""


_CREATE = ("token", "create", "--tenant", "alice", "--role")


def _make_tokens(daemon: Daemon) -> str:
    return "\n".join(daemon.command(*_CREATE, role) for role in ("submit", "read"))


def test_tokens_roles_and_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon(_SETTINGS, prepare=_make_tokens)
    submitter, reader = daemon.prepared.split()
    try:
        monkeypatch.setenv("FUMEHOOD_URL", daemon.url + "/")
        monkeypatch.setenv("FUMEHOOD_TOKEN", submitter)
        with Client(retries=NO_RETRIES) as client:
            sleeper = client.submit("import time\ntime.sleep(60)")
            next(event for event in client.events(sleeper.run_id) if event.kind != "status")
            waiting = client.submit("print(1)")
            with pytest.raises(QuotaExceededError, match="Too many runs") as refused:
                client.submit("print(2)")
            assert refused.value.retry_after
            for one in (sleeper, waiting):
                client.cancel(one.run_id)
        with Client(token=reader, retries=NO_RETRIES) as client:
            assert client.get(sleeper.run_id).run_id == sleeper.run_id
            with pytest.raises(PermissionDeniedError, match="has to be submit"):
                client.submit("print(1)")
        monkeypatch.delenv("FUMEHOOD_TOKEN")
        for token in (None, "fh_wrong"):
            with Client(token=token) as client:
                with pytest.raises(AuthenticationError, match="FUMEHOOD_TOKEN"):
                    client.run("print(1)")
                with pytest.raises(AuthenticationError):
                    list(client.events(sleeper.run_id))
    finally:
        daemon.stop()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dataset": "/etc"}, "Dataset path is outside allowed data root"),
        ({"dataset": "data/none"}, "Invalid dataset directory"),
        ({"memory_mb": -1}, "options.memory_mb: Input should be"),
        ({"cpus": float("nan")}, "numbers finite"),
        ({"input_files": {"a": "\ud800"}}, "valid Unicode"),
        ({"options": {"image": "other"}}, "options.image: Input should be '"),
        ({"idempotency_key": "a b"}, "idempotency-key: Value error"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(
    client: Client, given: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        client.submit("print(1)", **given)  # type: ignore[arg-type]


def test_options_that_there_are_not_are_refused_here(client: Client) -> None:
    with pytest.raises(TypeError, match="timeout_second"):
        client.submit("print(1)", timeout_second=1)  # type: ignore[call-arg]


def test_too_large_a_request_says_what_to_do(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match="into the data set"):
        client.submit("print(1)", input_files={"a.bin": bytes(20 << 20)})


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://[::1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="FUMEHOOD_URL"):
        Client(url)
    with pytest.raises(ConfigurationError, match="token"):
        Client(token="a\nb")


def test_a_token_is_not_shown(daemon: Daemon) -> None:
    with Client(daemon.url, "fh_secret") as client:
        assert "fh_secret" not in repr(vars(client))


def test_an_answer_of_somebody_else_is_told(http_server: str) -> None:
    with Client(http_server) as client:
        for ask, words in ((client.health, "not fumehood's: <html>"), (client.runs, "'runs'")):
            with pytest.raises(UnavailableError, match=words):
                list(ask())

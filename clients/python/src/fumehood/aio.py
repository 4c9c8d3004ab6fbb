"""The client for programs with an event loop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import httpx

from fumehood import _artifacts, _plans
from fumehood._connection import DEFAULT_TIMEOUT, Connection, answer
from fumehood._drive import carry_out_async
from fumehood._follow import Follower
from fumehood._request import Submission, SubmitOptions, submission
from fumehood._retry import RetryPolicy
from fumehood.errors import FumehoodError

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path
    from types import TracebackType
    from typing import Callable

    from typing_extensions import Self, Unpack

    from fumehood._events import Event, Output
    from fumehood.models import Artifact, Result, Run

T = TypeVar("T")

_WITHDRAWAL_SECONDS = 10.0


class AsyncClient:
    """Talks to a daemon; see :class:`fumehood.Client`, of which this has every method.

    Closes its connections with ``async with``. A task that is cancelled cancels its run.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retries: RetryPolicy | None = None,
        output_root: str | os.PathLike[str] | None = None,
    ) -> None:
        self._connection = Connection.to(url, token, timeout, output_root)
        self._policy = retries or RetryPolicy()
        self._http = httpx.AsyncClient(**self._connection.arguments())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def output_root(self) -> Path:
        """The daemon's ``app.output_root`` as seen from here."""
        return self._connection.output_root

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def run(
        self,
        code: str,
        dataset: str | None = None,
        *,
        on_output: Callable[[Output], Awaitable[None] | None] | None = None,
        artifacts_to: str | os.PathLike[str] | None = None,
        wait_seconds: float | None = None,
        check: bool = False,
        **options: Unpack[SubmitOptions],
    ) -> Result:
        """Runs a program to its end. If this is left before, the run is cancelled.

        Args:
            code: The Python program.
            dataset: Directory below the daemon's allowed root, found read-only at ``/data``.
            on_output: Called with each piece of output as it comes, such as :func:`fumehood.echo`.
            artifacts_to: Folder to copy what the program left into.
            wait_seconds: How long to wait in all, queue included; for ever by default.
            check: Raise :class:`fumehood.RunFailedError` if the program did not succeed.
            options: See :class:`fumehood.SubmitOptions`.

        Raises:
            RunFailedError: With ``check``, or if the run ended without an execution.
            WaitTimeoutError: ``wait_seconds`` have passed.
            ArtifactsUnavailableError: ``artifacts_to`` was given, and they cannot be had from here.
        """
        deadline = _plans.deadline(wait_seconds)
        wanted = submission(code, dataset, options)
        try:
            wanted = await self._carry_out(_plans.submit(wanted, self._policy))
            result = await self._result(wanted, on_output, deadline)
        except BaseException as error:
            if _plans.is_to_be_withdrawn(wanted, error):
                patience = anyio.move_on_after(_WITHDRAWAL_SECONDS, shield=True)
                with patience, contextlib.suppress(FumehoodError):
                    await self._carry_out(_plans.withdraw(wanted))
            raise
        if artifacts_to is not None:
            await self.save_artifacts(result, artifacts_to)
        return result.check() if check else result

    async def submit(
        self, code: str | None = None, dataset: str | None = None, **options: Unpack[SubmitOptions]
    ) -> Submission:
        """Has a run accepted and does not wait for it.

        Without ``code`` the daemon writes the program by ``instruction``, if it can do that.
        """
        return await self._carry_out(
            _plans.submit(submission(code, dataset, options), self._policy)
        )

    async def wait(
        self,
        submitted: Submission,
        *,
        on_output: Callable[[Output], Awaitable[None] | None] | None = None,
        wait_seconds: float | None = None,
    ) -> Result:
        """Waits until a run has ended. If this is left before, the run goes on.

        Raises:
            RunFailedError: The run ended without the result of an execution.
            WaitTimeoutError: ``wait_seconds`` have passed.
        """
        return await self._result(submitted, on_output, _plans.deadline(wait_seconds))

    def events(self, run_id: str, *, last_event_id: str | None = None) -> AsyncIterator[Event]:
        """What happens in a run, from its begin or after an event, until it is over.

        A connection that breaks is made anew where it broke, without loss or repetition.
        """
        return self._follow(Follower(run_id, last_event_id, self._policy))

    async def get(self, run_id: str) -> Run:
        """A run as it is now."""
        return await self._carry_out(_plans.run(run_id, self._policy))

    async def runs(self, status: str | None = None, page_size: int = 100) -> AsyncIterator[Run]:
        """Runs, newest first, page by page as they are needed; of one status, if given."""
        cursor: str | None = None
        while True:
            runs, cursor = await self._carry_out(
                _plans.page(status, page_size, cursor, self._policy)
            )
            for run in runs:
                yield run
            if cursor is None:
                return

    async def cancel(self, run_id: str) -> Run:
        """Ends a run. One that has ended stays as it is."""
        return await self._carry_out(_plans.cancel(run_id, self._policy))

    async def episodes(self, run_id: str) -> dict[str, Any]:
        """What was executed in a run, as the daemon tells it."""
        path = _plans.path_of(run_id, "/episodes")
        return await self._carry_out(_plans.document(path, self._policy))

    async def artifacts(self, run_id: str) -> list[Artifact]:
        """Which files a run left."""
        return await self._carry_out(_plans.artifacts(run_id, self._policy))

    async def save_artifacts(self, result: Result, folder: str | os.PathLike[str]) -> list[Path]:
        """Copies what a program left into a folder, which is made if need be; gives the copies.

        The daemon does not send files yet, so this works on its own host only.

        Raises:
            ArtifactsUnavailableError: They are not there, or not those that the daemon tells of.
        """
        root = self._connection.output_root
        return await anyio.to_thread.run_sync(_artifacts.copy, root, result, folder)

    async def receipt(self, run_id: str) -> dict[str, Any]:
        """The signed receipt of a run's last execution."""
        path = _plans.path_of(run_id, "/receipt")
        return await self._carry_out(_plans.document(path, self._policy))

    async def health(self) -> dict[str, Any]:
        """The daemon's status and version."""
        return await self._carry_out(_plans.document("/health", self._policy))

    async def _result(
        self,
        submitted: Submission,
        on_output: Callable[[Output], Awaitable[None] | None] | None,
        deadline: float | None,
    ) -> Result:
        if on_output is not None:
            async for event in self._follow(
                Follower(submitted.run_id, None, self._policy, deadline)
            ):
                if event.output is not None:
                    pending = on_output(event.output)
                    if pending is not None:
                        await pending
        return await self._carry_out(_plans.result(submitted, deadline, self._policy))

    async def _follow(self, follower: Follower) -> AsyncIterator[Event]:
        while not follower.is_over:
            failure: FumehoodError | None = None
            try:
                async with self._http.stream(
                    **follower.request(self._connection.timeout)
                ) as response:
                    if response.is_success:
                        async for piece in response.aiter_bytes():
                            for event in follower.feed(piece):
                                yield event
                    else:
                        await response.aread()
                        failure = answer(response).error()
            except httpx.RequestError as error:
                failure = self._connection.failed(error)
            await anyio.sleep(follower.broken(failure))

    async def _carry_out(self, plan: _plans.Plan[T]) -> T:
        return await carry_out_async(plan, self._http, self._connection)

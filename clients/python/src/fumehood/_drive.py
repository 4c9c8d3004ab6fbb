"""Carries plans out over httpx, without and with an event loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import httpx

from fumehood._connection import Connection, answer
from fumehood._plans import Plan, Sleep

if TYPE_CHECKING:
    from fumehood._request import Request

T = TypeVar("T")


def carry_out(plan: Plan[T], http: httpx.Client, connection: Connection) -> T:
    """What the plan comes to."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Sleep):
                time.sleep(step.seconds)
                step = plan.send(None)
                continue
            try:
                response = http.request(**_arguments(step, connection))
            except httpx.RequestError as error:
                step = plan.throw(connection.failed(error))
            else:
                step = plan.send(answer(response))
    except StopIteration as end:
        value: T = end.value
        return value


async def carry_out_async(plan: Plan[T], http: httpx.AsyncClient, connection: Connection) -> T:
    """What the plan comes to."""
    try:
        step = next(plan)
        while True:
            if isinstance(step, Sleep):
                await anyio.sleep(step.seconds)
                step = plan.send(None)
                continue
            try:
                response = await http.request(**_arguments(step, connection))
            except httpx.RequestError as error:
                step = plan.throw(connection.failed(error))
            else:
                step = plan.send(answer(response))
    except StopIteration as end:
        value: T = end.value
        return value


def _arguments(request: Request, connection: Connection) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path,
        "content": request.body,
        "headers": dict(request.headers),
        "timeout": connection.timeouts(request),
    }

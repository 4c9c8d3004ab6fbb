"""Figures beside the matrix, each a function from the context to plain values for the results.

One that cannot be taken here raises `Unavailable` with the reason.
"""

from collections.abc import Callable

from ..contenders import Context
from . import accepting, hot_calls, memory, sustained

ALL: dict[str, Callable[[Context], dict]] = {
    "sustained": sustained.measure,
    "accepting": accepting.measure,
    "memory": memory.measure,
    "hot-calls": hot_calls.measure,
}

__all__ = ["ALL"]

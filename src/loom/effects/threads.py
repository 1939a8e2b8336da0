"""Threads for the engine's own work that is too long for the event loop.

They are apart from asyncio's default threads, in which bodies of authors run: these may all be busy for hours, and what
the engine does for other runs must not wait for them.

Python runs one thread at a time, so more threads finish nothing sooner: each one more makes the event loop wait longer
for its turn. So there are few, and what takes seconds has a thread of its own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from loom.effects.weight import is_heavier

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

Work = Literal["reduce", "convert", "replay", "judge"]
"""What threads are for: transitions and commits; decoding and encoding; stored journals and flows; new documents."""

OFF_LOOP_BYTES = 64 * 1024
"""What is larger is encoded or decoded in a thread. On the event loop that much takes a few milliseconds at most."""

_THREADS: dict[Work, int] = {"reduce": 2, "convert": 2, "replay": 2, "judge": 2}


@cache
def _pool(work: Work) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS[work], f"loom-{work}")


async def aside(work: Work, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a thread, with the context variables of the caller, and give what it returns.

    On a loop with a virtual clock it is called in place: when a thread is done would decide what happens first, and the
    same seed must give the same simulation.
    """
    if getattr(asyncio.get_running_loop(), "calls_in_place", False):
        return function(*args, **kwargs)
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool(work), call)


async def aside_if_large(function: Callable[[T], R], value: T) -> R:
    """Convert a value: in a thread if it is large, else at once."""
    if is_heavier((value,), OFF_LOOP_BYTES):
        return await aside("convert", function, value)
    return function(value)

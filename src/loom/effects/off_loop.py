"""Work that is too long for the event loop: how much values weigh, and the threads that take it.

The threads are apart from asyncio's default threads, in which bodies of authors run: those may all be busy for hours,
and what the engine does for other runs must not wait for them. Python runs one thread at a time, so more threads finish
nothing sooner: each one more makes the event loop wait longer for its turn. So there are few.

Weights count characters and elements, without encoding anything.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import msgspec

from loom.core.persistent import Map
from loom.core.ticks import TickAddEvent, TickPublishEvent, TickStepResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import ThreadPoolExecutor

    from loom.core.records import EventRecord
    from loom.core.ticks import WorkflowTick


# --- threads ----------------------------------------------------------------------------------------------------------

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
Work = Literal["reduce", "convert", "replay", "judge"]
"""The purposes of threads: transitions and commits; decoding and encoding; stored journals and flows; new documents."""
OFF_LOOP_BYTES = 64 * 1024
"""Bytes above which data is encoded or decoded in a thread. On the event loop that many take a few milliseconds."""
_THREADS: dict[Work, int] = {"reduce": 2, "convert": 2, "replay": 2, "judge": 2}


@cache
def _pool(work: Work) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # small runs need no thread

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


# --- weights ----------------------------------------------------------------------------------------------------------

MAX_VALUES = 250_000
"""How many values the body of an answer may decode to, unless a setting says otherwise. A value takes up to 200 bytes
and a microsecond wherever code walks it: so one answer holds neither the event loop nor the memory of a process."""
_FRAME = 150
"""What a tick weighs beside its event."""
_ELEMENT = 32
"""What an element of an array, or a property of an object, weighs beside its text. In memory it takes 8 bytes at least,
and about 100 if it is an array or object itself; and about 0.2 us whenever all of it is decoded, by a call that cannot
be interrupted."""
_LEAVES = frozenset({int, float, bool, type(None), bytes})


def is_heavier(values: Iterable[Any], limit: int) -> bool:
    """Say whether values weigh more than this."""
    return weight_of(values, limit) > limit


def weight_of(values: Iterable[Any], limit: int) -> int:
    """Count the characters in values, and 32 for each element. It looks no further than past the limit.

    A text that is named many times is there once in memory, but counts as often as it is named: so it is encoded.
    """
    weight, waiting = 0, list(values)
    while waiting and weight <= limit:
        value = waiting.pop()
        kind = type(value)
        if kind is str:
            weight += len(value)
            continue
        if kind is dict or kind is Map:
            weight += len(value) * _ELEMENT
            parts: list[Any] = [*value, *value.values()]
        elif kind is list or kind is tuple:
            weight += len(value) * _ELEMENT
            parts = value
        elif isinstance(value, tuple):  # with names
            weight += len(value) * _ELEMENT
            parts = list(value)
        elif isinstance(value, msgspec.Struct):
            parts = [getattr(value, name) for name in value.__struct_fields__]
        else:
            continue
        # Most parts are texts and numbers: they are counted here, and never come to wait.
        for part in parts:
            kind = type(part)
            if kind is str:
                weight += len(part)
            elif kind not in _LEAVES:
                waiting.append(part)
    return weight


def has_more_values(value: Any, limit: int) -> bool:
    """Say whether a value holds more than `limit` others, in lists and objects. It looks no further than that."""
    waiting = [value] if isinstance(value, dict | list | tuple) else []
    count = 0
    while waiting and count <= limit:
        one = waiting.pop()
        parts = one.values() if isinstance(one, dict) else one
        count += len(one)
        if count <= limit:
            waiting += [part for part in parts if isinstance(part, dict | list | tuple)]
    return count > limit


def weight_of_tick(tick: WorkflowTick, limit: int) -> int:
    """Count the characters and elements in a tick, roughly: most weigh what their event does."""
    kind = type(tick)
    records: Iterable[EventRecord]
    if kind is TickPublishEvent or kind is TickAddEvent:
        records = (tick.event,)  # type: ignore[union-attr,assignment]
    elif kind is TickStepResult and not tick.collects and tick.failure is None:  # type: ignore[union-attr]
        records = tick.returned  # type: ignore[union-attr]
    else:
        return _FRAME + weight_of((tick,), limit)
    weight = _FRAME
    for record in records:
        body = record.body
        if type(body) is not str:
            return _FRAME + weight_of((tick,), limit)
        weight += len(body)
    return weight

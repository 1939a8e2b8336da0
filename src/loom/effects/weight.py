"""How much values weigh, by their characters and elements, without encoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from immutables import Map

from loom.core.ticks import TickAddEvent, TickPublishEvent, TickStepResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.records import EventRecord
    from loom.core.ticks import WorkflowTick

MAX_VALUES = 250_000
"""How many values the body of an answer may decode to, unless a setting says otherwise. A value takes up to 200 bytes
and a microsecond wherever somebody walks it: so one answer holds neither the event loop nor the memory of a process."""
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
    """Whether a value holds more than so many others, in lists and objects. It looks no further than past the limit."""
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

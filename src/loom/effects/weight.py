"""How much values weigh, in characters and elements, without encoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from immutables import Map

from loom.core.ticks import TickAddEvent, TickPublishEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.ticks import WorkflowTick

_FRAME = 150
"""What a tick weighs beside its event."""
_LEAVES = frozenset({int, float, bool, type(None), bytes})


def is_heavier(values: Iterable[Any], limit: int) -> bool:
    """Whether values have more characters and elements in them than this."""
    return weight_of(values, limit) > limit


def weight_of(values: Iterable[Any], limit: int) -> int:
    """Count the characters and elements in values. It looks no further than past the limit.

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
            weight += len(value)
            parts: list[Any] = [*value, *value.values()]
        elif kind is list or kind is tuple:
            weight += len(value)
            parts = value
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


def weight_of_tick(tick: WorkflowTick, limit: int) -> int:
    """Count the characters and elements in a tick, roughly: most weigh what their event does."""
    kind = type(tick)
    if kind is TickPublishEvent or kind is TickAddEvent:
        body = tick.event.body  # type: ignore[union-attr]
        if type(body) is str:
            return _FRAME + len(body)
    return _FRAME + weight_of((tick,), limit)

"""How much values weigh, in characters and elements, without encoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from immutables import Map

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEAVES = frozenset({int, float, bool, type(None), bytes})


def is_heavier(values: Iterable[Any], limit: int) -> bool:
    """Whether values have more characters and elements in them than this. It looks no further than it must.

    A text that is named many times is there once in memory, but counts as often as it is named: so it is encoded.
    """
    left, waiting = limit, list(values)
    while waiting and left >= 0:
        value = waiting.pop()
        kind = type(value)
        if kind is str:
            left -= len(value)
            continue
        if kind is dict or kind is Map:
            left -= len(value)
            parts: list[Any] = [*value, *value.values()]
        elif kind is list or kind is tuple:
            left -= len(value)
            parts = value
        elif isinstance(value, msgspec.Struct):
            parts = [getattr(value, name) for name in value.__struct_fields__]
        else:
            continue
        # Most parts are texts and numbers: they are counted here, and never come to wait.
        for part in parts:
            kind = type(part)
            if kind is str:
                left -= len(part)
            elif kind not in _LEAVES:
                waiting.append(part)
    return left < 0

"""What makes two values the same in a set: a key that can be hashed. Pure.

Two values have one key if they are of one kind and `equals` calls them equal.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.limits import ELEMENT, FEW, MAX_DEPTH, MAX_NODES, NODE
from loom.expressions.metering import spend


def identities(items: list[Any]) -> list[Any]:
    """The keys of some values."""
    if len(items) > FEW:
        spend(2 * len(items) * ELEMENT, 2 * len(items) * _PLACE)
    keys = _Keys()
    return [item if type(item) in _SIMPLE else keys.key(item, MAX_DEPTH) for item in items]


_SIMPLE = frozenset({str, int, type(None)})
"""Kinds whose values are their own keys."""
_PLACE = 24
"""Bytes that a key takes in a table."""


class _Keys:
    """Makes keys, and stops after so many parts."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_NODES

    def key(self, value: Any, depth: int) -> Any:
        if isinstance(value, bool):
            return (bool, value)
        if value is None or isinstance(value, str | int):
            return value
        if isinstance(value, float | Decimal):
            return value if value == value else float  # noqa: PLR0124 (one key for every NaN)
        self.left -= len(value)
        if self.left < 0 or not depth:
            raise FunctionError(f"the values are too large to compare (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        spend(len(value) * NODE, len(value) * _PLACE)
        if isinstance(value, list):
            return (list, *[self.key(item, depth - 1) for item in value])
        return (dict, frozenset((name, self.key(item, depth - 1)) for name, item in value.items()))

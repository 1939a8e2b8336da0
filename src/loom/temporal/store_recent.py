"""The last few things that were read of a cluster. May import the standard library."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The last few values, by key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """A value, if it is still here."""
        return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        """Remember a value, and forget the oldest."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def forget(self, key: K) -> None:
        """As if it had never been here."""
        self._values.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        """All that are still here, the oldest first."""
        return list(self._values.items())

"""Caches of what was used last: of values by key, and of what a function makes of a document."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", bound="str | bytes")
R = TypeVar("R")


class LruCache(Generic[K, V]):
    """Values by key, bounded by their number, by their weight in all, or both. The one used longest ago goes first.

    The newest value stays in any case, also if it alone is too heavy. A cache belongs to one thread, or to callers that
    share a lock.
    """

    __slots__ = ("_max_items", "_max_weight", "_values", "_weight")

    def __init__(self, max_items: int | None = None, *, max_weight: int | None = None) -> None:
        self._max_items = max_items
        self._max_weight = max_weight
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        """The value used last is at the end."""
        self._weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value, which counts as used now; None if there is none."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def peek(self, key: K) -> V | None:
        """Return a value, which does not count as used; None if there is none."""
        found = self._values.get(key)
        return None if found is None else found[0]

    def put(self, key: K, value: V, weight: int = 0) -> None:
        """Add or replace a value, which counts as used now, and drop what is too much."""
        self.drop(key)
        self._values[key] = value, weight
        self._weight += weight
        while len(self._values) > 1 and self._is_too_much():
            _, (_, gone) = self._values.popitem(last=False)
            self._weight -= gone

    def drop(self, key: K) -> None:
        """Remove a value, if there is one."""
        found = self._values.pop(key, None)
        if found is not None:
            self._weight -= found[1]

    def items(self) -> list[tuple[K, V]]:
        """Return all values by key; the one used longest ago is the first."""
        return [(key, value) for key, (value, _) in self._values.items()]

    def _is_too_much(self) -> bool:
        if self._max_items is not None and len(self._values) > self._max_items:
            return True
        return self._max_weight is not None and self._weight > self._max_weight


class TextCache(Generic[T, R]):
    """A function of a document that keeps its newest results, bounded by their number and size. Threads may call it."""

    def __init__(self, make: Callable[[T], R], most: int, bytes_in_all: int) -> None:
        self._make = make
        self._room = bytes_in_all
        self._kept: LruCache[T, tuple[R]] = LruCache(most, max_weight=bytes_in_all)
        """Results, each in a tuple, since a result may be None."""
        self._lock = threading.Lock()
        self.__doc__ = make.__doc__

    def __call__(self, text: T) -> R:
        """Give what was made of a document, or make it and keep it while there is room."""
        with self._lock:
            found = self._kept.get(text)
        if found is not None:
            return found[0]
        made = self._make(text)
        with self._lock:
            found = self._kept.get(text)  # another thread may have been faster
            if found is None and len(text) <= self._room:
                self._kept.put(text, (made,), len(text))
        return made if found is None else found[0]


def text_cache(most: int, bytes_in_all: int) -> Callable[[Callable[[T], R]], TextCache[T, R]]:
    """Keep what a function makes of documents: `most` of them, whose texts have `bytes_in_all` in all."""
    return lambda make: TextCache(make, most, bytes_in_all)

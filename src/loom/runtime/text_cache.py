"""A cache of what is made of documents, bounded by their number and by their size in all."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K", bound="str | bytes")
R = TypeVar("R")


class TextCache(Generic[K, R]):
    """A function of a document that keeps its newest results. Threads may call it."""

    def __init__(self, make: Callable[[K], R], most: int, bytes_in_all: int) -> None:
        self._make = make
        self._most = most
        self._room = bytes_in_all
        self._kept: OrderedDict[K, R] = OrderedDict()
        """What was used last is at the end."""
        self._size = 0
        self._lock = threading.Lock()
        self.__doc__ = make.__doc__

    def __call__(self, text: K) -> R:
        """Give what was made of a document, or make it and keep it while there is room."""
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        made = self._make(text)
        with self._lock:
            if text not in self._kept and len(text) <= self._room:
                self._kept[text] = made
                self._size += len(text)
                while len(self._kept) > self._most or self._size > self._room:
                    oldest, _ = self._kept.popitem(last=False)
                    self._size -= len(oldest)
            return self._kept.get(text, made)


def text_cache(most: int, bytes_in_all: int) -> Callable[[Callable[[K], R]], TextCache[K, R]]:
    """Keep what a function makes of documents: `most` of them, whose texts have `bytes_in_all` in all."""
    return lambda make: TextCache(make, most, bytes_in_all)

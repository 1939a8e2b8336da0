"""An immutable double-ended queue with structural sharing, on top of `immutables.Map`.

Pure. May import immutables and msgspec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from immutables import Map

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

EMPTY_MAP: Map[Any, Any] = Map()
"""The one empty map that all states share."""


class Fifo(msgspec.Struct, Generic[T], frozen=True):
    """A queue whose every change costs O(log n) and leaves the old version as it was."""

    head: int = 0
    tail: int = 0
    items: Map[int, T] = EMPTY_MAP

    @staticmethod
    def of(values: Iterable[T]) -> Fifo[T]:
        """A queue that holds `values` in their order."""
        numbered = dict(enumerate(values))
        return Fifo(0, len(numbered), Map(numbered)) if numbered else EMPTY_FIFO

    def push_back(self, value: T) -> Fifo[T]:
        """The queue with `value` at its end."""
        return Fifo(self.head, self.tail + 1, self.items.set(self.tail, value))

    def push_front(self, value: T) -> Fifo[T]:
        """The queue with `value` at its head."""
        head = self.head - 1
        return Fifo(head, self.tail, self.items.set(head, value))

    def pop_front(self) -> tuple[T, Fifo[T]]:
        """The first value and the rest; an IndexError if there is none."""
        if self.head == self.tail:
            raise IndexError("pop from an empty Fifo")
        value = self.items[self.head]
        head = self.head + 1
        if head == self.tail:
            return value, EMPTY_FIFO
        return value, Fifo(head, self.tail, self.items.delete(self.head))

    def __len__(self) -> int:
        return self.tail - self.head

    def __bool__(self) -> bool:
        return self.head != self.tail

    def __iter__(self) -> Iterator[T]:
        items = self.items
        for index in range(self.head, self.tail):
            yield items[index]


EMPTY_FIFO: Fifo[Any] = Fifo()
"""The one empty queue that all states share."""

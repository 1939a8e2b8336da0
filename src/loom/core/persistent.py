"""Immutable structures that share what they have in common with their old versions: a map, and a queue made of it.

The map is that of `immutables`, in C, or Loom's own in Python where that has no wheel. `immutables` is a requirement up
to Python 3.13. On later versions it is used if it is installed, which needs a compiler. Both give the same states and
commands; the order of their keys differs, and nothing that can be observed follows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from immutables import Map
else:
    try:
        from immutables import Map
    except ImportError:
        from loom.core.trie_map import TrieMap as Map

__all__ = ["EMPTY_FIFO", "EMPTY_MAP", "Fifo", "Map"]

T = TypeVar("T")

EMPTY_MAP: Map[Any, Any] = Map()
"""The one empty map that all states share."""

_CHUNK = 32


class Fifo(msgspec.Struct, Generic[T], frozen=True, eq=False, array_like=True):
    """A queue whose every change leaves the old version as it was.

    The first and the last values are in plain tuples, at most a chunk each, so that most changes copy a few pointers.
    What lies between is in chunks, by number. Two queues are equal if their values are.
    """

    size: int = 0
    front: tuple[T, ...] = ()
    start: int = 0
    """How many of the front's values have left."""
    chunks: Map[int, tuple[T, ...]] = EMPTY_MAP
    first: int = 0
    after: int = 0
    """The numbers of the first chunk and of the one after the last."""
    back: tuple[T, ...] = ()

    @staticmethod
    def of(values: Iterable[T]) -> Fifo[T]:
        """Return a queue that holds `values` in their order."""
        queue: Fifo[T] = EMPTY_FIFO
        for value in values:
            queue = queue.push_back(value)
        return queue

    def packed(self) -> Fifo[T]:
        """Return the queue in the one form that depends on its values alone: chunks from 0, the rest at the back."""
        if not self.front and not self.first:
            return self
        values = tuple(self)
        whole = len(values) // _CHUNK
        chunks = {number: values[number * _CHUNK : (number + 1) * _CHUNK] for number in range(whole)}
        return Fifo(self.size, (), 0, Map(chunks) if chunks else EMPTY_MAP, 0, whole, values[whole * _CHUNK :])

    def push_back(self, value: T) -> Fifo[T]:
        """Return the queue with `value` at its end."""
        back = (*self.back, value)
        if len(back) < _CHUNK:
            return Fifo(self.size + 1, self.front, self.start, self.chunks, self.first, self.after, back)
        chunks = self.chunks.set(self.after, back)
        return Fifo(self.size + 1, self.front, self.start, chunks, self.first, self.after + 1)

    def push_front(self, value: T) -> Fifo[T]:
        """Return the queue with `value` at its head."""
        front = (value, *self.front[self.start :])
        if len(front) < _CHUNK:
            return Fifo(self.size + 1, front, 0, self.chunks, self.first, self.after, self.back)
        chunks = self.chunks.set(self.first - 1, front)
        return Fifo(self.size + 1, (), 0, chunks, self.first - 1, self.after, self.back)

    def pop_front(self) -> tuple[T, Fifo[T]]:
        """Return the first value and the rest; raise IndexError if there is none."""
        size = self.size - 1
        if size < 1:
            if size < 0:
                raise IndexError("pop from an empty Fifo")
            return next(iter(self)), EMPTY_FIFO
        front, start, chunks, first, back = self.front, self.start, self.chunks, self.first, self.back
        if start == len(front):
            start = 0
            if first < self.after:
                front, chunks, first = chunks[first], chunks.delete(first), first + 1
            else:
                front, back = back, ()
        return front[start], Fifo(size, front, start + 1, chunks, first, self.after, back)

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __iter__(self) -> Iterator[T]:
        yield from self.front[self.start :]
        for number in range(self.first, self.after):
            yield from self.chunks[number]
        yield from self.back

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fifo) and self.size == other.size and tuple(self) == tuple(other)

    @override
    def __ne__(self, other: object) -> bool:
        return not self == other

    @override
    def __hash__(self) -> int:
        return hash(tuple(self))


EMPTY_FIFO: Fifo[Any] = Fifo()
"""The one empty queue that all states share."""

"""What a step's body and the reducer must agree on: the keys of effects, stream writes and collect buffers. Pure.

A body runs at the edge, in a process that the reducer never sees. It numbers its effects and names its waits there, and
the reducer finds them again in the state. So both sides use the functions on this page, and no others:

- **Keys** name an effect within its work item. A body that runs again uses the same keys, and so it finds its open
  waits, their answers and the results that it had recorded.
- **Collect buffers** answer `collect_events`. The edge answers from a snapshot that came with the dispatch. The reducer
  asks the same question of the buffer as it is when the result arrives, and lets the body run again if they differ.
- **Stream writes** are numbered apart from all other effects, because a repeated body may stream other tokens than
  before. Each write is compared with the one under its number. Equal writes are not published again. From the first
  difference on, the earlier writes are superseded and the new ones are published.

Both structures are stored as arrays: a new field goes to the end and has a default.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import Literal

import msgspec

from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo, Map
from loom.core.records import EventRecord

# Keys of effects.

WAIT, SLEEP, CHILD, ONCE = "wait:", "sleep:", "child:", "once:"
"""The prefixes of the keys of waits for events, sleeps, child runs and recorded results."""
ANY = "*"
"""The key that a body waits under after it has left with several waits open: each of them brings it back."""


def wait_key(waiter_id: str, occurrence: int) -> str:
    """Name a wait for an event within its work item, by the waiter id and the number of the call with that id."""
    return f"{WAIT}{occurrence}:{waiter_id}"


def waiter_id_of(key: str) -> str:
    """Read the waiter id out of the key of a wait."""
    return key.removeprefix(WAIT).partition(":")[2]


def sleep_key(occurrence: int) -> str:
    """Name a sleep within its work item."""
    return f"{SLEEP}{occurrence}"


def child_key(occurrence: int) -> str:
    """Name a child run within the work item that waits for it."""
    return f"{CHILD}{occurrence}"


def once_key(name: str) -> str:
    """Name a recorded result within its work item."""
    return f"{ONCE}{name}"


def addressed(waiter_id: str) -> str:
    """Name the early events that are kept for the waiters of one id only."""
    return f"@{waiter_id}"


# Collect buffers.

CollectVerdict = Literal["take", "keep", "drop"]
"""What becomes of a collected event: it completes the set, is put aside, or is not needed (any more)."""


class CollectBuffer(msgspec.Struct, frozen=True, array_like=True):
    """The events that a step has put aside under one buffer id, with their number by type."""

    events: Fifo[EventRecord] = EMPTY_FIFO
    counts: Map[str, int] = EMPTY_MAP
    generation: int = 0
    """The number of changes so far."""

    def verdict(self, event_type: str, needed: tuple[tuple[str, int], ...]) -> CollectVerdict:
        """Decide about an event of this type, where `needed` lists each type of the set with its number.

        The cost is the number of different types, however many events are expected.
        """
        counts = self.counts
        wanted, complete = False, True
        for name, number in needed:
            missing = number - counts.get(name, 0)
            if name == event_type and missing > 0:
                wanted = True
                missing -= 1
            if missing > 0:
                complete = False
        if not wanted:
            return "drop"
        return "take" if complete else "keep"

    def with_event(self, event: EventRecord) -> CollectBuffer:
        """Return the buffer with one more event."""
        name = event.kind.name
        return CollectBuffer(
            self.events.push_back(event), self.counts.set(name, self.counts.get(name, 0) + 1), self.generation + 1
        )

    def emptied(self) -> CollectBuffer:
        """Return the buffer after its set was taken."""
        return CollectBuffer(EMPTY_FIFO, EMPTY_MAP, self.generation + 1)


EMPTY_BUFFER = CollectBuffer()


# Stream writes.

_BYTES = 5
"""The size of a digest: two different tokens are taken for equal once in 10^12 comparisons."""
_WIDTH = 2 * _BYTES
_BLOCK = 64
"""Writes per block: adding one copies a block, and a stored state has one key per block."""
UNKNOWN = "?" * _WIDTH
"""The digest of a write that cannot be compared, because it is not text. It counts as equal to every other one."""


def write_digest(event: EventRecord) -> str:
    """Return the digest of a stream write. Live objects have none: where events are not text, no body runs again."""
    body = event.body
    if type(body) is not str:
        return UNKNOWN
    text = f"{event.kind.name}\0{body}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()


class StreamWrites(msgspec.Struct, frozen=True, array_like=True):
    """The stream writes of an execution: their cursors, and the digests that a repetition is compared with.

    A write that was superseded is not counted any more.
    """

    count: int = 0
    digests: Map[int, str] = EMPTY_MAP
    """The digests of the writes in their order, joined in blocks, by number of the block."""
    cursors: Map[int, int] = EMPTY_MAP
    """The cursor of the first write of each unbroken row of cursors, by the number of that write."""
    last: int = 0
    """The number of the write that the last such row begins with."""

    def _digest(self, number: int) -> str:
        start = number % _BLOCK * _WIDTH
        return self.digests[number // _BLOCK][start : start + _WIDTH]

    def is_equal(self, number: int, digest: str) -> bool:
        """Return whether a repeated write is the one that stands under its number."""
        earlier = self._digest(number)
        return digest == earlier or UNKNOWN in (digest, earlier)

    def is_unknown(self, number: int) -> bool:
        """Return whether the write of this number cannot be compared."""
        return self._digest(number) == UNKNOWN

    def added(self, digest: str, cursor: int) -> StreamWrites:
        """Return the writes with one more, which stands at this cursor of the stream."""
        number = self.count
        block = number // _BLOCK
        digests = self.digests.set(block, self.digests.get(block, "") + digest)
        begun = self.cursors.get(self.last)
        if begun is not None and cursor - begun == number - self.last:
            return StreamWrites(number + 1, digests, self.cursors, self.last)
        return StreamWrites(number + 1, digests, self.cursors.set(number, cursor), number)

    def cursors_from(self, number: int) -> tuple[tuple[int, int], ...]:
        """Return the first and the last cursor of each unbroken row of the writes from this number on."""
        starts = sorted(self.cursors)
        found = []
        for start, end in pairwise([*starts, self.count]):
            if end > number:
                first = self.cursors[start] + max(number - start, 0)
                found.append((first, self.cursors[start] + end - 1 - start))
        return tuple(found)

    def cut(self, number: int) -> StreamWrites:
        """Return the writes before this number."""
        block, rest = divmod(number, _BLOCK)
        digests, cursors = self.digests, self.cursors
        for later in [each for each in digests if each >= block]:
            is_split = later == block and rest
            digests = digests.set(later, digests[later][: rest * _WIDTH]) if is_split else digests.delete(later)
        for start in [each for each in cursors if each >= number]:
            cursors = cursors.delete(start)
        return StreamWrites(number, digests, cursors, max(cursors, default=0))


NO_WRITES = StreamWrites()

"""The stream writes of an execution, numbered apart from its other effects. Pure.

A body that runs again may stream something else, such as the tokens of another call of a model. So its writes are
compared with what the repetition before wrote, one by one. What is equal stands on the stream and is not written again.
From the first difference on, the earlier writes are superseded and the new ones are published. A write that is not text
cannot be compared: it counts as equal.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.state import StreamWrites

if TYPE_CHECKING:
    from loom.core.records import EventRecord
    from loom.core.state import Execution, WorkItem

NO_WRITES = StreamWrites()

_BYTES = 5
"""The size of a digest: two different tokens are taken for equal once in 10^12 comparisons."""
_WIDTH = 2 * _BYTES
_BLOCK = 64
"""Writes per block: adding one copies a block, and a stored state has one key per block."""
UNKNOWN = "?" * _WIDTH
"""The digest of a write that cannot be compared."""

_PUBLISH = "publish"
"""How earlier versions noted a stream write among the effects."""


def digest_of(event: EventRecord) -> str:
    """The digest of an event. Live objects have none: where events are not text, no body outlives its process."""
    body = event.body
    if type(body) is not str:
        return UNKNOWN
    text = f"{event.kind.name}\0{body}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()


def are_counted(item: WorkItem) -> bool:
    """Say whether the stream writes of an interrupted execution count among its effects, as in earlier versions.

    Its body goes on with those numbers: what it wrote is not known, and where one write ends and another effect begins
    is known by them alone.
    """
    return item.writes is None and any(kind == _PUBLISH for kind in item.effects.values())


def interrupted(execution: Execution) -> WorkItem:
    """The work item of an execution whose body will run again: it knows what the execution has done."""
    return replace(execution.item, execution=execution.id, effects=execution.effects, writes=execution.writes)


def is_equal(writes: StreamWrites, number: int, digest: str) -> bool:
    """Say whether a repeated write is the one that stands under its number."""
    start = number % _BLOCK * _WIDTH
    earlier = writes.digests[number // _BLOCK][start : start + _WIDTH]
    return digest == earlier or UNKNOWN in (digest, earlier)


def is_unknown(writes: StreamWrites, number: int) -> bool:
    """Say whether the write of this number cannot be compared."""
    start = number % _BLOCK * _WIDTH
    return writes.digests[number // _BLOCK][start : start + _WIDTH] == UNKNOWN


def added(writes: StreamWrites, digest: str, cursor: int) -> StreamWrites:
    """The writes with one more, which stands at this cursor."""
    number = writes.count
    block = number // _BLOCK
    digests = writes.digests.set(block, writes.digests.get(block, "") + digest)
    begun = writes.cursors.get(writes.last)
    if begun is not None and cursor - begun == number - writes.last:
        return StreamWrites(number + 1, digests, writes.cursors, writes.last)
    return StreamWrites(number + 1, digests, writes.cursors.set(number, cursor), number)


def cursors_from(writes: StreamWrites, number: int) -> tuple[tuple[int, int], ...]:
    """Where the writes from this number on stand: the first and the last cursor of each unbroken row."""
    starts = sorted(writes.cursors)
    found = []
    for start, end in pairwise([*starts, writes.count]):
        if end > number:
            first = writes.cursors[start] + max(number - start, 0)
            found.append((first, writes.cursors[start] + end - 1 - start))
    return tuple(found)


def cut(writes: StreamWrites, number: int) -> StreamWrites:
    """The writes before this number."""
    block, rest = divmod(number, _BLOCK)
    digests, cursors = writes.digests, writes.cursors
    for later in [each for each in digests if each >= block]:
        digests = (
            digests.set(later, digests[later][: rest * _WIDTH]) if later == block and rest else digests.delete(later)
        )
    for start in [each for each in cursors if each >= number]:
        cursors = cursors.delete(start)
    return StreamWrites(number, digests, cursors, max(cursors, default=0))

"""The journal of one execution of a run: its ticks and what they put on the stream, in memory.

It is built anew by every replay and costs no events of the history. May import loom.core, loom.runtime and loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from loom.runtime.masking import shown_published
from loom.store import codec
from loom.store.records import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loom.core.commands import CommandPublishEvent
    from loom.core.reports import Published
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program

_LARGE_CHUNK = 700_000
"""What has more bytes is told in pieces: as text within an answer it may have twice as many."""


class _Part(NamedTuple):
    """What one flush has brought: ticks, the events that they led to, and how many there were after each tick."""

    first_tick: int
    ticks: list[WorkflowTick]
    first_cursor: int
    published: list[Published]
    marks: list[int]

    def halves(self) -> tuple[_Part, _Part]:
        """The same as two parts."""
        middle = len(self.ticks) // 2
        first, cursor = self.first_tick + middle, self.marks[middle - 1]
        event = cursor - self.first_cursor
        return (
            _Part(self.first_tick, self.ticks[:middle], self.first_cursor, self.published[:event], self.marks[:middle]),
            _Part(first, self.ticks[middle:], cursor, self.published[event:], self.marks[middle:]),
        )


class Journal:
    """The ticks and published events of one execution. They are encoded only when somebody asks."""

    def __init__(self, first_tick: int, first_cursor: int, earlier: tuple[Chunk, ...], program: Program | None) -> None:
        self.first_tick = earlier[0].first_tick if earlier else first_tick
        self.first_cursor = earlier[0].first_cursor if earlier else first_cursor
        self.ticks = first_tick
        """How many ticks and events there are so far, those of earlier executions too."""
        self.events = first_cursor
        self._program = program
        self._parts: list[Chunk | _Part] = list(earlier)

    def add(self, batch: Batch, published: list[CommandPublishEvent]) -> bool:
        """Keep what a flush has brought, with the events that its ticks have led to; whether there was anything."""
        if not batch.ticks:
            return False
        self._parts.append(_Part(self.ticks, batch.ticks, self.events, [c.event for c in published], batch.published))
        self.ticks += len(batch.ticks)
        self.events += len(published)
        return True

    def chunks(self, is_before: Callable[[int, int], bool]) -> Iterator[Chunk]:
        """The chunks in order, without those that end before what is wanted by their last tick and cursor."""
        for part in self._parts:
            if isinstance(part, Chunk):
                if not is_before(part.first_tick + part.ticks, part.first_cursor + part.events):
                    yield part
            else:
                yield from self._encoded(part, is_before)

    def _encoded(self, part: _Part, is_before: Callable[[int, int], bool]) -> Iterator[Chunk]:
        """A part as a chunk, or as several if an answer could not hold it. Each has the events of its own ticks."""
        if is_before(part.first_tick + len(part.ticks), part.first_cursor + len(part.published)):
            return
        shown = [shown_published(self._program, event) for event in part.published]
        chunk = codec.encode_chunk(part.ticks, shown, part.first_tick, part.first_cursor)
        if len(chunk.data) <= _LARGE_CHUNK or len(part.ticks) == 1:
            yield chunk
        else:
            for half in part.halves():
                yield from self._encoded(half, is_before)

    def last_event(self) -> Chunk:
        """The last event of the stream, as a chunk without ticks."""
        for part in reversed(self._parts):
            if isinstance(part, Chunk):
                if part.events:
                    return part
            elif part.published:
                shown = shown_published(self._program, part.published[-1])
                return codec.encode_chunk([], [shown], self.ticks, self.events - 1)
        return codec.encode_chunk([], [], self.ticks, self.events)

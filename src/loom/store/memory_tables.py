"""What a store in memory holds, as immutable data.

A transaction makes new tables, which share everything that it leaves alone with the ones before. So a group that fails
has changed nothing, and a reader has one moment for as long as it looks. Pure. May import immutables, msgspec and the
records beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import msgspec
from immutables import Map

from loom.store.deaths import Deaths
from loom.store.records import Chunk, Mail, RunRow, Snapshot, StoredRun, TimerRow

if TYPE_CHECKING:
    from collections.abc import Iterable

EMPTY: Map[Any, Any] = Map()


def without(table: Map[Any, Any], keys: Iterable[Any]) -> Map[Any, Any]:
    """A table without these keys, if it has them."""
    left = table.mutate()
    for key in keys:
        left.pop(key, None)
    return left.finish()


class Journal(msgspec.Struct, frozen=True):
    """The chunks of a run in order, numbered; those before `first` were pruned."""

    chunks: Map[int, Chunk] = EMPTY
    first: int = 0
    after: int = 0

    def append(self, chunk: Chunk) -> Journal:
        """With one more chunk at its end."""
        return Journal(self.chunks.set(self.after, chunk), self.first, self.after + 1)

    def pruned(self, ticks: int) -> Journal:
        """Without the chunks that lie wholly within the first `ticks` ticks."""
        first = self._behind(ticks)
        return Journal(without(self.chunks, range(self.first, first)), first, self.after)

    def from_tick(self, tick: int, limit: int | None = None) -> tuple[Chunk, ...]:
        """Chunks, beginning with the one that holds this tick."""
        first = self._behind(tick)
        after = self.after if limit is None else min(self.after, first + limit)
        return tuple(self.chunks[number] for number in range(first, after))

    def from_cursor(self, cursor: int, limit: int) -> list[Chunk]:
        """Chunks with events, beginning with the one that holds this cursor."""
        numbers = range(self.first, self.after)
        first = bisect_right(numbers, cursor, key=lambda number: _cursor_after(self.chunks[number]))
        found: list[Chunk] = []
        for number in numbers[first:]:
            if len(found) >= limit:
                break
            if self.chunks[number].events:
                found.append(self.chunks[number])
        return found

    def _behind(self, ticks: int) -> int:
        """The number of the first chunk that has a tick behind the first `ticks` ones."""
        numbers = range(self.first, self.after)
        return self.first + bisect_right(numbers, ticks, key=lambda number: tick_after(self.chunks[number]))


def tick_after(chunk: Chunk) -> int:
    """The number of the tick behind a chunk."""
    return chunk.first_tick + chunk.ticks


def _cursor_after(chunk: Chunk) -> int:
    return chunk.first_cursor + chunk.events


class KeptRun(msgspec.Struct, frozen=True):
    """All that is kept of a run."""

    row: RunRow
    start: bytes
    snapshot: Snapshot | None = None
    journal: Journal = Journal()
    mail: Map[int, bytes] = EMPTY
    timers: Map[int, TimerRow] = EMPTY
    event_ids: Map[str, None] = EMPTY
    deaths: Deaths | None = None
    died_with: int = 0
    """The fence of the member that it was marked for last."""

    @property
    def is_suspect(self) -> bool:
        """Say whether it is recovered only on probation."""
        return self.deaths is not None and self.deaths.suspect

    @property
    def claimable(self) -> bool:
        """Whether a member that looks for work may take it."""
        return self.row.owner is None and self.row.head.status == "running" and self.row.head.parked is None

    def first_due(self) -> float | None:
        """When its first timer is due."""
        return min((timer.due for timer in self.timers.values()), default=None)

    def letters(self, after: int = 0) -> tuple[Mail, ...]:
        """Its mail behind an id, in order."""
        return tuple(Mail(number, self.mail[number]) for number in sorted(self.mail) if number > after)

    def stored(self, *, whole: bool, document: bytes | None = None) -> StoredRun:
        """As a record: all of it, or what is needed to take it up. The text of its document is kept elsewhere."""
        behind = -1 if whole or self.snapshot is None else self.snapshot.ticks
        return StoredRun(
            self.row,
            self.start,
            self.snapshot,
            self.journal.from_tick(behind),
            self.letters(),
            tuple(self.timers[seq] for seq in sorted(self.timers)),
            tuple(sorted(self.event_ids)) if whole else (),
            document,
            msgspec.UNSET if whole or self.deaths is None else self.deaths,
        )


class Document(msgspec.Struct, frozen=True):
    """The text of a definition, which runs have by its digest."""

    data: bytes
    created_at: float
    pinned: bool = False
    """It stays, also when no run has it."""


class Tables(msgspec.Struct, frozen=True):
    """The whole database."""

    runs: Map[str, KeptRun] = EMPTY
    last_mail: int = 0
    documents: Map[str, Document] = EMPTY

    def stored(self, run_id: str, *, whole: bool) -> StoredRun | None:
        """A run as a record: all of it, or what is needed to take it up."""
        run = self.runs.get(run_id)
        return run.stored(whole=whole, document=self.text(run.row.document)) if run is not None else None

    def text(self, digest: str | None) -> bytes | None:
        """The text of a document."""
        document = self.documents.get(digest) if digest is not None else None
        return document.data if document is not None else None

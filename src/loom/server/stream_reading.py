"""The stream of a run, read from the store in small pages by a cursor.

A reader has a position and nothing else: what it has not asked for yet stays in the store, however far behind it is.
May import loom.runtime and loom.store.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from loom.runtime.stream_ends import is_last

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.reports import Published
    from loom.runtime.durable.decoded import Decoded
    from loom.runtime.durable.watching import News
    from loom.runtime.durable.working import WorkingRuntime
    from loom.store.records import Chunk, RunRow

_FIRST_CHUNKS = 4
_MAX_CHUNKS = 32
_PAGE_BYTES = 256 * 1024


class Entry(NamedTuple):
    """One entry of a stream."""

    cursor: int
    at: float
    """The time of the commit that brought it."""
    published: Published


async def has_ended_before(runtime: WorkingRuntime, row: RunRow, position: int) -> bool:
    """Whether nothing can come at this position or behind it: the stream ended with what stands before it."""
    if row.head.status != "running" and position >= row.head.events:
        return True
    if position == 0:
        return False
    chunks = await runtime.store.stream(row.run_id, position - 1, 1)
    for chunk in chunks:
        index = position - 1 - chunk.first_cursor
        return index >= 0 and is_last((await runtime.decoded.decode(row.run_id, chunk)).published[index])
    return False


class StreamReader:
    """One reader of one run's stream."""

    def __init__(self, runtime: WorkingRuntime, run_id: str, position: int) -> None:
        self._runtime = runtime
        self._run_id = run_id
        self._limit = _FIRST_CHUNKS
        self._waits = 0
        self._ended_at = 0.0
        self.position = position
        """The cursor of the next entry."""
        self.is_over = False
        """The stream has ended, and everything of it was read."""

    async def page(self, patience: float) -> list[Chunk]:
        """The next chunks. None of them, if the stream is over or nothing came for so many seconds.

        Whoever gets chunks goes through their `entries` before the next call.
        """
        runtime, run_id = self._runtime, self._run_id
        # Before the look, so that what comes between the look and the waiting is heard of.
        news = runtime.watchers.subscribe(run_id)
        try:
            chunks = await runtime.store.stream(run_id, self.position, self._limit)
            if chunks:
                self._waits = 0
                self._limit = _next_limit(chunks)
                if not chunks[-1].ticks:  # all that some stores keep at hand of a run that has ended is its last event
                    self._ended_at = (await runtime.row(run_id)).head.updated_at
            elif not await self._ended():
                await self._wait(news, patience)
        finally:
            runtime.watchers.forget(run_id, news)
        return chunks

    async def _wait(self, news: News, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await self._runtime.news(news, self._waits)
        except TimeoutError:
            return  # it is time for a sign of life
        self._waits += 1

    async def _ended(self) -> bool:
        row = await self._runtime.row(self._run_id)
        self.is_over = row.head.status != "running" and self.position >= row.head.events
        return self.is_over

    async def entries(self, chunk: Chunk) -> Iterator[Entry]:
        """The entries of a chunk from the reader's position on, which moves with them."""
        return self._entries(chunk.first_cursor, await self._runtime.decoded.decode(self._run_id, chunk))

    def _entries(self, first_cursor: int, decoded: Decoded) -> Iterator[Entry]:
        at = decoded.at if decoded.at is not None else self._ended_at
        self.position = max(self.position, first_cursor)  # what lies before it may have been pruned
        for entry in islice(decoded.published, self.position - first_cursor, None):
            self.position += 1
            # Behind a failure something may come, if the run is retried: then only the row tells the end.
            self.is_over = is_last(entry)
            yield Entry(self.position - 1, at, entry)
            if self.is_over:
                return


def _next_limit(chunks: list[Chunk]) -> int:
    """How many chunks to ask for, so that a page has a bounded size even where events are large."""
    size = sum(len(chunk.data) for chunk in chunks)
    return max(1, min(_MAX_CHUNKS, len(chunks) * _PAGE_BYTES // max(size, 1)))

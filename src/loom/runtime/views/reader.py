"""Traces: what was made of the journals of runs, kept for the next look, which goes on where the one before stopped."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.runtime.lru_cache import LruCache
from loom.runtime.stored_run import program_of_row
from loom.runtime.views.step_lanes import StepLanes
from loom.store import codec
from loom.store.errors import HistoryGone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.views.flow_lanes import FlowLanes
    from loom.store.records import Chunk, RunRow

T = TypeVar("T")

MOST_TICKS: Final = 200_000
"""How many ticks one look takes in: it answers within a few seconds, and the next one goes on."""
KEPT_BYTES: Final = 64 * 1024 * 1024
_CHUNKS = 64


class Trace:
    """The lanes of one run. Its lock is held by the one look that reads or extends it."""

    def __init__(self, row: RunRow, made: StepLanes | FlowLanes) -> None:
        self.run_id = row.run_id
        self.created_at = row.created_at
        self.document = row.document
        self.made = made

    @property
    def tick(self) -> int:
        """Return the last tick that was taken in; -1 without one."""
        return self.made.ticks - 1

    @property
    def flow(self) -> FlowLanes | None:
        """Return the lanes of a flow; None for steps."""
        return None if isinstance(self.made, StepLanes) else self.made

    def is_of(self, row: RunRow) -> bool:
        """Tell whether it is a beginning of this run: another one may have had the id, or may be put back."""
        return (self.created_at, self.document) == (row.created_at, row.document) and self.made.ticks <= row.head.ticks

    def go_on(self, chunks: Sequence[Chunk]) -> None:
        """Take in the next chunks."""
        for chunk in chunks:
            self._add(chunk)
        self.made.lanes.trim()

    def _add(self, chunk: Chunk) -> None:
        made = self.made
        if chunk.first_tick > made.ticks:
            raise HistoryGone(self.run_id, f"the ticks {made.ticks} to {chunk.first_tick - 1} are not there any more")
        known = made.ticks - chunk.first_tick
        if isinstance(made, StepLanes):
            made.feed(codec.decode_ticks(self.run_id, chunk)[known:])
            return
        ticks, published = codec.decode_chunk(self.run_id, chunk)
        seen = max(0, made.cursor + 1 - chunk.first_cursor)
        made.feed(ticks[known:], published[seen:], chunk.first_cursor + seen)


class RunTraces:
    """The traces of the runs that were looked at last, for one process."""

    def __init__(self, runtime: RunClient) -> None:
        self._runtime = runtime
        self._kept: LruCache[str, Trace] = LruCache(max_weight=KEPT_BYTES)
        self._locks: dict[str, asyncio.Lock] = {}

    async def look(self, row: RunRow, read: Callable[[Trace], T], most: int = MOST_TICKS) -> T:
        """Bring the trace of a run up to date, or `most` ticks further, and read from it, in a thread if it is long."""
        lock = self._locks.setdefault(row.run_id, asyncio.Lock())
        try:
            async with lock:
                trace = await self._extended(row, most)
                is_long = trace.made.weight > OFF_LOOP_BYTES
                return await aside("replay", read, trace) if is_long else read(trace)
        finally:
            if not lock.locked() and not getattr(lock, "_waiters", None):
                self._locks.pop(row.run_id, None)

    async def _extended(self, row: RunRow, most: int) -> Trace:
        trace = self._kept.get(row.run_id)
        if trace is None or not trace.is_of(row):
            trace = await self._begun(row)
        until = min(row.head.ticks, trace.made.ticks + most)
        self._kept.drop(row.run_id)  # if it cannot be read on, it is begun anew
        while trace.made.ticks < until:
            chunks = await self._runtime.store.chunks(row.run_id, trace.made.ticks, _CHUNKS)
            if not chunks:
                break
            if sum(len(chunk.data) for chunk in chunks) > OFF_LOOP_BYTES // 4:
                await aside("replay", trace.go_on, chunks)
            else:
                trace.go_on(chunks)
        self._kept.put(row.run_id, trace, trace.made.weight)
        return trace

    async def _begun(self, row: RunRow) -> Trace:
        """Begin a trace: with the first tick, or with the first one that is still there."""
        program = await program_of_row(self._runtime, row)
        if program is not None:
            from loom.runtime.views.flow_lanes import FlowLanes  # imports what only flows need

            return Trace(row, FlowLanes(program, row.first_tick))
        read_field = self._runtime.field_reader(row)
        if not row.first_tick:
            return Trace(row, StepLanes(read_field))
        stored = await self._runtime.store.load(row.run_id)
        if stored is None or stored.snapshot is None:
            raise HistoryGone(row.run_id, f"its history begins with tick {row.first_tick}")
        decode = partial(codec.decode_state, row.run_id, stored.snapshot.data)
        return Trace(row, StepLanes(read_field, await aside("replay", decode)))

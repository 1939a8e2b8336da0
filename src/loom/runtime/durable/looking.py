"""Looking at stored runs, and making others of them: history, past states, forks, exports. Nothing here runs a run.

May import loom.core, loom.effects, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent
from loom.core.replay import replay_steps
from loom.core.state import BrokerState
from loom.core.ticks import TickChildEnded, TickStartRun
from loom.runtime.durable.heads import HeadWriter
from loom.runtime.durable.info import HistoryEntry
from loom.runtime.durable.takeup import restored
from loom.steps.planner import StepsPlanner
from loom.store import codec
from loom.store.errors import StoreError
from loom.store.records import RunRow, StoredRun, TimerRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from loom.core.draft import FieldReader
    from loom.core.reports import Published
    from loom.core.ticks import WorkflowTick
    from loom.store.ports import Store
    from loom.store.records import Chunk

_CHUNKS = 64
_FORK_CHUNK = 256


async def history(store: Store, run_id: str, start: int = 0) -> AsyncIterator[HistoryEntry]:
    """The ticks of a run from a number on, as far as they are stored now."""
    position = start
    while chunks := await store.chunks(run_id, position, _CHUNKS):
        for chunk in chunks:
            ticks = codec.decode_ticks(run_id, chunk)
            for number, tick in enumerate(ticks, chunk.first_tick):
                if number >= position:
                    yield HistoryEntry(number, tick.at, tick)
            position = chunk.first_tick + chunk.ticks


async def state_at(store: Store, row: RunRow, read_field: FieldReader, tick: int | None) -> BrokerState:
    """The state after the tick of a number, or now."""
    last = row.head.ticks - 1 if tick is None else tick
    if tick is None and not row.head.ticks:
        return BrokerState()  # nobody has taken it up yet
    if not 0 <= last < row.head.ticks:
        raise ValueError(f"Run {row.run_id!r} has the ticks 0 to {row.head.ticks - 1}: there is no tick {last}.")
    stored = await store.load(row.run_id)
    assert stored is not None
    if stored.snapshot is not None and stored.snapshot.ticks <= last + 1:
        return restored(row.run_id, stored.snapshot, stored.chunks, StepsPlanner(), read_field, last + 1)
    if row.first_tick > 0:
        raise StoreError(f"Run {row.run_id!r}: the ticks before {row.first_tick} were pruned.")
    chunks: list[Chunk] = []
    while not chunks or chunks[-1].first_tick + chunks[-1].ticks <= last:
        position = chunks[-1].first_tick + chunks[-1].ticks if chunks else 0
        more = await store.chunks(row.run_id, position, _CHUNKS)
        if not more:
            break
        chunks += more
    return restored(row.run_id, None, chunks, StepsPlanner(), read_field, last + 1)


async def forked(
    store: Store, row: RunRow, read_field: FieldReader, tick: int, run_id: str, now: float, downtime: float
) -> StoredRun:
    """A new run with the history of another one up to a tick. Child runs that were open stay with the other one."""
    if row.first_tick > 0:
        raise StoreError(f"Run {row.run_id!r} cannot be forked: its ticks before {row.first_tick} were pruned.")
    if not 0 <= tick < row.head.ticks:
        raise ValueError(f"Run {row.run_id!r} has the ticks 0 to {row.head.ticks - 1}: there is no tick {tick}.")
    ticks: list[WorkflowTick] = []
    async for entry in history(store, row.run_id):
        if entry.seq > tick:
            break
        own = replace(entry.tick, mail=0)
        ticks.append(replace(own, run_id=run_id) if isinstance(own, TickStartRun) else own)
    state, chunks = _written(ticks, BrokerState(), read_field)
    lost: list[WorkflowTick] = [
        TickChildEnded(at=state.at, child=number, status="cancelled", event=None, failure=None)
        for number in sorted(state.children)
    ]
    if lost:
        state, more = _written(lost, state, read_field)
        chunks += more
    if state.outcome is not None:
        raise ValueError(f"Run {row.run_id!r} had ended by tick {tick}: fork it at an earlier one.")
    head, _ = HeadWriter().head(state, lambda: state, downtime - max(0.0, now - state.at))
    exported = await store.export(row.run_id)
    assert exported is not None
    return StoredRun(
        row=RunRow(run_id, row.workflow, now, head, tags=row.tags, forked_from=row.run_id),
        start=exported.start,
        snapshot=None,
        chunks=tuple(chunks),
        timers=tuple(TimerRow(number, timer.due, timer.purpose) for number, timer in sorted(state.timers.items())),
    )


def _written(ticks: list[WorkflowTick], state: BrokerState, read_field: FieldReader) -> tuple[BrokerState, list[Chunk]]:
    """Ticks as chunks, with the events that they publish."""
    chunks: list[Chunk] = []
    for part in _parts(ticks):
        first_tick, first_cursor = state.ticks, state.published
        published: list[Published] = []
        for _, after, commands in replay_steps(part, StepsPlanner(), state, read_field):
            state = after
            published += [command.event for command in commands if isinstance(command, CommandPublishEvent)]
        chunks.append(codec.encode_chunk(part, published, first_tick, first_cursor))
    return state, chunks


def _parts(ticks: list[WorkflowTick]) -> Iterator[list[WorkflowTick]]:
    for start in range(0, len(ticks), _FORK_CHUNK):
        yield ticks[start : start + _FORK_CHUNK]

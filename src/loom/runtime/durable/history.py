"""Looking at stored runs, and making others of them: history, past states, forks, exports. Nothing here runs a run."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent
from loom.core.reducer import replay_steps
from loom.core.state import BrokerState
from loom.core.ticks import TickChildEnded, TickStartRun
from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.runtime.durable.info import HistoryEntry
from loom.runtime.durable.names import HANDLER_TAGS
from loom.runtime.durable.recovery import restored
from loom.runtime.masking import shown_published
from loom.runtime.planners import planner_for, program_in
from loom.runtime.run_head import HeadWriter
from loom.store import codec
from loom.store.errors import HistoryGone, RunNotFound, StoreError
from loom.store.records import RunRow, StoredRun, TimerRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from loom.core.planner import Planner
    from loom.core.records import Published
    from loom.core.reducer import FieldReader
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.fork_changes import ForkMaker
    from loom.store.hash_chain import Links
    from loom.store.ports import RunReads
    from loom.store.records import Chunk, Snapshot

_CHUNKS = 64
_FORK_CHUNK = 256


async def history(store: RunReads, run_id: str, start: int = 0) -> AsyncIterator[HistoryEntry]:
    """The ticks of a run from a number on, as far as they are stored now."""
    position = start
    while chunks := await store.chunks(run_id, position, _CHUNKS):
        for chunk in chunks:
            if len(chunk.data) > OFF_LOOP_BYTES:
                ticks = await aside("convert", codec.decode_ticks, run_id, chunk)
            else:
                ticks = codec.decode_ticks(run_id, chunk)
            for number, tick in enumerate(ticks, chunk.first_tick):
                if number >= position:
                    yield HistoryEntry(number, tick.at, tick)
            position = chunk.first_tick + chunk.ticks


async def state_at(store: RunReads, row: RunRow, read_field: FieldReader, tick: int | None) -> BrokerState:
    """The state after the tick of a number, or now."""
    last = row.head.ticks - 1 if tick is None else tick
    if tick is None and not row.head.ticks:
        return BrokerState()  # no process has begun it yet
    _check_tick(row, last)
    stored = await store.load(row.run_id)
    if stored is None:
        raise RunNotFound(row.run_id)  # it was deleted since
    if stored.snapshot is not None and stored.snapshot.ticks <= last + 1:
        return await _restored(stored, stored.snapshot, stored.chunks, read_field, last + 1)
    if row.first_tick > 0:
        raise HistoryGone(row.run_id, f"its state after tick {last} cannot be looked at any more")
    chunks: list[Chunk] = []
    while not chunks or chunks[-1].first_tick + chunks[-1].ticks <= last:
        position = chunks[-1].first_tick + chunks[-1].ticks if chunks else 0
        more = await store.chunks(row.run_id, position, _CHUNKS)
        if not more:
            break
        chunks += more
    return await _restored(stored, None, chunks, read_field, last + 1)


async def _restored(
    stored: StoredRun, snapshot: Snapshot | None, chunks: Sequence[Chunk], read_field: FieldReader, until: int
) -> BrokerState:
    """Replay a journal: in a thread if it is long, or of a flow, whose ticks may cost much."""
    make = partial(restored, stored.row.run_id, snapshot, chunks, planner_for(stored.document), read_field, until)
    size = sum([len(chunk.data) for chunk in chunks], len(snapshot.data) if snapshot is not None else 0)
    return make() if stored.document is None and size <= OFF_LOOP_BYTES else await aside("replay", make)


def _check_tick(row: RunRow, tick: int) -> None:
    if not 0 <= tick < row.head.ticks:
        known = f"the ticks 0 to {row.head.ticks - 1}" if row.head.ticks else "no ticks yet"
        raise ValueError(f"Run {row.run_id!r} has {known}: there is no tick {tick}.")


class NewFork(NamedTuple):
    """What a fork has of its own."""

    run_id: str
    now: float
    downtime: float
    """Seconds in which nobody was at work on the store so far."""
    links: Links
    maker: ForkMaker | None = None
    """Makes what is to be otherwise in it."""


async def forked(store: RunReads, row: RunRow, read_field: FieldReader, tick: int, new: NewFork) -> StoredRun:
    """A new run with the history of another one up to a tick. Child runs that were open stay with the other one."""
    run_id, now, downtime, links, maker = new
    if row.first_tick > 0:
        raise HistoryGone(row.run_id, "it cannot be forked")
    _check_tick(row, tick)
    ticks: list[WorkflowTick] = []
    async for entry in history(store, row.run_id):
        if entry.seq > tick:
            break
        own = replace(entry.tick, mail=0)
        ticks.append(replace(own, run_id=run_id) if isinstance(own, TickStartRun) else own)
    exported = await store.export(row.run_id)
    if exported is None:
        raise RunNotFound(row.run_id)  # it was deleted since
    planner, start = planner_for(exported.document), exported.start
    if maker is not None and isinstance(ticks[0], TickStartRun):
        ticks[0] = maker.first_tick(ticks[0], tick, planner)
        start = maker.start(run_id, start, ticks[0])
    state, chunks = await aside("replay", _written, ticks, BrokerState(), planner, read_field)
    lost: list[WorkflowTick] = [
        TickChildEnded(at=state.at, child=number, status="cancelled", event=None, failure=None)
        for number in sorted(state.children)
    ]
    if lost:
        state, more = _written(lost, state, planner, read_field)
        chunks += more
    if state.outcome is not None:
        raise ValueError(f"Run {row.run_id!r} had ended by tick {tick}: fork it at an earlier one.")
    if maker is not None and (own_ticks := await maker.ticks(state)):
        state, more = await aside("replay", _written, own_ticks, state, planner, read_field)
        chunks += more
    chained, link = links.chained(run_id, chunks, row.document)
    head, _ = HeadWriter(program_in(planner)).head(state, lambda: state, downtime - max(0.0, now - state.at), link)
    fork = RunRow(run_id, row.workflow, now, head, tags=_own_tags(row), forked_from=row.run_id, document=row.document)
    return StoredRun(
        row=links.signed_row(fork),
        start=start,
        snapshot=None,
        chunks=chained,
        timers=tuple(TimerRow(number, timer.due, timer.purpose) for number, timer in sorted(state.timers.items())),
        document=exported.document,
    )


def _own_tags(row: RunRow) -> dict[str, str]:
    """The tags of a fork: it is no run of the handler that the other one belongs to."""
    return {name: value for name, value in row.tags.items() if name not in HANDLER_TAGS}


def packed(stored: StoredRun, now: float, downtime: float) -> bytes:
    """A run as JSON, for another store. Each store counts downtime for itself, so only what is not told yet goes along.

    `downtime` is that of the store the run comes from, as far as it is known.
    """
    untold = max(0.0, downtime - stored.row.head.downtime)
    return msgspec.json.encode({"loom_run": codec.FORMAT_VERSION, "at": now, "run": _with_downtime(stored, -untold)})


def unpacked(data: bytes, now: float, downtime: float) -> StoredRun:
    """A run that was packed. The time on the way counts as time in which nobody was alive."""
    try:
        entry = json.loads(data)
        version, packed_at = int(entry["loom_run"]), float(entry.get("at", now))
        if version > codec.FORMAT_VERSION:
            raise StoreError(
                f"The run was exported in format {version}; this version reads up to {codec.FORMAT_VERSION}."
            )
        stored = msgspec.convert(entry["run"], StoredRun)
    except KeyError as error:
        raise StoreError(f"This is not an exported run: it has no {error}.") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"This is not an exported run: {error}") from error
    return _with_downtime(stored, downtime + min(0.0, stored.row.head.downtime) - max(0.0, now - packed_at))


def _with_downtime(stored: StoredRun, downtime: float) -> StoredRun:
    return replace(stored, row=replace(stored.row, head=replace(stored.row.head, downtime=downtime)))


def _written(
    ticks: list[WorkflowTick], state: BrokerState, planner: Planner, read_field: FieldReader
) -> tuple[BrokerState, list[Chunk]]:
    """Ticks as chunks, with the events that they publish."""
    chunks: list[Chunk] = []
    for part in _parts(ticks):
        first_tick, first_cursor = state.ticks, state.published
        published: list[Published] = []
        for _, after, commands in replay_steps(part, planner, state, read_field):
            state = after
            published += [command.event for command in commands if isinstance(command, CommandPublishEvent)]
        shown = [shown_published(program_in(planner), event) for event in published]
        chunks.append(codec.encode_chunk(part, shown, first_tick, first_cursor))
    return state, chunks


def _parts(ticks: list[WorkflowTick]) -> Iterator[list[WorkflowTick]]:
    for start in range(0, len(ticks), _FORK_CHUNK):
        yield ticks[start : start + _FORK_CHUNK]

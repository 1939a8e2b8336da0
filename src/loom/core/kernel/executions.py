"""The effects of an execution on its run: numbered, applied in order, and never applied twice.

A body that runs again after a crash or a release repeats what it did. Each effect carries (execution, ordinal), so a
repeated one is recognized here and skipped. An ordinal that comes back as something else means that the code has
changed under the run: the run is parked, and says why. Stream writes are numbered apart, and may differ: what they
replace is superseded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.body_effects import EMPTY_BUFFER, NO_WRITES, write_digest
from loom.core.kernel import lifecycle, workers
from loom.core.records import SupersededReport
from loom.core.ticks import CollectCall, TickRecordResult

if TYPE_CHECKING:
    from loom.core.body_effects import CollectBuffer
    from loom.core.persistent import Map
    from loom.core.records import EventRecord
    from loom.core.reducer import Draft
    from loom.core.state import Execution
    from loom.core.ticks import Source, TickAwaitEvent, TickEditStore, TickSleep, TickStartChild


def _of(d: Draft, source: Source, writes: int) -> Execution | None:
    """Find the execution that an effect is of. `writes` of its first tick tells how its stream writes are numbered."""
    execution = workers.find(d, source.step, source.item, source.seq)
    if execution is None or writes < 0 or execution.writes is not None:
        return execution
    return replace(execution, writes=NO_WRITES)


def claim(d: Draft, source: Source, kind: str, writes: int = -1) -> Execution | None:
    """Find the execution of an effect and record the effect. None if it must not be applied.

    That is so if the execution is over, or has had the effect before. `writes` is the field of the tick.
    """
    execution = _of(d, source, writes)
    if execution is None:
        return None
    earlier = execution.effects.get(source.ordinal)
    if earlier is None:
        return record(d, execution, source.ordinal, kind)
    if earlier != kind:
        lifecycle.park(d, _changed(source, earlier, kind))
    return None


def record(d: Draft, execution: Execution, ordinal: int, kind: str) -> Execution:
    """Remember that an execution has had an effect."""
    execution = replace(execution, effects=execution.effects.set(ordinal, kind))
    _put(d, execution)
    return execution


def edit_store(d: Draft, tick: TickEditStore) -> None:
    """Apply an edit. One that was made against another version is applied too: the store's owner orders its writers."""
    if tick.source is not None and claim(d, tick.source, "store", tick.writes) is None:
        return
    if tick.source is None:
        plan = d.planner.on_edited(d.config, d.plan, tick.changed)
        if plan is not None:
            d.plan = plan
            return
    store = d.store.update(tick.changed)
    for key in tick.removed:
        if key in store:
            store = store.delete(key)
    d.store = store
    d.store_version += 1
    if tick.state_type:
        d.store_type = tick.state_type


def write(d: Draft, source: Source, number: int, event: EventRecord) -> None:
    """Publish what a body writes to the stream, unless it stands there already from an earlier repetition."""
    execution = _of(d, source, number)
    if execution is None or execution.writes is None:
        return
    digest = write_digest(event)
    if number < execution.writes.count:
        if execution.writes.is_equal(number, digest):
            return
        execution = _supersede(d, execution, number)
    assert execution.writes is not None
    _put(d, replace(execution, writes=execution.writes.added(digest, d.published)))
    d.publish(event)


def written(d: Draft, execution: Execution, count: int) -> Execution:
    """Supersede what an execution had written beyond `count`: its repeated body waits or ends after that many."""
    if count < 0 or execution.writes is None or count >= execution.writes.count:
        return execution
    execution = _supersede(d, execution, count)
    _put(d, execution)
    return execution


def _supersede(d: Draft, execution: Execution, number: int) -> Execution:
    """Drop the stream writes of an execution from this number on, and tell the readers of the stream."""
    assert execution.writes is not None
    cursors = execution.writes.cursors_from(number)
    if cursors:
        d.publish(SupersededReport(execution.item.step, execution.id, cursors))
    return replace(execution, writes=execution.writes.cut(number))


def begin(
    d: Draft, tick: TickAwaitEvent | TickSleep | TickStartChild | TickRecordResult, kind: str, key: str
) -> tuple[Execution, str] | None:
    """Record that a body waits. None if there is nothing to wait for: the body is gone, or was answered before.

    A body that runs again may have made up another waiter id. So the ordinal of the effect identifies the wait, and its
    kind must be the same. Without a kind the key must be the same. A body that is suspended itself writes no more
    before the answer.
    """
    source = tick.source
    execution = _of(d, source, tick.writes)
    if execution is None:
        return None
    earlier = execution.effects.get(source.ordinal)
    if earlier is None:
        execution = record(d, execution, source.ordinal, key)
    elif earlier == key or (kind and earlier.startswith(kind)):
        key = earlier
    else:
        claim(d, source, key, tick.writes)
        return None
    answer = workers.answer_of(d, execution.item.id, key)
    if answer is not None:
        workers.reply(d, execution, key, answer)
        return None
    suspends = not isinstance(tick, TickRecordResult) and tick.suspends
    return written(d, execution, tick.writes) if suspends else execution, key


def truncated(execution: Execution, call: CollectCall) -> Execution:
    """Drop the effects of an execution from this call on: the body will take another path from there.

    Its stream writes stay, to be compared with what it writes on that path. Writes that cannot be compared are dropped.
    """
    effects, writes = execution.effects, execution.writes
    for done in [n for n in effects if n >= call.ordinal]:
        effects = effects.delete(done)
    if writes is not None and 0 <= call.writes < writes.count and writes.is_unknown(call.writes):
        writes = writes.cut(call.writes)
    return replace(execution, effects=effects, writes=writes)


def settle_collects(d: Draft, execution: Execution, calls: tuple[CollectCall, ...]) -> CollectCall | None:
    """Apply the collect calls of a finished execution. If one was answered wrongly, apply none and return it.

    A body that collects cannot wait for the reducer, and must not run again for every event that others collect in
    between. So it was answered from the buffers as they were at its dispatch. Only if the answer would be another one
    now does the body run again: normally once per full set.
    """
    worker = d.workers[execution.item.step]
    buffers = settled(worker.collected_events, calls, execution.item.event.depth)
    if isinstance(buffers, CollectCall):
        return buffers
    if buffers is not worker.collected_events:
        d.workers = d.workers.set(execution.item.step, replace(worker, collected_events=buffers))
    return None


def settled(
    buffers: Map[str, CollectBuffer], calls: tuple[CollectCall, ...], depth: int = 0
) -> Map[str, CollectBuffer] | CollectCall:
    """Return the buffers of a step after these collect calls, or the first call that was answered wrongly.

    `depth` is that of the execution, and of what it puts aside.
    """
    for call in calls:
        if call.reserved:
            continue
        buffer = buffers.get(call.buffer, EMPTY_BUFFER)
        now = buffer.verdict(call.event.kind.name, call.needed)
        if (now == "take") != call.took or (call.took and buffer.generation != call.generation):
            return call
        if now == "take":
            buffers = buffers.set(call.buffer, buffer.emptied())
        elif now == "keep":
            event = call.event.at_depth(depth) if depth else call.event
            buffers = buffers.set(call.buffer, buffer.with_event(event))
    return buffers


def reserve_collected(
    d: Draft, execution: Execution, calls: tuple[CollectCall, ...]
) -> Map[str, tuple[EventRecord, ...]]:
    """Return the sets that a failed attempt had collected, taken out of their buffers for its next attempt."""
    reserved = execution.item.reserved
    for call in calls:
        worker = d.workers[execution.item.step]
        buffer = worker.collected_events.get(call.buffer, EMPTY_BUFFER)
        if call.took and not call.reserved and buffer.generation == call.generation:
            reserved = reserved.set(call.buffer, (*buffer.events, call.event))
            buffers = worker.collected_events.set(call.buffer, buffer.emptied())
            d.workers = d.workers.set(execution.item.step, replace(worker, collected_events=buffers))
    return reserved


def _put(d: Draft, execution: Execution) -> None:
    item = execution.item
    worker = d.workers[item.step]
    if item.id in worker.in_progress:
        worker = replace(worker, in_progress=worker.in_progress.set(item.id, execution))
    else:
        worker = replace(worker, suspended=worker.suspended.set(item.id, execution))
    d.workers = d.workers.set(item.step, worker)


def _changed(source: Source, earlier: str, now: str) -> str:
    return (
        f"Step '{source.step}' ran again and did something else than before: its effect number {source.ordinal} "
        f"was '{earlier}' and is now '{now}'. The run is parked until the code that it was made with is back."
    )

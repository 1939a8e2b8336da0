"""Buffers of `collect_events`: answered from a snapshot while the body runs, checked here with its result. Pure.

A body that collects cannot wait for the reducer, and must not be run again for every event that others collect
meanwhile. So it is answered from the buffers as they were at its dispatch. Only when the answer would be another one
now is that execution run again: normally once per full set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP
from loom.core.state import CollectBuffer

if TYPE_CHECKING:
    from immutables import Map

    from loom.core.draft import Draft
    from loom.core.records import EventRecord
    from loom.core.state import Execution
    from loom.core.ticks import CollectCall

EMPTY_BUFFER = CollectBuffer()

Verdict = Literal["take", "keep", "drop"]


def verdict(buffer: CollectBuffer, event_type: str, needed: tuple[tuple[str, int], ...]) -> Verdict:
    """What becomes of an event: it completes the set, is put aside, or is not wanted (any more).

    Costs O(number of different types), however many events are expected.
    """
    counts = buffer.counts
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


def add(buffer: CollectBuffer, event: EventRecord) -> CollectBuffer:
    """The buffer with one more event."""
    name = event.kind.name
    return CollectBuffer(
        buffer.events.push_back(event),
        buffer.counts.set(name, buffer.counts.get(name, 0) + 1),
        buffer.generation + 1,
    )


def emptied(buffer: CollectBuffer) -> CollectBuffer:
    """The buffer after its set was taken."""
    return CollectBuffer(EMPTY_FIFO, EMPTY_MAP, buffer.generation + 1)


def settle(d: Draft, execution: Execution, calls: tuple[CollectCall, ...]) -> CollectCall | None:
    """Apply the calls of a finished execution. If one was answered wrongly, apply none and return it."""
    worker = d.workers[execution.item.step]
    buffers = worker.collected_events
    for call in calls:
        if call.reserved:
            continue
        buffer = buffers.get(call.buffer, EMPTY_BUFFER)
        now = verdict(buffer, call.event.kind.name, call.needed)
        if (now == "take") != call.took or (call.took and buffer.generation != call.generation):
            return call
        if now == "take":
            buffers = buffers.set(call.buffer, emptied(buffer))
        elif now == "keep":
            buffers = buffers.set(call.buffer, add(buffer, call.event))
    if buffers is not worker.collected_events:
        d.workers = d.workers.set(execution.item.step, replace(worker, collected_events=buffers))
    return None


def reserve(d: Draft, execution: Execution, calls: tuple[CollectCall, ...]) -> Map[str, tuple[EventRecord, ...]]:
    """The sets that a failed attempt had collected, taken out of their buffers for its next attempt."""
    reserved = execution.item.reserved
    for call in calls:
        worker = d.workers[execution.item.step]
        buffer = worker.collected_events.get(call.buffer, EMPTY_BUFFER)
        if call.took and not call.reserved and buffer.generation == call.generation:
            reserved = reserved.set(call.buffer, (*buffer.events, call.event))
            buffers = worker.collected_events.set(call.buffer, emptied(buffer))
            d.workers = d.workers.set(execution.item.step, replace(worker, collected_events=buffers))
    return reserved

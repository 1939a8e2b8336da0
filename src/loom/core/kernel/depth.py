"""Depth: how long the chains of executions are in which each was caused by the one before, and where that ends.

An event from outside begins a chain. What an execution sends or returns is one deeper than what it worked on, and what
several events lead to together is as deep as the deepest of them. A wait that ends begins a chain anew, if its answer
came from outside or by time. An attempt, a repetition or a long queue is no deeper, and neither is a wide fan-out.

Each event record carries its depth, and a work item is as deep as its event. It is counted only in runs whose config
has a `max_depth`: the longest chain that may be. Work that would make a chain longer is queued, and the run is parked
at the end of the transition, so that nothing of it is lost. It goes on when the limit is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.body_effects import EMPTY_BUFFER
from loom.core.records import deepest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.records import EventRecord
    from loom.core.reducer import Draft
    from loom.core.state import BrokerConfig, Execution, InternalStepWorkerState, WorkItem
    from loom.core.ticks import CollectCall


def below(d: Draft, item: WorkItem) -> int:
    """Return the depth of what an execution of this item makes; 0 where it is not counted."""
    return item.event.depth + 1 if d.config.max_depth is not None else 0


def is_too_deep(config: BrokerConfig, event: EventRecord) -> bool:
    """Tell whether work for an event would make a chain longer than it may be."""
    limit = config.max_depth
    return limit is not None and event.depth >= limit


def answered(d: Draft, step: str, item: int, event: EventRecord | None) -> None:
    """Count anew for work whose wait has ended; None: by time. What a step of the run sent is no new beginning."""
    worker = d.worker(step)
    execution = worker.execution(item)
    if d.config.max_depth is None or execution is None:
        return
    own, depth = execution.item.event, event.depth if event is not None else 0
    if depth:
        depth = max(depth, own.depth)
    if depth != own.depth:
        execution = replace(execution, item=replace(execution.item, event=own.at_depth(depth)))
        place = "in_progress" if item in worker.in_progress else "suspended"
        changed = {place: getattr(worker, place).set(item, execution)}
        d.workers = d.workers.set(step, replace(worker, **changed))
        d.too_deep = d.too_deep or is_too_deep(d.config, execution.item.event)


def collected(d: Draft, execution: Execution, calls: tuple[CollectCall, ...]) -> Execution:
    """Return an execution as deep as the deepest event of the sets that it has collected."""
    item = execution.item
    if d.config.max_depth is None:
        return execution
    buffers = d.workers[item.step].collected_events
    depth = item.event.depth
    for call in calls:
        if call.took:
            buffer = buffers.get(call.buffer, EMPTY_BUFFER)
            depth = max(depth, deepest_of(item.reserved.get(call.buffer, ()) if call.reserved else buffer.events))
    return replace(execution, item=replace(item, event=item.event.at_depth(depth)))


def deepest(d: Draft) -> WorkItem | None:
    """Find the deepest work of a run, of several the oldest; None if the run has none."""
    items = (item for _, worker in sorted(d.workers.items()) for item in _items_of(worker))
    return max(items, key=lambda item: (item.event.depth, -item.id), default=None)


def _items_of(worker: InternalStepWorkerState) -> Iterator[WorkItem]:
    yield from worker.queue
    yield from worker.delayed.values()
    for execution in (*worker.in_progress.values(), *worker.suspended.values()):
        yield execution.item


def is_exceeded(d: Draft) -> bool:
    """Tell whether some work of the run is too deep. Looks at all of it."""
    if d.config.max_depth is None:
        return False
    item = deepest(d)
    return item is not None and is_too_deep(d.config, item.event)


def reason(config: BrokerConfig, item: WorkItem) -> str:
    """Say why a run cannot go on with this work, and what lets it go on."""
    return (
        f"Step '{item.step}' would be execution {item.event.depth + 1} in a row, each caused by the one before, since "
        f"something last came from outside or a timer fired, and max_depth allows {config.max_depth}. It goes on when "
        "it is resumed with a higher max_depth, or when the code has one."
    )

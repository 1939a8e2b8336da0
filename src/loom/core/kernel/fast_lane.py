"""The fast lane: a result with one event for one plain step, or with none from which nothing follows, done in one go.

Most results in most runs of steps are like this. The slow way defines what comes out: `finish`, `on_returned`, a
derived tick, `on_event`, `fill`, `enqueue`. The fast lane leaves out the intents and the tick between, and asks the
planner one question instead of two. Tests compare both ways over random programs and over every golden history; a
planner whose `plain_taker` returns None, and whose `ends_plainly` returns False, always goes the slow way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent
from loom.core.kernel import depth, executions, workers
from loom.core.records import StepReport
from loom.core.ticks import CollectCall

if TYPE_CHECKING:
    from loom.core.body_effects import CollectBuffer
    from loom.core.persistent import Map
    from loom.core.records import EventKind, EventRecord
    from loom.core.reducer import Draft
    from loom.core.state import Execution, InternalStepWorkerState
    from loom.core.ticks import TickStepResult


def pass_on(d: Draft, tick: TickStepResult) -> bool:
    """End an execution and start the one step that takes its event. False, with nothing changed, if that is not all."""
    returned, waiting, at = tick.returned, d.waiting, d.at if tick.at < d.at else tick.at
    if len(returned) > 1 or tick.fanned_out or tick.writes >= 0 or tick.failure is not None:
        return False
    if d.outcome is not None or d.paused or d.cleanup is not None or (d.deadline is not None and at > d.deadline):
        return False
    if waiting.index or waiting.answers or waiting.open or d.last_traceback is not None or d.refused:
        return False
    worker = d.workers.get(tick.step)
    execution = worker.in_progress.get(tick.item) if worker is not None else None
    if worker is None or execution is None or execution.seq != tick.seq or not execution.live or execution.waits_on:
        return False
    if not returned:
        return d.planner.ends_plainly(d.plan, execution.item) and _end(d, worker, execution, tick.collects, at)
    taker = d.planner.plain_taker(d.config, d.plan, execution.item, returned[0]) if not tick.collects else None
    if taker is None:
        return False
    event = returned[0]
    if d.config.program is not None and d.config.max_depth is not None:
        event = event.at_depth(execution.item.event.depth + 1)
        if depth.is_too_deep(d.config, event):
            return False
    d.at = at
    _hand_over(d, worker, execution, taker, event)
    return True


def _end(
    d: Draft, worker: InternalStepWorkerState, execution: Execution, calls: tuple[CollectCall, ...], at: float
) -> bool:
    """Do `settle_collects`, `finish` and `fill` with one state. False, with nothing changed, if a call was wrong."""
    buffers = executions.settled(worker.collected_events, calls, execution.item.event.depth if calls else 0)
    if isinstance(buffers, CollectCall):
        return False
    d.at = at
    d.active -= 1
    worker = _freed(d, worker, execution, None, buffers)
    if worker.queue.size or worker.ready.size:
        worker = workers.filled(d, worker)
    d.workers = d.workers.set(execution.item.step, worker)
    return True


def _hand_over(d: Draft, worker: InternalStepWorkerState, execution: Execution, taker: str, event: EventRecord) -> None:
    """Do `finish`, `fill` and `enqueue` with fewer states between. The run is not paused."""
    item, step = execution.item, execution.item.step
    worker = _freed(d, worker, execution, event.kind, worker.collected_events)
    if worker.queue.size or worker.ready.size:
        worker = workers.filled(d, worker)
    if taker == step:
        following = worker  # the next state of the same step replaces this one
    else:
        d.workers = d.workers.set(step, worker)
        following = d.workers.get(taker) or d.worker(taker)
    d.workers = d.workers.set(taker, workers.with_work(d, following, taker, event, item.extra))


def _freed(
    d: Draft,
    worker: InternalStepWorkerState,
    execution: Execution,
    output: EventKind | None,
    buffers: Map[str, CollectBuffer],
) -> InternalStepWorkerState:
    """Publish the end of an execution that has returned, and free its worker."""
    item = execution.item
    ended = StepReport(item.step, "not_running", execution.worker_id, item.event.kind, output, True)
    d.commands.append(CommandPublishEvent(d.published, ended))
    d.published += 1
    return replace(
        worker,
        in_progress=worker.in_progress.delete(item.id),
        busy=worker.busy & ~(1 << execution.worker_id),
        collected_events=buffers,
    )

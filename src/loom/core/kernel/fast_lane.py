"""The fast lane: a result with one event for one plain step, done in one go.

Most results in most runs of steps are like this. The slow way defines what comes out: `finish`, `on_returned`, a
derived tick, `on_event`, `fill`, `enqueue`. The fast lane leaves out the intents and the tick between, and asks the
planner one question instead of two. Tests compare both ways over random programs and over every golden history; a
planner whose `plain_taker` returns None always goes the slow way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent
from loom.core.kernel import workers
from loom.core.records import StepReport
from loom.core.state import WorkItem

if TYPE_CHECKING:
    from loom.core.records import EventRecord
    from loom.core.reducer import Draft
    from loom.core.state import Execution, InternalStepWorkerState
    from loom.core.ticks import TickStepResult


def pass_on(d: Draft, tick: TickStepResult) -> bool:
    """End an execution and start the one step that takes its event. False, with nothing changed, if that is not all."""
    returned, waiting, at = tick.returned, d.waiting, d.at if tick.at < d.at else tick.at
    if len(returned) != 1 or tick.fanned_out or tick.collects or tick.writes >= 0 or tick.failure is not None:
        return False
    if d.outcome is not None or d.paused or (d.deadline is not None and at > d.deadline):
        return False
    if waiting.index or waiting.answers or waiting.open or d.last_traceback is not None or d.refused:
        return False
    worker = d.workers.get(tick.step)
    execution = worker.in_progress.get(tick.item) if worker is not None else None
    if worker is None or execution is None or execution.seq != tick.seq or not execution.live or execution.waits_on:
        return False
    taker = d.planner.plain_taker(d.config, d.plan, execution.item, returned[0])
    if taker is None:
        return False
    d.at = at
    _hand_over(d, worker, execution, taker, returned[0])
    return True


def _hand_over(d: Draft, worker: InternalStepWorkerState, execution: Execution, taker: str, event: EventRecord) -> None:
    """Do `finish`, `fill` and `enqueue` with fewer states between. The run is not paused."""
    item, step = execution.item, execution.item.step
    ended = StepReport(step, "not_running", execution.worker_id, item.event.kind, event.kind, True)
    d.commands.append(CommandPublishEvent(d.published, ended))
    d.published += 1
    in_progress, busy = worker.in_progress.delete(item.id), worker.busy & ~(1 << execution.worker_id)
    worker = replace(worker, in_progress=in_progress, busy=busy)
    if taker == step and not worker.queue.size and not worker.ready.size:
        following = worker  # the next state of the same step replaces this one
    else:
        d.workers = d.workers.set(step, worker)
        workers.fill(d, step)
        following = d.workers.get(taker) or d.worker(taker)
    limit = following.num_workers
    if following.queue.size or following.ready.size or (limit and len(following.in_progress) >= limit):
        d.active -= 1
        workers.enqueue(d, taker, event, item.extra)
        return
    d.items = number = d.items + 1
    started = workers.dispatch(d, following, WorkItem(number, taker, event, item.extra, 0, d.at))
    d.workers = d.workers.set(taker, started)

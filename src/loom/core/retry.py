"""What becomes of work that failed: another attempt, now or later, or the planner's recovery. Pure.

The reducer never asks a policy. A step's policy was asked at the edge, and its verdict came in with the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.kernel import executions, timers, waiters, workers
from loom.core.persistent import EMPTY_MAP
from loom.core.planner import Fail, StepFailed
from loom.core.records import Traceback, without_traceback
from loom.core.state import Timer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.draft import Draft
    from loom.core.planner import Intent
    from loom.core.records import Failure
    from loom.core.state import Execution, WorkItem
    from loom.core.ticks import TickStepResult


def after_failure(d: Draft, execution: Execution, tick: TickStepResult, failure: Failure) -> Sequence[Intent]:
    """Schedule the next attempt if the verdict allows one, else ask the planner what follows."""
    item = execution.item
    again = replace(
        item,
        attempts=item.attempts + 1,
        last_failure=without_traceback(failure),
        last_failed_at=d.at,
        reserved=executions.reserve_collected(d, execution, tick.collects),
        execution=None,
        effects=EMPTY_MAP,
        max_attempts=tick.max_attempts,
        writes=None,
    )
    if failure.traceback:
        d.last_traceback = Traceback(item.step, item.id, failure.traceback)
    workers.finish(d, execution)
    if tick.retry_delay_s is None:
        return _failed_for_good(d, item, again, failure)
    item = again
    waiters.begin_anew(d, item.id)
    if tick.retry_delay_s <= 0:
        workers.requeue(d, item)
        return ()
    timer = timers.arm(d, Timer(d.at + tick.retry_delay_s, "retry", item.step))
    worker = d.worker(item.step)
    d.workers = d.workers.set(item.step, replace(worker, delayed=worker.delayed.set(timer, item)))
    return ()


def _failed_for_good(d: Draft, item: WorkItem, again: WorkItem, failure: Failure) -> Sequence[Intent]:
    """Ask the planner what follows. If the run fails with it, the work stays: a retry of the run begins with it."""
    elapsed = d.at - (item.first_at if item.first_at is not None else d.at)
    fact = StepFailed(item, failure, item.attempts + 1, elapsed, d.at)
    plan, intents = d.planner.on_failed(d.config, d.plan, fact)
    if any(type(intent) is Fail for intent in intents):
        waiters.begin_anew(d, item.id)
        workers.requeue(d, replace(again, attempts=0, first_at=None))
    else:
        waiters.forget_item(d, item.step, item.id)
        d.plan = plan
    return intents


def attempt_due(d: Draft, step: str, timer: int) -> None:
    """A delayed attempt's time has come: it is next in its queue."""
    worker = d.worker(step)
    item = worker.delayed.get(timer)
    if item is None:
        return
    d.workers = d.workers.set(step, replace(worker, delayed=worker.delayed.delete(timer)))
    workers.requeue(d, item)
    workers.fill(d, step)

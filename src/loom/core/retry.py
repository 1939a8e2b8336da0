"""What becomes of work that failed: another attempt, now or later, or the planner's recovery. Pure.

The reducer never asks a policy. A step's policy was asked at the edge, and its verdict came in with the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.kernel import collecting, timers, waiters, workers
from loom.core.persistent import EMPTY_MAP
from loom.core.planner import StepFailed
from loom.core.state import Timer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.draft import Draft
    from loom.core.planner import Intent
    from loom.core.records import Failure
    from loom.core.state import Execution
    from loom.core.ticks import TickStepResult


def after_failure(d: Draft, execution: Execution, tick: TickStepResult, failure: Failure) -> Sequence[Intent]:
    """Schedule the next attempt if the verdict allows one, else ask the planner what follows."""
    item = execution.item
    reserved = collecting.reserve(d, execution, tick.collects)
    workers.finish(d, execution)
    if tick.retry_delay_s is None:
        waiters.forget_item(d, item.step, item.id)
        elapsed = d.at - (item.first_at if item.first_at is not None else d.at)
        fact = StepFailed(item, failure, item.attempts + 1, elapsed, d.at)
        d.plan, intents = d.planner.on_failed(d.config, d.plan, fact)
        return intents
    waiters.begin_anew(d, item.id)
    item = replace(
        item,
        attempts=item.attempts + 1,
        last_failure=failure,
        last_failed_at=d.at,
        reserved=reserved,
        execution=None,
        effects=EMPTY_MAP,
    )
    if tick.retry_delay_s <= 0:
        workers.requeue(d, item)
        return ()
    timer = timers.arm(d, Timer(d.at + tick.retry_delay_s, "retry", item.step))
    worker = d.worker(item.step)
    d.workers = d.workers.set(item.step, replace(worker, delayed=worker.delayed.set(timer, item)))
    return ()


def attempt_due(d: Draft, step: str, timer: int) -> None:
    """A delayed attempt's time has come: it is next in its queue."""
    worker = d.worker(step)
    item = worker.delayed.get(timer)
    if item is None:
        return
    d.workers = d.workers.set(step, replace(worker, delayed=worker.delayed.delete(timer)))
    workers.requeue(d, item)
    workers.fill(d, step)

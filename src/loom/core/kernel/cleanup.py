"""The clean-up of a cancelled run: one step that runs, with its retries and a bound on time, before the run ends.

A cancel stops the work under way and gives the clean-up step one work item. From then on the planner is not asked any
more: events that come in are kept for waiters, and whatever ends the work item ends the run, cancelled. The bound is
the run's timeout from then on, so it survives crashes and counts only time in which a process has the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.commands import CommandStopWork
from loom.core.kernel import lifecycle, workers
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP
from loom.core.records import RUN_CANCELLED_KIND, Cancellation, EventRecord
from loom.core.state import Cleanup, Outcome, Timer, Waiting

if TYPE_CHECKING:
    from loom.core.records import Failure
    from loom.core.reducer import Draft
    from loom.core.state import CleanupSpec, WorkItem
    from loom.core.ticks import TickCancelRun, TickTimeout


def cancel(d: Draft, tick: TickCancelRun) -> None:
    """Begin the clean-up of a run, or end it at once.

    A run that has begun no work has nothing to clean up, and a parked one has no code that could. A cancel that comes
    during the clean-up changes nothing: the same one may arrive twice.
    """
    spec = d.config.cleanup
    if spec is None or tick.force or d.outcome is not None or not d.items:
        lifecycle.cancel(d)
    elif d.cleanup is None:
        _begin(d, tick, spec)


def _begin(d: Draft, tick: TickCancelRun, spec: CleanupSpec) -> None:
    """Stop the work of a run, and give its clean-up step a work item."""
    under_way = tuple(step for step in lifecycle.steps_in_order(d) if lifecycle.holds_work(d.workers[step]))
    for number in sorted(d.timers):
        d.disarm(number)
    lifecycle.cancel_children(d)
    workers.drop_all(d)
    d.commands.append(CommandStopWork())
    d.due, d.refused, d.last_traceback = EMPTY_FIFO, EMPTY_MAP, None
    d.waiting = Waiting(kept=d.waiting.kept, kept_count=d.waiting.kept_count)
    d.plan = d.planner.start(d.config, d.run_id, d.seed)
    d.paused, d.idle_since = False, None
    d.deadline = d.at + spec.timeout_s
    d.timeout_timer = d.arm(Timer(d.deadline, "timeout"))
    d.cleanup = Cleanup(spec.step, d.items + 1)
    body = Cancellation(tick.reason, under_way, d.at)
    workers.enqueue(d, spec.step, EventRecord(RUN_CANCELLED_KIND, body))


def finished(d: Draft, item: WorkItem, failure: Failure | None) -> None:
    """End the run when its clean-up step has returned, or has failed and will not be tried again."""
    if failure is None:
        lifecycle.end_cancelled(d, Outcome("cancelled"))
        return
    attempts = item.attempts + 1
    times = "once" if attempts == 1 else f"{attempts} times"
    d.warn(f"Clean-up step '{item.step}' failed {times}, so the run ends without it: {failure.message}")
    lifecycle.end_cancelled(d, Outcome("cancelled", step=item.step, failure=failure))


def timer_due(d: Draft, tick: TickTimeout) -> None:
    """End the run if this is still the timer of its time, or of its clean-up's."""
    if tick.timer == d.timeout_timer:
        time_out(d)
    else:
        d.dropped += 1


def time_out(d: Draft) -> None:
    """End the run because its time is over, or the time of its clean-up step."""
    if d.cleanup is None:
        lifecycle.time_out(d)
        return
    spec, step = d.config.cleanup, d.cleanup.step
    bound = f" after {spec.timeout_s} seconds" if spec is not None else ""
    message = f"Clean-up step '{step}' was not done{bound}."
    d.warn(f"{message} The run ends without it.")
    lifecycle.end_cancelled(d, Outcome("cancelled", step=step, message=message))

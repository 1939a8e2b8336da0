"""How a run begins, is recovered, is paused, becomes idle and ends; how a failed one goes on; its child runs.

A tick only decides that a run is over; the command that says so is built when the queue is flushed, after everything
else of the batch.

A child is a run of its own, which a work item waits for like for an event. Its parent knows its number and id, and
learns of its end by a tick. The start leaves with the commit that holds the wait, so it is never asked for twice.
Children end with their parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.body_effects import addressed, waiter_id_of
from loom.core.commands import CommandCancelChild, CommandStartChild
from loom.core.kernel import depth, workers
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo, Map
from loom.core.records import CancelledReport, FailedReport, IdleReport, TimedOutReport, without_traceback
from loom.core.state import (
    MAX_REPORTED,
    Abandoned,
    Answer,
    Child,
    ChildEnd,
    Outcome,
    Timer,
    Waiting,
    raised,
    specs_of,
)
from loom.core.ticks import TickAddEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.planner import Complete
    from loom.core.records import EventRecord, Failure
    from loom.core.reducer import Draft
    from loom.core.state import InternalStepWorkerState, WorkItem
    from loom.core.ticks import (
        TickChildEnded,
        TickContinueRun,
        TickPauseRun,
        TickResume,
        TickRetryRun,
        TickStartChild,
        TickStartRun,
    )


def start(d: Draft, tick: TickStartRun) -> None:
    """Begin a run with its first tick. A second one is refused."""
    if d.run_id or not tick.run_id:
        d.dropped += 1
        return
    d.run_id, d.config, d.seed, d.is_running = tick.run_id, tick.config, tick.seed, True
    d.at = d.alive_since = tick.at
    d.plan = d.planner.start(tick.config, tick.run_id, tick.seed)
    d.store, d.store_type = Map(tick.store), tick.store_type
    _arm_timeout(d)
    if tick.event is not None:
        d.derived.append(TickAddEvent(at=d.at, event=tick.event))


def _arm_timeout(d: Draft) -> None:
    if d.config.timeout_s is not None:
        d.deadline = d.alive_since + d.config.timeout_s
        d.timeout_timer = d.arm(Timer(d.deadline, "timeout"))


def resume(d: Draft, tick: TickResume) -> None:
    """Recover the run in a process: start bodies again, ask for timers again, do not count the time away."""
    if d.outcome is not None and d.outcome.status == "parked":
        d.outcome, d.is_running = None, True
    if tick.config is not None:
        missing = sorted(step for step, w in d.workers.items() if step not in specs_of(tick.config) and holds_work(w))
        if missing:
            park(d, f"The code at hand has no step {', '.join(map(repr, missing))}, which the run has work for.")
            return
        d.config = tick.config
    d.alive_since += tick.away_s
    if d.deadline is not None and d.timeout_timer is not None:
        d.deadline += tick.away_s
        d.timers = d.timers.set(d.timeout_timer, Timer(d.deadline, "timeout"))
    d.rearm_all()
    workers.rewind_in_progress(d)
    d.too_deep = depth.is_exceeded(d)
    if not d.too_deep:
        _fill_all(d)


def _fill_all(d: Draft) -> None:
    for step in steps_in_order(d):
        workers.fill(d, step)


def pause(d: Draft, _tick: TickPauseRun) -> None:
    """Let nothing begin from here on. Bodies at work end what they do, and all input is taken in."""
    d.paused = True


def go_on(d: Draft, tick: TickContinueRun) -> None:
    """Begin what has come in while the run was paused."""
    d.config = raised(d.config, tick.max_depth)
    if d.paused:
        d.paused = False
        _fill_all(d)


def retry(d: Draft, _tick: TickRetryRun) -> bool:
    """Continue a failed run from what it had in hand, with its whole timeout again. False if it has nothing."""
    abandoned = d.outcome.abandoned if d.outcome is not None else None
    if abandoned is None:
        d.dropped += 1
        return False
    d.outcome, d.is_running = None, True
    d.workers, d.plan, d.waiting = abandoned.workers, abandoned.plan, abandoned.waiting
    d.timers, d.active, d.asleep = abandoned.timers, abandoned.active, abandoned.asleep
    d.rearm_all()
    d.alive_since = d.at
    _arm_timeout(d)
    workers.rewind_in_progress(d)
    workers.rewind_stranded(d)
    _fill_all(d)
    return True


def healed(abandoned: Abandoned, tick: TickRetryRun) -> Abandoned | None:
    """Return what a run goes on from, with the event of the tick in place of the one that failed; None if that is gone.

    The place is the answer that a wait of the failed work had got, or the event that the work was for.
    """
    return _with_answer(abandoned, tick) if tick.key else _with_input(abandoned, tick)


def _with_answer(abandoned: Abandoned, tick: TickRetryRun) -> Abandoned | None:
    """Take the answer of the wait away. The body asks again and finds the new event, which is kept for it alone."""
    if tick.event is None or tick.key not in abandoned.answers_of(tick.item):
        return None
    waiting = abandoned.waiting
    answers = waiting.answers.set(tick.item, waiting.answers[tick.item].delete(tick.key))
    name = addressed(waiter_id_of(tick.key))
    kept: Fifo[EventRecord] = waiting.kept.get(name, EMPTY_FIFO)
    # In front of all others: it stands in for an event that had come before them.
    by_name = waiting.kept.set(name, kept.push_front(tick.event))
    waiting = replace(waiting, answers=answers, kept=by_name, kept_count=waiting.kept_count + 1)
    return replace(abandoned, waiting=waiting)


def _with_input(abandoned: Abandoned, tick: TickRetryRun) -> Abandoned | None:
    worker = abandoned.workers.get(tick.step)
    if tick.event is None or worker is None or all(item.id != tick.item for item in worker.queue):
        return None
    queue = [replace(item, event=tick.event) if item.id == tick.item else item for item in worker.queue]
    return replace(abandoned, workers=abandoned.workers.set(tick.step, replace(worker, queue=Fifo.of(queue))))


def holds_work(worker: InternalStepWorkerState) -> bool:
    """Return whether a step has work that is not done, in whatever state."""
    return bool(worker.queue or worker.in_progress or worker.suspended or worker.delayed)


def steps_in_order(d: Draft) -> list[str]:
    """List the steps with a state: first the steps of the config, in its order."""
    known = [spec.name for spec in d.config.steps if spec.name in d.workers]
    return known + sorted(set(d.workers) - set(known))


def cancel(d: Draft) -> None:
    """End the run on request. Its work stays in the state, so that a saved context can go on from here."""
    d.publish(CancelledReport())
    cancel_children(d)
    _end(d, Outcome("cancelled"))


def end_cancelled(d: Draft, outcome: Outcome) -> None:
    """End a cancelled run after its clean-up. That has undone its work, so nothing stays to go on from."""
    d.publish(CancelledReport())
    cancel_children(d)
    _end(d, outcome)
    _clear(d)


def park(d: Draft, reason: str) -> None:
    """Stop a run that this code cannot go on with. Nothing of it is lost."""
    _end(d, Outcome("parked", message=reason))


def park_too_deep(d: Draft) -> None:
    """Park a run whose chain of executions has become too long, unless the run is over."""
    d.too_deep = False
    item = depth.deepest(d)
    if item is not None and d.outcome is None:
        park(d, depth.reason(d.config, item))


def complete(d: Draft, intent: Complete) -> None:
    """End the run with its result, which may tell of a failure."""
    d.publish(intent.event)
    cancel_children(d)
    abandoned = None
    if intent.status == "failed":
        # The planner has ended it, so the planner knows where to begin again: it needs nothing but its plan.
        abandoned = Abandoned(EMPTY_MAP, d.plan, Waiting(), EMPTY_MAP, 0, 0)
    _end(d, Outcome(intent.status, intent.event, intent.step, intent.failure, abandoned=abandoned))
    _clear(d)


def fail(d: Draft, step: str, failure: Failure, attempts: int | None = None, elapsed_s: float | None = None) -> None:
    """End the run with a failure."""
    d.publish(FailedReport(step, failure, attempts, elapsed_s))
    _end(d, Outcome("failed", step=step, failure=failure, abandoned=_abandon(d)))
    _clear(d)
    d.last_traceback = None  # the outcome has it


def time_out(d: Draft) -> None:
    """End the run because its time is over."""
    timeout = d.config.timeout_s or 0.0
    active = tuple(spec.name for spec in d.config.steps if d.worker(spec.name).in_progress)
    steps = f"Currently active steps: {', '.join(active)}" if active else "No steps active"
    d.publish(TimedOutReport(timeout, active))
    message = f"Operation timed out after {timeout} seconds. {steps}"
    _end(d, Outcome("timed_out", message=message, abandoned=_abandon(d)))
    _clear(d)


def _abandon(d: Draft) -> Abandoned:
    """Return what the run has in hand, for a retry. Its children end with it; a retry sets a new timeout."""
    cancel_children(d)
    if d.timeout_timer is not None:
        d.take_timer(d.timeout_timer)
    return Abandoned(d.workers, d.plan, d.waiting, d.timers, d.active, d.asleep)


def _end(d: Draft, outcome: Outcome) -> None:
    d.outcome = outcome
    d.is_running = False
    d.idle_since = None


def _clear(d: Draft) -> None:
    """Drop the work of a run that ended for good."""
    workers.drop_all(d)
    d.due = EMPTY_FIFO
    d.plan = d.planner.start(d.config, d.run_id, d.seed)
    d.waiting = Waiting()
    d.refused = EMPTY_MAP
    d.deadline = d.timeout_timer = None


def waiting_items(d: Draft) -> Iterator[WorkItem]:
    """Yield the work that is suspended in a wait, step by step. Few planners ask, and a run may have much of it."""
    for step in steps_in_order(d):
        for _, execution in sorted(d.workers[step].suspended.items()):
            yield execution.item


def announce_idleness(d: Draft) -> None:
    """Note that the run is idle, if it still is, and tell the stream what it waits for."""
    if not d.is_running or d.active or d.asleep:
        return
    d.idle_since = d.at
    d.publish(IdleReport(d.freeze().waiter_reports(MAX_REPORTED), d.at))


# Child runs.


def start_child(d: Draft, tick: TickStartChild, item: WorkItem, key: str) -> None:
    """Start a run that the item waits for under this key. Its id is made of the id of its parent."""
    number = d.next_seq()
    child = Child(f"{d.run_id}:{number}", tick.workflow, item.step, item.id, key, d.at)
    d.children = d.children.set(number, child)
    workers.open_wait(d, item.id, key, number)
    d.commands.append(CommandStartChild(number, child.run_id, tick.workflow, tick.start))


def child_ended(d: Draft, tick: TickChildEnded) -> None:
    """Answer the wait for a child that is over, with its result or with how else it ended."""
    child = d.children.get(tick.child)
    if child is None:
        d.dropped += 1
        return
    _forget_child(d, tick.child, child)
    # A parent may have many children, and each has its traceback in its own history.
    failure = without_traceback(tick.failure) if tick.failure is not None else None
    answer = Answer(tick.event, child=ChildEnd(child.run_id, tick.status, failure))
    workers.set_answer(d, child.item, child.key, answer)
    workers.wake(d, child.step, child.item, child.key, answer)


def cancel_child(d: Draft, number: int) -> None:
    """Cancel a child that no body waits for any more."""
    child = d.children[number]
    _forget_child(d, number, child)
    d.commands.append(CommandCancelChild(number, child.run_id))


def cancel_children(d: Draft) -> None:
    """Cancel all children, oldest first, because the run is over."""
    for number in sorted(d.children):
        cancel_child(d, number)
    d.children = EMPTY_MAP


def _forget_child(d: Draft, number: int, child: Child) -> None:
    d.children = d.children.delete(number)
    workers.close_wait(d, child.item, child.key)

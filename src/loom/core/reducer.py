"""The reducer: `State + Tick -> (NewState, Commands)`. The only code that changes a run.

Theory of operation
-------------------

**Tick.** A tick is one thing that happened: a run began, an event arrived, a body returned, waited or failed, a timer
is due. It carries its own time `at`, in seconds since the epoch. Ticks are the only input. The reducer reads no clock,
draws no numbers and calls nothing outside, so a tick holds all that a decision may depend on.

**Promises.** The reducer is pure: it changes no state that it was given. It is total: any tick in any state gives an
answer. A stale or unknown result moves the clock at most, and is counted in `dropped`. Time never goes back: a tick
with an earlier time is taken at the time of the run.

**Flow of a tick.** `transition` does one input tick on a `Draft`, which is a state open for change.

1. `_apply` moves the clock and refuses what comes too late: after the end, before the start, past the deadline. Then it
   hands the tick to its function, found by its type in `_REDUCERS`. Each type of tick has one entry.
2. The function changes the draft through the kernel. The kernel (`loom.core.kernel`) owns what every run has: queues
   and workers, attempts, timers, waits, child runs, the lifecycle. It appends commands to the draft.
3. Where the authoring style matters, the function tells the planner a fact and gets intents back. `_follow` carries
   them out with the kernel. Only there do intents become commands; a planner never makes one.
4. Events that the run makes itself are *derived* ticks. `_settle` reduces them in order, within the same transition.
   They are never in a journal, because replay derives them again.
5. If only input from outside can move the run now, the planner is asked once more (`on_idle`). Then the run publishes
   that it is idle. A tick marked `more` skips this: the driver had another tick waiting.

A result with one event for one plain step may skip 1 to 4 by `kernel.fast_lane`, which gives the same.

**Bursts and batches.** A planner may do much work in one transition; the flow planner calls that a burst and counts its
cost in units. `Run` reduces all ticks that it was fed and gives them out as one `Batch`: the ticks for the journal,
then the commands to carry out. A driver saves a batch as one commit. How ticks fall into batches shows in one place
only, the marks `more`, and those are in the journal.

**Replay.** A state is a fold of `transition` over a journal. It depends on the ticks, on the planner and on the reader
of event fields, and on nothing else: not on the machine, the process or the moment. Persistent maps iterate in an order
that differs between processes, so whatever reaches a command is ordered by a number first.

**Numbers.** `sequence` numbers what is answered later: commands, timers, waiters. A result carries the number of its
command back, and a stale number is refused. `cursor` counts the events of the stream from 0. Durations end in `_s` and
are seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import replace

from loom.core.commands import (
    CommandCancelTimer,
    CommandPublishEvent,
    CommandQueueEvent,
    CommandStartTimer,
    CommandWarn,
    WorkflowCommand,
)
from loom.core.kernel import cleanup, depth, executions, fast_lane, lifecycle, waiters, workers
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP
from loom.core.planner import Complete, Emit, Fail, Intent, Planner, Publish, RunStep, StartTimer, StepFailed, Warn
from loom.core.records import INPUT_REQUIRED_EVENT, EventRecord, Notice, Traceback, UnhandledReport, without_traceback
from loom.core.state import MOVING, BrokerState, InternalStepWorkerState, RunFields, Timer, num_workers, skippable
from loom.core.ticks import (
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickSleep,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
    WorkflowTick,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loom.core.records import Failure, Published
    from loom.core.state import Execution, Outcome, WorkItem

    _Fields = RunFields
else:
    # Plain slots are read and written faster than the fields of a struct, and nothing here needs more.
    _Fields = object

FieldReader = Callable[[EventRecord, str], Any]
"""Reads a field of an event's body, None if it has none: the engine cannot look inside a body by itself."""

_NAMES = RunFields.__struct_fields__
_values_of = attrgetter(*_NAMES)


class Draft(_Fields):
    """A state under construction, the only mutable thing in the engine: its fields, and the commands so far.

    It is made from a state, changed by one tick after the other, and frozen when a caller asks for the next state. A
    caller that keeps one across ticks must be able to make it anew from the last state, in case a tick raises halfway:
    see `Run`.

    Its methods are the changes that must keep two things in step: a number and its counter, a timer and its command.
    Timers of retries, of sleeps and of the planner will move the run by themselves. While one of them is armed, the run
    is asleep rather than idle. Timeouts, of a waiter or of the run, do not count as such.
    """

    if not TYPE_CHECKING:
        __slots__ = (*_NAMES, "commands", "derived", "planner", "read_field", "too_deep")

    def __init__(self, state: BrokerState, planner: Planner, read_field: FieldReader) -> None:
        for name, value in zip(_NAMES, _values_of(state), strict=True):
            setattr(self, name, value)
        self.planner = planner
        self.read_field = read_field
        self.commands: list[WorkflowCommand] = []
        self.derived: list[TickAddEvent] = []
        """Events that the run made itself: `CommandQueueEvent`s, to be reduced within the same transition."""
        self.too_deep = False
        """Whether work has come up that is too deep, for which the run is parked at the end of the transition."""

    def worker(self, step: str) -> InternalStepWorkerState:
        """Return the state of a step, a new one if it has none yet."""
        worker = self.workers.get(step)
        return worker if worker is not None else InternalStepWorkerState(num_workers(self.config, step))

    def next_seq(self) -> int:
        """Return a new number for an outward command, timer or waiter."""
        self.sequence += 1
        return self.sequence

    def publish(self, event: Published) -> None:
        """Put something on the stream, at the next cursor."""
        self.commands.append(CommandPublishEvent(self.published, event))
        self.published += 1

    def warn(self, message: str) -> None:
        """Warn the operator, through the log."""
        self.commands.append(CommandWarn(Notice(message)))

    def arm(self, timer: Timer) -> int:
        """Start a timer and return its number."""
        number = self.next_seq()
        self.timers = self.timers.set(number, timer)
        if timer.purpose in MOVING:
            self.asleep += 1
        self.commands.append(CommandStartTimer(number, timer.due, timer.purpose))
        return number

    def disarm(self, number: int | None) -> None:
        """Cancel a timer, if it is armed."""
        if number is not None and self.take_timer(number) is not None:
            self.commands.append(CommandCancelTimer(number))

    def take_timer(self, number: int) -> Timer | None:
        """Remove a timer that has fired and return it; None if it was disarmed or has fired before."""
        timer = self.timers.get(number)
        if timer is not None:
            self.timers = self.timers.delete(number)
            if timer.purpose in MOVING:
                self.asleep -= 1
        return timer

    def rearm_all(self) -> None:
        """Ask for every armed timer again, in the order in which they were started."""
        for number in sorted(self.timers):
            timer = self.timers[number]
            self.commands.append(CommandStartTimer(number, timer.due, timer.purpose))

    def freeze(self) -> BrokerState:
        """Return the state as it is now."""
        return BrokerState(*_values_of(self))


def no_fields(_event: EventRecord, _name: str) -> Any:
    """Read no field: the reader for events whose bodies cannot be opened here."""
    return None


def reduce(
    state: BrokerState, tick: WorkflowTick, planner: Planner, read_field: FieldReader = no_fields
) -> tuple[BrokerState, list[WorkflowCommand]]:
    """Take one step: return the state after a tick and its commands, with derived events as `CommandQueueEvent`."""
    draft = Draft(state, planner, read_field)
    draft.too_deep = depth.is_exceeded(draft)  # by an event before, with more events to come from the same transition
    _apply(draft, tick)
    if draft.too_deep and not draft.derived and not tick.more:
        lifecycle.park_too_deep(draft)
    if draft.config.max_depth is not None:
        draft.derived[:-1] = [replace(derived, more=True) for derived in draft.derived[:-1]]
    return draft.freeze(), [*draft.commands, *(CommandQueueEvent(derived) for derived in draft.derived)]


def advance(
    state: BrokerState, tick: WorkflowTick, planner: Planner, read_field: FieldReader = no_fields
) -> tuple[BrokerState, list[WorkflowCommand]]:
    """Do the whole transition of an input tick: events that the run makes itself are reduced within it."""
    draft = Draft(state, planner, read_field)
    transition(draft, tick)
    return draft.freeze(), draft.commands


def replay(
    ticks: Iterable[WorkflowTick],
    planner: Planner,
    state: BrokerState | None = None,
    read_field: FieldReader = no_fields,
) -> BrokerState:
    """Return the state after a journal, from the beginning or from a snapshot."""
    draft = Draft(state if state is not None else BrokerState(), planner, read_field)
    for tick in ticks:
        transition(draft, tick)
        draft.commands = []
    return draft.freeze()


def replay_steps(
    ticks: Iterable[WorkflowTick],
    planner: Planner,
    state: BrokerState | None = None,
    read_field: FieldReader = no_fields,
) -> Iterator[tuple[WorkflowTick, BrokerState, list[WorkflowCommand]]]:
    """Yield each tick of a journal with the state after it and its commands."""
    current = state if state is not None else BrokerState()
    for tick in ticks:
        current, commands = advance(current, tick, planner, read_field)
        yield tick, current, commands


def rewound(state: BrokerState, planner: Planner) -> BrokerState:
    """Return the state as a dead process leaves it: executing work is queued again, and no body is in memory.

    A `TickResume` lets the run go on from there.
    """
    draft = Draft(state, planner, no_fields)
    workers.rewind_in_progress(draft)
    return draft.freeze()


def transition(draft: Draft, tick: WorkflowTick) -> None:
    """Do `advance` on an open draft, for a caller that carries one draft through many ticks.

    After the tick, a run that only input from outside can move says that it is idle, unless more input is waiting.
    """
    draft.ticks += 1
    if type(tick) is not TickStepResult or not fast_lane.pass_on(draft, tick):
        _apply(draft, tick)
        if draft.derived:
            _settle(draft)
        if draft.too_deep:
            lifecycle.park_too_deep(draft)
    if draft.active or draft.asleep or not draft.is_running:
        draft.idle_since = None
    elif draft.idle_since is None and not tick.more:
        draft.plan, intents = draft.planner.on_idle(draft.config, draft.plan, lifecycle.waiting_items(draft))
        _follow(draft, intents)
        _settle(draft)
        lifecycle.announce_idleness(draft)


def _settle(d: Draft) -> None:
    """Reduce all events that the run made itself, in order."""
    derived = d.derived
    while derived:
        d.derived = []
        for tick in derived:
            _apply(d, tick)
        derived = d.derived


def _apply(d: Draft, tick: WorkflowTick) -> None:
    """Bring the clock forward, refuse what comes too late, and hand the tick to its function."""
    if tick.at > d.at:  # noqa: PLR1730 - max() costs a call, on every tick
        d.at = tick.at
    kind = type(tick)
    if kind is not TickStartRun:
        if d.outcome is not None and not may_go_on(d.outcome, kind):
            d.dropped += 1
            return
        if not d.run_id:
            d.dropped += 1
            return
        if d.deadline is not None and d.at > d.deadline and kind is not TickResume:
            # A result after the deadline does not win, even if the timer has not been heard of yet.
            cleanup.time_out(d)
            return
    _REDUCERS[kind](d, tick)


def may_go_on(outcome: Outcome, tick: type) -> bool:
    """Tell whether a run that is over takes this tick. A parked one is recovered or cancelled, a failed one retried."""
    if outcome.status == "parked":
        return tick is TickResume or tick is TickCancelRun
    return tick is TickRetryRun and outcome.abandoned is not None


def _add_event(d: Draft, tick: TickAddEvent) -> None:
    """Give an event to its waiters, then to the steps that accept it. Report and keep one that none takes."""
    event, origin = tick.event, tick.origin
    if tick.source is not None:
        execution = executions.claim(d, tick.source, "send", tick.writes)
        if execution is None:
            return
        origin = d.planner.origin_of(execution.item)
        if d.config.max_depth is not None:
            event = event.at_depth(depth.below(d, execution.item))
    if tick.event_id is not None:
        if tick.event_id in d.seen:
            return
        d.seen = d.seen.set(tick.event_id, len(d.seen))
    woken = waiters.resolve(d, event, tick.waiter_id) if d.waiting.index else _NO_STEPS
    taken = bool(woken)
    if tick.waiter_id is None and d.cleanup is None:
        d.plan, intents, accepted = d.planner.on_event(d.config, d.plan, event, tick.step, origin, woken, d.at)
        _follow(d, intents, shared=taken, deep=event.depth)
        taken = taken or accepted
        if accepted and tick.source is None and tick.origin is None:
            waiters.forget_question(d)
    if taken or event.kind.is_a(INPUT_REQUIRED_EVENT) or d.outcome is not None:
        return
    kept = tick.source is None and tick.origin is None and waiters.keep(d, event, tick.waiter_id, tick.accepted)
    if tick.event_id is not None and not kept:
        # Nothing took it and there was no room: sending it again must be possible.
        d.seen = d.seen.delete(tick.event_id)
    idle = not d.active and not d.asleep
    d.publish(UnhandledReport(event.kind, tick.step, idle, kept))


def _step_result(d: Draft, tick: TickStepResult) -> None:
    """End an execution. Its collect calls are checked first: on a wrong answer the body runs again."""
    execution = workers.find(d, tick.step, tick.item, tick.seq)
    if execution is None:
        return
    if tick.writes >= 0:
        execution = executions.written(d, execution, tick.writes)
    if execution.waits_on:
        execution = workers.reclaim(d, execution)
    if tick.failure is not None:
        intents = _after_failure(d, execution, tick, tick.failure)
    else:
        found = _collected(d, execution, tick) if tick.collects else execution
        if found is None:
            return
        execution = found
        returned = tick.returned
        workers.finish(d, execution, returned[-1].kind if returned else None, returned=True)
        item, waiting = execution.item, d.waiting
        if d.last_traceback is not None or d.refused or item.id in waiting.answers or item.id in waiting.open:
            waiters.forget_settled(d, tick.step, item.id)
        intents = _after_return(d, item, tick)
    if intents:
        _follow(d, intents, deep=depth.below(d, execution.item))
    if d.outcome is None:
        if tick.asks:
            waiters.ask(d, *tick.returned)
        workers.fill(d, tick.step)


def _after_return(d: Draft, item: WorkItem, tick: TickStepResult) -> Sequence[Intent]:
    """Ask the planner what follows. After the clean-up of a cancelled run, nothing does."""
    if d.cleanup is not None:
        cleanup.finished(d, item, None)
        return ()
    d.plan, intents = d.planner.on_returned(d.config, d.plan, item, tick.returned, tick.fanned_out, d.at)
    return intents


def _collected(d: Draft, execution: Execution, tick: TickStepResult) -> Execution | None:
    """Settle the collect calls of a result. None: the body was given a wrong answer, and runs again."""
    deep = depth.collected(d, execution, tick.collects)
    wrong = executions.settle_collects(d, execution, tick.collects)
    if wrong is not None:
        workers.rerun(d, executions.truncated(execution, wrong))
    return deep if wrong is None else None


def _after_failure(d: Draft, execution: Execution, tick: TickStepResult, failure: Failure) -> Sequence[Intent]:
    """Schedule the next attempt if the verdict allows one, else ask the planner what follows.

    The reducer never asks a retry policy: the policy of a step was asked at the edge, and its verdict is in the tick.
    """
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
    timer = d.arm(Timer(d.at + tick.retry_delay_s, "retry", item.step))
    worker = d.worker(item.step)
    d.workers = d.workers.set(item.step, replace(worker, delayed=worker.delayed.set(timer, item)))
    return ()


def _failed_for_good(d: Draft, item: WorkItem, again: WorkItem, failure: Failure) -> Sequence[Intent]:
    """Ask the planner what follows. If the run fails with it, the work stays: a retry of the run begins with it."""
    if d.cleanup is not None:
        cleanup.finished(d, item, failure)
        return ()
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


def _refuse_event(d: Draft, tick: TickRefuseEvent) -> None:
    """Take back an event that a body cannot read: open its wait again, or drop the work that the event had made."""
    execution = workers.find(d, tick.step, tick.item, tick.seq)
    if execution is None:
        return
    if tick.key:
        waiters.refuse(d, execution, tick)
        return
    item = execution.item
    workers.finish(d, executions.written(d, execution, tick.writes))
    waiters.forget_settled(d, tick.step, item.id)
    d.refused = d.refused.set(tick.step, waiters.refusal(d, tick))
    d.plan, intents = d.planner.on_refused(d.config, d.plan, item, tick.parameters)
    _follow(d, intents, deep=depth.below(d, item))
    if d.outcome is None:
        workers.fill(d, tick.step)


def _publish(d: Draft, tick: TickPublishEvent) -> None:
    source, published = tick.source, d.published
    if source is not None and tick.writes >= 0:
        executions.write(d, source, tick.writes, tick.event)
    elif source is None or executions.claim(d, source, "publish") is not None:
        d.publish(tick.event)
    if tick.asks and d.published > published:  # a repeated write of a body that runs again asks nothing anew
        waiters.ask(d, tick.event)


def _end_wait(d: Draft, tick: TickEndWait) -> None:
    execution = workers.find(d, tick.step, tick.item, tick.seq)
    if execution is not None:
        waiters.abandon(d, execution, tick.key)


def _timer_fired(d: Draft, tick: TickTimerFired) -> None:
    timer = d.take_timer(tick.timer)
    if timer is None:
        d.dropped += 1
        return
    _fire(d, tick.timer, timer)


def _fire(d: Draft, number: int, timer: Timer) -> None:
    """Do what a timer was started for; it is disarmed already."""
    if timer.purpose == "retry":
        workers.attempt_due(d, timer.step, number)
    elif timer.purpose == "waiter":
        waiters.time_out(d, timer.step, timer.ref)
    elif timer.purpose == "sleep":
        waiters.end_sleep(d, timer)
    elif timer.purpose == "plan":
        _plan_due(d, timer.ref)
    else:
        cleanup.time_out(d)


def _skip(d: Draft, tick: TickSkip) -> None:
    """End delays now, in the order in which they would end. Each does what it would do when due."""
    for number in skippable(d.timers, d.at, tick.timer):
        timer = d.timers.get(number)  # None: one before has disarmed it
        if timer is not None and d.outcome is None:
            d.disarm(number)
            _fire(d, number, timer)


def _plan_due(d: Draft, ref: int) -> None:
    """Tell the planner that its timer is due. While the run is paused, the timer waits and counts as work."""
    if d.paused:
        d.due = d.due.push_back(ref)
        d.active += 1
        return
    d.plan, intents = d.planner.on_timer(d.config, d.plan, ref, d.at)
    _follow(d, intents)


def _continue_run(d: Draft, tick: TickContinueRun) -> None:
    lifecycle.go_on(d, tick)
    due, d.due = d.due, EMPTY_FIFO
    for ref in due:
        d.active -= 1
        _plan_due(d, ref)
        if d.outcome is not None:
            return


def _retry_run(d: Draft, tick: TickRetryRun) -> None:
    if tick.event is not None and d.outcome is not None and d.outcome.abandoned is not None:
        better = lifecycle.healed(d.outcome.abandoned, tick)
        if better is None:
            d.dropped += 1  # without its event the run would only fail again
            return
        d.outcome = replace(d.outcome, abandoned=better)
    if lifecycle.retry(d, tick):
        d.plan, intents = d.planner.on_retry(d.config, d.plan, d.at)
        _follow(d, intents)


def _park_run(d: Draft, tick: TickParkRun) -> None:
    lifecycle.park(d, tick.reason)


def _follow(d: Draft, intents: Sequence[Intent], shared: bool = False, deep: int = 0) -> None:
    """Carry out a planner's intents. Only here do intents become commands. `deep` is the least depth of new work."""
    if not shared and len(intents) > 1:
        first, second = intents[0], intents[1]
        # One event for several steps: the planner gives it to all of them in a row.
        shared = type(first) is RunStep and type(second) is RunStep and first.event is second.event
    for intent in intents:
        if type(intent) is Publish:
            d.publish(intent.event)
        elif type(intent) is RunStep:
            event = intent.event.for_many() if shared else intent.event
            event = event.at_depth(deep) if deep and deep > event.depth else event
            workers.enqueue(d, intent.step, event, intent.extra)
        elif type(intent) is Emit:
            event = intent.event.at_depth(deep) if deep else intent.event
            d.derived.append(TickAddEvent(at=d.at, event=event, step=intent.step, origin=intent.origin))
        else:
            _follow_rarely(d, intent)


def _follow_rarely(d: Draft, intent: StartTimer | Warn | Complete | Fail) -> None:
    match intent:
        case StartTimer():
            d.arm(Timer(intent.due, "plan", ref=intent.ref))
        case Warn():
            d.warn(intent.message)
        case Complete():
            lifecycle.complete(d, intent)
        case Fail():
            lifecycle.fail(d, intent.step, intent.failure, intent.attempts, intent.elapsed_s)
        case _:
            assert_never(intent)


_NO_STEPS: frozenset[str] = frozenset()

_REDUCERS: dict[type, Callable[[Draft, Any], None]] = {
    TickStartRun: lifecycle.start,
    TickResume: lifecycle.resume,
    TickAddEvent: _add_event,
    TickStepResult: _step_result,
    TickPublishEvent: _publish,
    TickAwaitEvent: waiters.begin_wait,
    TickSleep: waiters.begin_sleep,
    TickEndWait: _end_wait,
    TickEditStore: executions.edit_store,
    TickTimerFired: _timer_fired,
    TickTimeout: cleanup.timer_due,
    TickCancelRun: cleanup.cancel,
    TickPauseRun: lifecycle.pause,
    TickContinueRun: _continue_run,
    TickSkip: _skip,
    TickParkRun: _park_run,
    TickRetryRun: _retry_run,
    TickRecordResult: waiters.record_result,
    TickStartChild: waiters.begin_child,
    TickChildEnded: lifecycle.child_ended,
    TickLeaveStep: waiters.leave,
    TickRefuseEvent: _refuse_event,
}

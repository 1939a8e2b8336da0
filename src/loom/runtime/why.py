"""Why a run is where it is: from its row, its state and the time to one sentence and its causes.

`explained` is pure. `why` reads what it needs from a store, so it also answers for runs that are not in memory, in any
process. `attempts_of` reads from a state which attempts are under way, and which have failed and will be repeated.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

from msgspec import structs

from loom.api.attempts import Attempts, ExecutingAttempt, FailedAttempt, numbered
from loom.api.times import moment, span
from loom.api.why import Cause, CauseKind, Why
from loom.core.state import CHILD_RUN
from loom.effects.redaction import without_secrets
from loom.effects.stored_text import waiter_dict
from loom.flows.calls import ActionCall
from loom.runtime.masking import shown_waiter
from loom.runtime.stored_run import end_of_run, open_waiters, program_of_row
from loom.store.deaths import POISON
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.core.records import Failure, WaiterReport
    from loom.core.state import BrokerState, Execution, WorkItem
    from loom.flows.program import Program
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.render_flow import FlowRunStatus
    from loom.store.deaths import Deaths
    from loom.store.records import Holder, RunRow

_MOST = 20
"""How many causes of one kind are told."""
_ORDER: dict[str, int] = {kind: place for place, kind in enumerate(get_args(CauseKind))}
_UNTAKEN = ("not_started", "no_worker")


async def why(runtime: RunClient, row: RunRow) -> Why:
    """Tell what holds a stored run now."""
    now, store = runtime.now(), runtime.store
    if row.head.status != "running" or row.head.failed_with is not None:
        return explained(row, None, now)
    holder, deaths, short = await store.holder(row), None, runtime.short_of_memory()
    if holder is None and row.head.needs_worker and not row.head.parked:
        stored = await store.load(row.run_id)
        deaths = stored.deaths if stored is not None else None
    if not row.head.ticks:
        return _with_memory(explained(row, None, now, holder, deaths=deaths), short)
    try:
        state = await runtime.state_at(row.run_id)
        messages = len(await store.inbox(row.run_id, 0))
    except CorruptRecord as error:
        return explained(row, None, now, holder, damage=str(error))
    program, flow = await program_of_row(runtime, row), None
    if program is not None:
        from loom.runtime.render_flow import flow_status  # brings with it what only flows need

        flow = flow_status(program, state, now, await end_of_run(runtime, row.run_id))
    waiters = [shown_waiter(program, report) for report in open_waiters(state)]
    return _with_memory(
        explained(row, state, now, holder, waiters=waiters, flow=flow, messages=messages, deaths=deaths), short
    )


def _with_memory(told: Why, short: str | None) -> Why:
    """Add to what waits for a worker that the process which answers takes no run: it is short of memory."""
    if short is None:
        return told
    causes = [
        structs.replace(cause, sentence=f"{cause.sentence} {short}") if cause.kind in _UNTAKEN else cause
        for cause in told.causes
    ]
    return structs.replace(told, causes=causes, sentence=causes[0].sentence)


def explained(  # noqa: PLR0913 - one per thing that is known, most by name
    row: RunRow,
    state: BrokerState | None,
    now: float,
    holder: Holder | None = None,
    *,
    waiters: Sequence[WaiterReport] = (),
    flow: FlowRunStatus | None = None,
    messages: int = 0,
    damage: str | None = None,
    deaths: Deaths | None = None,
) -> Why:
    """Say what holds a run. `state` is None where it is not needed or cannot be read; `holder` moves the run.

    `waiters` and `flow` come from the state, without what is secure. `messages` counts inbox messages that no
    commit has taken yet, `deaths` processes that died with it.
    """
    is_suspect = deaths is not None and deaths.suspect
    causes = [*_of_row(row, now), *_of_deaths(deaths), *(() if is_suspect else _of_holder(row, holder, now))]
    if damage is not None:
        causes.append(Cause(kind="damaged", sentence=f"Its journal cannot be read: {damage}"))
    if state is not None and row.head.status == "running":
        at_work = holder if holder is not None and holder.alive and not row.head.parked else None
        causes += _of_cleanup(state, now)
        work = [*_of_work(state, at_work, now), *_of_timers(state, now), *(_of_flow(flow, now) if flow else ())]
        causes += [*work, *_of_waiters(row, waiters, now, "Action" if flow is not None else "Step")]
        if holder is None and not is_suspect:
            causes += _of_nobody(row, causes, messages, now)
    if row.head.stuck is not None:
        since = row.head.idle_since
        sentence = f"It has been stuck{_since(since, now)}: {row.head.stuck}"
        causes.append(Cause(kind="stuck", sentence=sentence, since=_moment(since)))
    if not causes:
        causes.append(Cause(kind="busy", sentence="It goes on: nothing holds it."))
    # A run that only waits for input needs no worker: its silent owner is not what holds it.
    last = {"lease"} if row.head.idle_since is not None and not messages else set()
    causes = sorted(
        _at_most(causes),
        key=lambda cause: (cause.kind in last, _ORDER[cause.kind], cause.since or cause.until or _NEVER),
    )
    return Why(
        run_id=row.run_id,
        workflow=row.workflow,
        status=row.head.status,
        kind=causes[0].kind,
        sentence=causes[0].sentence,
        at=moment(now),
        causes=causes,
    )


# -- causes ------------------------------------------------------------------------------------------------------------


def _of_row(row: RunRow, now: float) -> Iterator[Cause]:
    """Tell what the row alone says."""
    head = row.head
    if head.status != "running":
        error = without_secrets(head.failed_with) if head.failed_with is not None else None
        words = f"It {'was cancelled' if head.status == 'cancelled' else head.status}{_at(row.ended_at, now)}"
        sentence = f"{words}: {error}" if error else f"{words}."
        yield Cause(kind="ended", sentence=sentence, since=_moment(row.ended_at), error=error)
        return
    if head.failed_with is not None:
        yield Cause(kind="unanswered", sentence=head.failed_with, error=head.failed_with)
    if head.parked is not None:
        until = "it is resumed" if head.parked.startswith(POISON) else "other code comes or it is resumed"
        sentence = f"It is parked until {until}: {head.parked}"
        yield Cause(kind="parked", sentence=sentence, since=_moment(head.updated_at), error=head.parked)
    if head.paused:
        sentence = "It is paused: it keeps what comes, and starts nothing until it is resumed."
        yield Cause(kind="paused", sentence=sentence)


def _of_deaths(deaths: Deaths | None) -> Iterator[Cause]:
    """Tell of a run that is recovered only on probation, and waits for its turn."""
    if deaths is not None and deaths.suspect:
        sentence = (
            f"It waits for its turn to be recovered alone: it was at work in {deaths.marks} processes that died, and "
            f"{deaths.own} of these deaths count for it."
        )
        yield Cause(kind="no_worker", sentence=sentence, since=_moment(deaths.at))


def _of_holder(row: RunRow, holder: Holder | None, now: float) -> Iterator[Cause]:
    """Tell what is known of the run's owner, and of a run that no worker has begun."""
    head = row.head
    if head.status != "running" or head.failed_with is not None:
        return
    if holder is not None and not holder.alive:
        seen = f", which was last heard of{_at(holder.seen, now)}" if holder.seen is not None else ""
        over = "when the lease is over" if holder.until is not None else f"once one works for {row.workflow!r} again"
        sentence = f"It is held by process {holder.name!r}{seen}: a worker takes it over {over}."
        yield Cause(
            kind="lease", sentence=sentence, owner=holder.name, since=_moment(holder.seen), until=_moment(holder.until)
        )
    elif not head.ticks and not head.parked:
        owner = holder.name if holder is not None and holder.is_process else None
        by = f"Process {owner!r} is about to begin it" if owner is not None else "No worker has begun it yet"
        asks = "" if owner is not None else f" Is a process at work for {row.workflow!r}, with room for it?"
        sentence = f"{by}: it was started{_at(row.created_at, now)}.{asks}"
        yield Cause(kind="not_started", sentence=sentence, since=_moment(row.created_at), owner=owner)


def _of_work(state: BrokerState, holder: Holder | None, now: float) -> Iterator[Cause]:
    """Steps that execute, that wait for a free worker, and whose next attempt is delayed. `holder` is at work now."""
    for step, worker in sorted(state.workers.items()):
        for _, execution in sorted(worker.in_progress.items()):
            yield _busy(step, execution, holder, now)
        if worker.queue:
            count, limit = len(worker.queue), worker.num_workers
            reason = f"all {limit} of its workers are busy" if limit and worker.in_progress else "it has not begun"
            yield Cause(kind="queued", sentence=f"Step {step!r} has {count} more to do, and {reason}.", step=step)
        for number, item in sorted(worker.delayed.items()):
            timer = state.timers.get(number)
            yield _backoff(step, item, timer.due if timer is not None else None, now)


def _of_cleanup(state: BrokerState, now: float) -> Iterator[Cause]:
    """Tell of a cancelled run that ends when its clean-up step is done. What that step does is told beside it."""
    if state.cleanup is None:
        return
    step = state.cleanup.step
    sentence = f"It is being cancelled: clean-up step {step!r} is running, at most until{_clock(state.deadline, now)}."
    yield Cause(kind="cancelling", sentence=sentence, step=step, until=_moment(state.deadline))


def _busy(step: str, execution: Execution, holder: Holder | None, now: float) -> Cause:
    item, body = execution.item, execution.item.event.body
    since = item.attempt_since
    attempt = body.attempt + 1 if isinstance(body, ActionCall) else item.attempts + 1
    error = _words(item.last_failure)
    what = "Action" if isinstance(body, ActionCall) else "Step"
    number = f", attempt {numbered(attempt, item.max_attempts)}" if attempt > 1 else ""
    where = f" in process {holder.name!r}" if holder is not None and holder.is_process else ""
    if holder is not None:
        does = f"executes{_since(since, now)}{number}{where}"
    else:
        does = f"was begun{_at(since, now)}{number} and has not ended"
    return Cause(
        kind="busy",
        sentence=f"{what} {step!r} {does}.",
        step=step,
        since=_moment(since),
        attempt=attempt,
        max_attempts=item.max_attempts or None,
        error=error,
        owner=holder.name if holder is not None else None,
    )


def _backoff(step: str, item: WorkItem, due: float | None, now: float) -> Cause:
    error, following = _words(item.last_failure), numbered(item.attempts + 1, item.max_attempts)
    return Cause(
        kind="backoff",
        sentence=f"Step {step!r} failed {_times(item.attempts)}, and attempt {following} is due{_at(due, now)}"
        f"{f': {error}' if error else '.'}",
        step=step,
        since=_moment(item.last_failed_at),
        until=_moment(due),
        attempt=item.attempts + 1,
        max_attempts=item.max_attempts or None,
        error=error,
    )


def _of_timers(state: BrokerState, now: float) -> Iterator[Cause]:
    """Steps that sleep, and the timeout of the run. Delays of flows are told by `_of_flow`, with their actions."""
    for _, timer in sorted(state.timers.items()):
        if timer.purpose == "timeout" and state.cleanup is None:
            sentence = f"The timeout of the run ends it{_at(timer.due, now)}."
            yield Cause(kind="timeout", sentence=sentence, until=_moment(timer.due))
        elif timer.purpose == "sleep":
            sentence = f"Step {timer.step!r} sleeps until{_clock(timer.due, now)}."
            yield Cause(kind="timer", sentence=sentence, step=timer.step, until=_moment(timer.due))


def _of_flow(flow: FlowRunStatus, now: float) -> Iterator[Cause]:
    """Actions of a flow that wait for a time or for their next attempt, and loops between two iterations."""
    for action in flow.under_way:
        since, until = _moment(action.since), _moment(action.due)
        if action.status == "waiting":
            sentence = f"Action {action.path!r} waits until{_clock(action.due, now)}."
            yield Cause(kind="timer", sentence=sentence, step=action.path, since=since, until=until)
        elif action.status == "retrying":
            failed, following = _times(action.attempt - 1), numbered(action.attempt, action.max_attempts)
            error = _line(action.code or "", action.error) if action.error else None
            sentence = f"Action {action.path!r} failed {failed}, and attempt {following} is due"
            sentence += f"{_at(action.due, now)}{f': {error}' if error else '.'}"
            yield Cause(
                kind="backoff", sentence=sentence, step=action.path, since=since, until=until,
                attempt=action.attempt, max_attempts=action.max_attempts, error=error,
            )  # fmt: skip
    for loop in flow.loops:
        if loop.next_iteration_at is not None:
            due = loop.next_iteration_at
            sentence = f"Loop {loop.path!r} begins its next iteration{_at(due, now)}."
            yield Cause(kind="timer", sentence=sentence, step=loop.path, until=_moment(due))


def _of_waiters(row: RunRow, waiters: Sequence[WaiterReport], now: float, what: str) -> Iterator[Cause]:
    for report in waiters:
        since = report.since if report.since is not None else row.head.idle_since
        if report.event_type == CHILD_RUN:
            sentence = f"{what} {report.step!r} waits for run {report.waiter_id!r} to end{_since(since, now)}."
            yield Cause(
                kind="child", sentence=sentence, step=report.step, since=_moment(since), child_id=report.waiter_id
            )
            continue
        name, asked = report.event_type.rpartition(".")[2], waiter_dict(report)["requirements"]
        until = f", at most until{_clock(report.deadline, now)}" if report.deadline is not None else ""
        refusal = report.refused
        refused = f"; the last {refusal.event_type} was refused: {refusal.reason}" if refusal is not None else ""
        yield Cause(
            kind="waiter",
            sentence=f"{what} {report.step!r} waits for event {name!r}{_since(since, now)}{until}{refused}.",
            step=report.step,
            since=_moment(since),
            until=_moment(report.deadline),
            event_type=report.event_type,
            waiter_id=report.waiter_id,
            requirements=asked or None,
            refused=refusal.reason if refusal is not None else None,
        )


def _of_nobody(row: RunRow, causes: Sequence[Cause], messages: int, now: float) -> Iterator[Cause]:
    """Nobody has the run in memory, though it could go on: work, something that came, or a timer whose time is over."""
    late = [cause for cause in causes if cause.kind in ("timer", "backoff") and cause.until is not None]
    due = min((cause.until.timestamp() for cause in late if cause.until is not None), default=None)
    is_held = row.head.paused or row.head.parked is not None  # only what comes for it, such as a cancel, moves it
    if row.head.needs_worker and not is_held:
        reason = "it has work to do"
    elif messages:
        reason = f"{messages} {'message waits' if messages == 1 else 'messages wait'} for it"
    elif due is not None and due <= now and not is_held:
        reason = f"its timer was due{_at(due, now)}"
    else:
        return
    since = row.head.updated_at
    yield Cause(
        kind="no_worker",
        sentence=f"No worker has it in memory, though {reason}: is a process at work for {row.workflow!r}?",
        since=_moment(since),
    )


# -- words -------------------------------------------------------------------------------------------------------------

_NEVER = datetime.max.replace(tzinfo=UTC)


def _at_most(causes: Sequence[Cause]) -> list[Cause]:
    counts: dict[str, int] = {}
    kept: list[Cause] = []
    for cause in causes:
        counts[cause.kind] = counts.get(cause.kind, 0) + 1
        if counts[cause.kind] <= _MOST:
            kept.append(cause)
    return kept


def _moment(at: float | None) -> datetime | None:
    return None if at is None else moment(at)


def _words(failure: Failure | None) -> str | None:
    """A failure in one line."""
    return None if failure is None else _line(failure.type.removeprefix("builtins."), failure.message)


def _line(kind: str, message: str) -> str:
    """What failed, in one line without credentials: the kind of the error, unless the message begins with it."""
    text = message if not kind or message.startswith(kind) else f"{kind}: {message}"
    return without_secrets(" ".join(text.split()))


def _clock(at: float | None, now: float) -> str:
    """A moment, with how far it is from now."""
    if at is None:
        return ""
    shown = moment(at).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f" {shown} ({f'in {span(at - now)}' if at > now else f'{span(now - at)} ago'})"


def _at(at: float | None, now: float) -> str:
    return f" at{_clock(at, now)}" if at is not None else ""


def _since(since: float | None, now: float) -> str:
    if since is None:
        return ""
    shown = moment(since).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f" since {shown} ({span(max(0.0, now - since))})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# -- attempts ---------------------------------------------------------------------------------------------------------


def attempts_of(state: BrokerState, program: Program | None = None) -> Attempts:
    """Tell what a run is at work on. One that has ended is at work on nothing, whatever its state still holds."""
    if state.outcome is not None and state.outcome.status != "parked":
        return Attempts()
    if program is not None:
        return _attempts_of_flow(state, program)
    executing = [
        ExecutingAttempt(
            step=execution.item.step,
            attempt=execution.item.attempts + 1,
            max_attempts=execution.item.max_attempts or None,
            since=_moment(execution.item.attempt_since),
        )
        for _, worker in sorted(state.workers.items())
        for _, execution in sorted(worker.in_progress.items())
        if state.outcome is None  # what a parked run had begun does not execute
    ]
    return Attempts(executing=executing, failed=[_failed_attempt(state, item, due) for item, due in _tried(state)])


def _tried(state: BrokerState) -> Iterator[tuple[WorkItem, float | None]]:
    """The work that has failed before and is not done, with the time of its next attempt if it has to wait for it."""
    for _, worker in sorted(state.workers.items()):
        for timer, item in sorted(worker.delayed.items()):
            yield item, state.timers[timer].due if timer in state.timers else None
        under_way = [*worker.in_progress.items(), *worker.suspended.items()]
        for item in (*worker.queue, *(execution.item for _, execution in sorted(under_way, key=lambda pair: pair[0]))):
            if item.attempts and item.last_failure is not None:
                yield item, None


def _failed_attempt(state: BrokerState, item: WorkItem, due: float | None) -> FailedAttempt:
    failure, newest = item.last_failure, state.last_traceback
    return FailedAttempt(
        step=item.step,
        attempt=item.attempts,
        max_attempts=item.max_attempts or None,
        failed_at=_moment(item.last_failed_at),
        type=failure.type if failure is not None else "",
        message=without_secrets(failure.message) if failure is not None else "",
        next_at=_moment(due),
        traceback=newest.text if newest is not None and newest.item == item.id else None,
    )


def _attempts_of_flow(state: BrokerState, program: Program) -> Attempts:
    """Read the attempts of a flow from its plan: its planner counts them itself."""
    from loom.flows.progress import action_progress  # only flows need it, and it is much
    from loom.flows.state import FlowPlan

    plan = state.plan
    if not isinstance(plan, FlowPlan):
        return Attempts()
    newest = plan.last_traceback
    executing, failed = [], []
    for action in action_progress(program, plan):
        if action.status == "running" and state.outcome is None:
            executing.append(
                ExecutingAttempt(
                    step=action.name,
                    attempt=action.attempt,
                    max_attempts=action.max_attempts,
                    since=_moment(action.attempt_since),
                )
            )
        if action.attempt > 1:
            failed.append(
                FailedAttempt(
                    step=action.name,
                    attempt=action.attempt - 1,
                    max_attempts=action.max_attempts,
                    failed_at=_moment(action.failed_at),
                    type=action.code or "",
                    message=without_secrets(action.error or ""),
                    next_at=_moment(action.due) if action.status == "retrying" else None,
                    traceback=newest.text if newest is not None and newest.step == action.name else None,
                )
            )
    return Attempts(executing=executing, failed=failed)

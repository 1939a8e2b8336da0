"""Texts of transcripts: ticks, commands and states, one short line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.body_effects import ONCE
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    CommandStopWork,
    CommandWarn,
)
from loom.core.records import (
    Cancellation,
    CancelledReport,
    EventRecord,
    FailedReport,
    IdleReport,
    RefusedReport,
    Release,
    StepFailure,
    StepReport,
    SupersededReport,
    TimedOutReport,
    UnhandledReport,
)
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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from loom.core.commands import WorkflowCommand
    from loom.core.records import EventKind, Failure
    from loom.core.state import BrokerState, InternalStepWorkerState, WorkItem
    from loom.core.ticks import Source, WorkflowTick


def seconds(value: float) -> str:
    """Write a time or a duration."""
    return f"{value:g}s"


def label(kind: EventKind) -> str:
    """Return the short name of an event's type."""
    return kind.label or kind.name.rpartition(".")[2]


def event_text(event: EventRecord | None) -> str:
    """Write an event with the fields of its body."""
    if event is None:
        return "nothing"
    body, name = event.body, label(event.kind)
    if isinstance(body, StepFailure):
        return f"{name}{{{body.step}: {body.failure.type} attempts={body.attempts}}}"
    if isinstance(body, Cancellation):
        return f"{name}{{{' '.join(body.steps)}}}"
    if isinstance(body, Release):
        return f"{name}{{{' '.join(map(event_text, body.members))}}}"
    fields = " ".join(f"{key}={value}" for key, value in body.items()) if isinstance(body, dict) else ""
    return f"{name}{{{fields}}}" if fields else name


def _words(*parts: str | None) -> str:
    return " ".join(part for part in parts if part)


def _by(source: Source | None) -> str | None:
    return f"by {source.step}#{source.item}/{source.ordinal}" if source is not None else None


def _option(name: str, value: Any) -> str | None:
    return f"{name}={value}" if value is not None else None


def _result(tick: TickStepResult) -> str:
    of = f"{tick.step}#{tick.item}"
    if tick.failure is not None:
        delay = tick.retry_delay_s
        return _words(of, "failed", tick.failure.type, f"retry={seconds(delay)}" if delay is not None else None)
    returned = " ".join(map(event_text, tick.returned))
    return f"{of} [{returned}]" if tick.fanned_out else f"{of} {returned or 'nothing'}"


def _await(tick: TickAwaitEvent) -> str:
    timeout = seconds(tick.timeout_s) if tick.timeout_s is not None else None
    wanted = "".join(f" {name}={value}" for name, value in tick.requirements)
    return _words(
        tick.event_type.rpartition(".")[2] + wanted,
        f"waiter={tick.waiter_id}",
        _option("timeout", timeout),
        None if tick.suspends else "in a child",
        _by(tick.source),
    )


def _ending(event: EventRecord | None, failure: Failure | None) -> str | None:
    return event_text(event) if event is not None else failure.type if failure is not None else None


def _edit(tick: TickEditStore) -> str:
    changed = [f"{key}={value}" for key, value in tick.changed.items()]
    return _words(*changed, *(f"-{key}" for key in tick.removed), _by(tick.source))


_TICKS: dict[type, Callable[[Any], str]] = {
    TickStartRun: lambda t: _words(t.run_id, event_text(t.event)),
    TickResume: lambda t: _words(
        f"away={seconds(t.away_s)}",
        _option("depth", t.config.max_depth if t.config is not None else None),
    ),
    TickAddEvent: lambda t: _words(
        event_text(t.event),
        _option("to", t.step),
        _option("waiter", t.waiter_id),
        _option("id", t.event_id),
        _by(t.source),
    ),
    TickStepResult: _result,
    TickPublishEvent: lambda t: _words(event_text(t.event), _by(t.source)),
    TickAwaitEvent: _await,
    TickSleep: lambda t: _words(seconds(t.delay_s), None if t.suspends else "in a child", _by(t.source)),
    TickEndWait: lambda t: f"{t.step}#{t.item}",
    TickLeaveStep: lambda t: f"{t.step}#{t.item} waits={','.join(t.pending)}",
    TickRefuseEvent: lambda t: _words(f"{t.step}#{t.item} {t.event_type}", t.key, t.reason),
    TickEditStore: _edit,
    TickTimerFired: lambda t: f"timer={t.timer}",
    TickTimeout: lambda t: f"timer={t.timer}",
    TickCancelRun: lambda t: _words(t.reason, "force" if t.force else None),
    TickPauseRun: lambda _t: "",
    TickContinueRun: lambda t: _words(_option("depth", t.max_depth)),
    TickSkip: lambda t: f"timer={t.timer}" if t.timer is not None else "",
    TickParkRun: lambda t: t.reason,
    TickRetryRun: lambda t: _words(f"{t.step}#{t.item} {event_text(t.event)}", t.key) if t.event is not None else "",
    TickRecordResult: lambda t: _words(f"{t.name}={t.value}", _by(t.source)),
    TickStartChild: lambda t: _words(t.workflow, None if t.suspends else "in a child", _by(t.source)),
    TickChildEnded: lambda t: _words(f"{t.child} {t.status}", _ending(t.event, t.failure)),
}


def tick_text(tick: WorkflowTick) -> str:
    """Write a tick: its name and its contents."""
    return _words(type(tick).__name__, _TICKS[type(tick)](tick))


def _step_report(report: StepReport) -> str:
    worker = f" on {report.worker_id}" if report.worker_id is not None else ""
    return f"{report.step} {report.phase.replace('_', ' ')}{worker}"


def _idle(report: IdleReport) -> str:
    waiters = [_words(f"{w.step}:{w.event_type.rpartition('.')[2]}", w.waiter_id) for w in report.waiters]
    return f"idle since {seconds(report.idle_since)} ({', '.join(waiters)})" if waiters else "idle"


_PUBLISHED: dict[type, Callable[[Any], str]] = {
    EventRecord: event_text,
    StepReport: _step_report,
    IdleReport: _idle,
    UnhandledReport: lambda r: _words(label(r.event), "unhandled", "kept" if r.kept else None),
    RefusedReport: lambda r: f"{r.event_type} refused for {r.step}: {r.reason}",
    TimedOutReport: lambda r: f"timed out after {seconds(r.timeout_s)}, active: {', '.join(r.active_steps) or 'none'}",
    SupersededReport: lambda r: _words(
        f"{r.step} supersedes", ", ".join(f"{first}-{last}" for first, last in r.cursors)
    ),
    CancelledReport: lambda _r: "cancelled",
    FailedReport: lambda r: f"{r.step} failed for good: {r.failure.type}",
}


def published_text(event: Any) -> str:
    """Write an event or a report on the stream."""
    return _PUBLISHED[type(event)](event)


def _run_worker(command: CommandRunWorker) -> str:
    item = command.item
    done = len(item.effects) + (item.writes.count if item.writes is not None else 0)
    return _words(
        f"{command.step}#{item.id} attempt={item.attempts + 1} seq={command.seq}",
        f"effects-done={done}" if done else None,
        f"records={','.join(sorted(command.records))}" if command.records else None,
        _input(item),
    )


def _input(item: WorkItem) -> str | None:
    """Write an input that the engine itself made. A plain event was shown with its tick."""
    if isinstance(item.event.body, Release | StepFailure | Cancellation):
        return f"on {event_text(item.event)}"
    bound = getattr(item.extra, "bound", ())
    return "on " + " ".join(f"{name}={event_text(event)}" for name, event in bound) if bound else None


def _resume_worker(command: CommandResumeWorker) -> str:
    answer, child = "timed out" if command.timed_out else event_text(command.event), command.child
    if child is not None:
        answer = _words(f"{child.run_id} {child.status}", _ending(command.event, child.failure))
    elif command.key.startswith(ONCE):
        answer = f"{command.key}={command.value}"
    return f"{command.step} seq={command.seq} with {answer}"


_COMMANDS: dict[type, Callable[[Any], str]] = {
    CommandRunWorker: _run_worker,
    CommandResumeWorker: _resume_worker,
    CommandStartTimer: lambda c: f"{c.purpose} timer={c.seq} due={seconds(c.due)}",
    CommandCancelTimer: lambda c: f"timer={c.seq}",
    CommandStopWork: lambda _: "",
    CommandStartChild: lambda c: _words(c.run_id, c.workflow, *(f"{key}={value}" for key, value in c.start.items())),
    CommandCancelChild: lambda c: c.run_id,
    CommandWarn: lambda c: c.notice.message,
    CommandCompleteRun: lambda c: event_text(c.result),
    CommandFailWorkflow: lambda c: _words(c.step, c.failure.type, c.failure.message),
    CommandHalt: lambda c: _words(c.reason, c.message),
}


def command_lines(commands: Iterable[WorkflowCommand]) -> list[str]:
    """Write commands in their order; neighbors that publish share a line."""
    lines: list[str] = []
    cursor = -1
    for command in commands:
        if isinstance(command, CommandPublishEvent):
            text = published_text(command.event)
            if cursor >= 0:
                lines[-1] += f"; {text}"
            else:
                lines.append(f"CommandPublishEvent {command.cursor}: {text}")
            cursor = command.cursor
        else:
            cursor = -1
            lines.append(_words(type(command).__name__, _COMMANDS[type(command)](command)))
    return lines


def state_lines(state: BrokerState) -> Iterator[str]:
    """Write a state at a glance."""
    yield _words(
        f"{state.run_id} {status(state)} at={seconds(state.at)}",
        f"deadline={seconds(state.deadline)}" if state.deadline is not None else None,
        f"dropped={state.dropped}" if state.dropped else None,
        f"kept={state.waiting.kept_count}" if state.waiting.kept_count else None,
    )
    for step in sorted(state.workers):
        parts = list(_worker_parts(state.workers[step]))
        if parts:
            yield f"  {step}: {', '.join(parts)}"
    for number, timer in sorted(state.timers.items()):
        yield f"  timer {number}: {timer.purpose} due={seconds(timer.due)}"
    for number, child in sorted(state.children.items()):
        yield f"  child {number}: {child.run_id} {child.workflow} of {child.step}#{child.item}"
    if state.store:
        yield f"  store: {' '.join(f'{key}={value}' for key, value in sorted(state.store.items()))}"


def status(state: BrokerState) -> str:
    """Tell in a word what a run is doing."""
    if state.outcome is not None:
        return state.outcome.status
    if not state.is_running:
        return "not started"
    if state.paused:
        return "paused"
    return "idle" if state.is_idle() else "asleep" if state.is_asleep() else "running"


def _worker_parts(worker: InternalStepWorkerState) -> Iterator[str]:
    groups = {
        "executing": sorted(worker.in_progress),
        "suspended": sorted(worker.suspended),
        "ready": list(worker.ready),
        "queued": [item.id for item in worker.queue],
        "delayed": sorted(item.id for item in worker.delayed.values()),
    }
    for name, items in groups.items():
        if items:
            yield f"{name} {' '.join(f'#{item}' for item in items)}"
    for buffer, held in sorted(worker.collected_events.items()):
        if held.events:
            yield f"collected {buffer}=[{' '.join(map(event_text, held.events))}]"
    for _, waiter in sorted(worker.collected_waiters.items()):
        yield f"#{waiter.item} waits for {waiter.event_type.rpartition('.')[2]} as {waiter.waiter_id}"

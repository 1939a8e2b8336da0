"""Records, ticks and what stands on a stream, as words for people. May import loom.core, loom.flows and
loom.runtime.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom.cli.flow_records import flow_record_words
from loom.cli.shown import span
from loom.core.records import EventRecord
from loom.core.reports import FailedReport, IdleReport, StepReport, TimedOutReport, UnhandledReport
from loom.core.ticks import (
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEditStore,
    TickEndWait,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickResume,
    TickRetryRun,
    TickSleep,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.flows.calls import ActionOutcome
from loom.runtime.plain import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.records import Failure
    from loom.core.reports import Published
    from loom.core.ticks import Source, WorkflowTick

_MAX_FIELDS = 200


def event_words(record: EventRecord | None) -> str:
    """An event in a few words: `Approval(amount=5)`."""
    if record is None:
        return "nothing"
    of_flow = flow_record_words(record.body)
    if of_flow is not None:
        return of_flow
    fields = fields_of(record)
    if isinstance(fields, dict):
        inside = ", ".join(f"{name}={json.dumps(item, ensure_ascii=False)}" for name, item in fields.items())
    else:
        inside = str(fields)
    inside = inside if len(inside) <= _MAX_FIELDS else f"{inside[: _MAX_FIELDS - 1]}…"
    return f"{record.kind.label or record.kind.name}({inside})"


def failure_words(failure: Failure | None) -> str:
    """What a failure was, in one line."""
    if failure is None:
        return "unknown"
    message = " ".join(failure.message.split())
    name = failure.type.removeprefix("builtins.")
    return f"{name}: {message}" if message else name


def tick_words(tick: WorkflowTick) -> str:
    """What happened, in one line."""
    return _TICKS[type(tick)](tick)


def published_words(published: Published) -> str:
    """What stands on the stream, in one line."""
    match published:
        case EventRecord():
            return event_words(published)
        case StepReport():
            output = f", returned {published.output.label}" if published.output is not None else ""
            return f"step {published.step} {published.phase.replace('_', ' ')} ({published.input.label}{output})"
        case IdleReport():
            waited = ", ".join(dict.fromkeys(waiter.event_type for waiter in published.waiters))
            return f"idle, waiting for {waited or 'anything'}"
        case UnhandledReport():
            return f"nobody took {published.event.label}" + (", it is kept" if published.kept else "")
        case TimedOutReport():
            return f"timed out after {span(published.timeout_s)}, in {', '.join(published.active_steps) or 'no step'}"
        case FailedReport():
            return f"failed in {published.step}: {failure_words(published.failure)}"
        case _:
            return "cancelled"


def published_type(published: Published) -> str:
    """The type of what stands on the stream."""
    return published.kind.name if isinstance(published, EventRecord) else type(published).__name__


def _by(source: Source | None) -> str:
    return f"{source.step}#{source.item}" if source is not None else "outside"


def _added(tick: TickAddEvent) -> str:
    to = f" for {tick.step}" if tick.step else ""
    to += f" for waiter {tick.waiter_id}" if tick.waiter_id else ""
    return f"event {event_words(tick.event)}{to} from {_by(tick.source)}"


def _result(tick: TickStepResult) -> str:
    who = f"{tick.step}#{tick.item}"
    if tick.failure is None:
        if len(tick.returned) == 1 and isinstance(tick.returned[0].body, ActionOutcome):
            return f"{who} {event_words(tick.returned[0])}"
        returned = ", ".join(event_words(event) for event in tick.returned) or "nothing"
        return f"{who} returned {f'[{returned}]' if tick.fanned_out else returned}"
    after = f", again in {span(tick.retry_delay_s)}" if tick.retry_delay_s is not None else ""
    return f"{who} failed: {failure_words(tick.failure)}{after}"


def _awaits(tick: TickAwaitEvent) -> str:
    asked = f", asking {event_words(tick.waiter_event)}" if tick.waiter_event is not None else ""
    until = f", for {span(tick.timeout_s)} at most" if tick.timeout_s is not None else ""
    return f"{_by(tick.source)} waits for {tick.event_type}{asked}{until}"


def _edited(tick: TickEditStore) -> str:
    parts = [*tick.changed, *(f"-{key}" for key in tick.removed)]
    return f"store edited by {_by(tick.source)}: {', '.join(parts) or 'nothing'}"


def _ended(tick: TickChildEnded) -> str:
    with_ = f" with {event_words(tick.event)}" if tick.event is not None else ""
    with_ += f": {failure_words(tick.failure)}" if tick.failure is not None else ""
    return f"child run {tick.child} {tick.status.replace('_', ' ')}{with_}"


def _resumed(tick: TickResume) -> str:
    changed = ", with other code" if tick.config is not None else ""
    return f"taken up after {span(tick.away_s)} without a worker{changed}" if tick.away_s else f"taken up{changed}"


_TICKS: dict[type[Any], Callable[[Any], str]] = {
    TickStartRun: lambda tick: f"started with {event_words(tick.event)}",
    TickResume: _resumed,
    TickAddEvent: _added,
    TickStepResult: _result,
    TickPublishEvent: lambda tick: f"{_by(tick.source)} published {event_words(tick.event)}",
    TickAwaitEvent: _awaits,
    TickSleep: lambda tick: f"{_by(tick.source)} sleeps for {span(tick.delay_s)}",
    TickEndWait: lambda tick: f"{tick.step}#{tick.item} stopped waiting ({tick.key})",
    TickEditStore: _edited,
    TickTimerFired: lambda tick: f"timer {tick.timer} fired",
    TickTimeout: lambda _tick: "the run's time is over",
    TickCancelRun: lambda tick: "cancel was asked for" + (f": {tick.reason}" if tick.reason else ""),
    TickPauseRun: lambda _tick: "pause was asked for",
    TickContinueRun: lambda _tick: "resume was asked for",
    TickParkRun: lambda tick: f"parked: {tick.reason}",
    TickRetryRun: lambda _tick: "retry was asked for",
    TickRecordResult: lambda tick: f"{_by(tick.source)} recorded the result of {tick.name}",
    TickStartChild: lambda tick: f"{_by(tick.source)} started a child run of {tick.workflow}",
    TickChildEnded: _ended,
}

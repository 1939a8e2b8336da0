"""Between the author's events and the engine's records.

An `EventCodec` is what bodies of a run use to write and read events, values, store edits and failures. There are three:
`LIVE_CODEC` keeps live objects, for runs that end with their process; `stored_codec` writes text, for runs in a store;
`flow_codec` is the one of flows. What all of them share is here: errors, events that the engine itself makes,
exceptions as data, and what readers of a stream see.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from loom.core.records import (
    Cancellation,
    CancelledReport,
    EventRecord,
    FailedReport,
    Failure,
    IdleReport,
    RefusedReport,
    Release,
    StepFailure,
    StepReport,
    SupersededReport,
    TimedOutReport,
    UnhandledReport,
)
from loom.effects.exceptions import asks_to_exit
from loom.effects.stored_text import waiter_dict
from loom.steps import events
from loom.steps.errors import WorkflowRuntimeError, described, message_of
from loom.steps.registry import UnknownTypeError, framework_name, kind_of, wire_name
from loom.steps.serializers import UnreconstructedException, exception_name, load_exception
from loom.steps.state_store import copy_state_for_edit

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.records import Published
    from loom.steps.events import Event
    from loom.steps.state_store import StoreEdit


class EventCodec(Protocol):
    """The way from what authors write to what the engine keeps, and back."""

    def record(self, event: Event) -> EventRecord:
        """The engine's record of an event; `ValueError` if it cannot be kept."""
        ...

    def event(self, record: EventRecord) -> Event:
        """Read the event of a record.

        Raises `MissingTypeError` if this process lacks its class, `UnfitEventError` if the event does not fit it.
        """
        ...

    def field(self, record: EventRecord, name: str) -> Any:
        """A field of an event, to be compared with a requirement; None if it has none."""
        ...

    def requirement(self, event_type: type[Event], name: str, value: Any) -> Any:
        """The value that the field of an awaited event must be equal to."""
        ...

    def value(self, value: Any) -> Any:
        """A value that the run keeps, such as a recorded result; `ValueError` if it cannot be kept."""
        ...

    def read_value(self, kept: Any) -> Any:
        """The value that was kept."""
        ...

    def store_edit(self, edit: StoreEdit) -> tuple[dict[str, Any], tuple[str, ...], str]:
        """An edit of the store: the changed values, the removed keys, and the new type's name if it has changed."""
        ...

    def failure(self, error: BaseException) -> Failure:
        """A failure as data."""
        ...

    def text(self, text: str) -> str:
        """A name or message of the author's, as the engine keeps it."""
        ...


class MissingTypeError(UnknownTypeError):
    """A class of stored data that this process lacks: the run has to wait for other code."""


class UnfitEventError(ValueError):
    """An event does not fit its class as this process has it."""

    def __init__(self, record: EventRecord, reason: str, parameters: tuple[str, ...] = ()) -> None:
        self.event_type = record.kind.label or record.kind.name
        super().__init__(f"{self.event_type} does not fit its class: {reason}")
        self.record = record
        self.reason = reason
        """Which fields do not fit and why, without their values."""
        self.parameters = parameters
        """The parameters of a step that takes several events, whose events do not fit."""


# Stored failures name these classes so, whatever their module is called.
framework_name(MissingTypeError, "loom.effects.convert.MissingTypeError")
framework_name(UnfitEventError, "loom.effects.convert.UnfitEventError")


# --- failures ---------------------------------------------------------------------------------------------------------


def failure_of(error: BaseException) -> Failure:
    """A failure as data, with the live exception for callers in the same process.

    `isinstance` asks an exception for its class: one that raises then is not handed on.
    """
    isinstance(error, UnreconstructedException)
    return Failure(exception_name(type(error)), message_of(error), error)


RAISED = "It was raised here, most recent call first:"
"""The first line of the note with which an exception comes from a store."""


def exception_of(failure: Failure) -> Exception:
    """Give the exception of a failure, rebuilt if it is not in this process."""
    if isinstance(failure.body, BaseException):
        error: BaseException = failure.body
    else:
        error = load_exception({"exception_type": failure.type, "exception_message": failure.message})
        if failure.traceback:
            # Its frames are gone with the process that raised it: the text takes their place.
            error = _with_note(error, f"{RAISED}\n{failure.traceback}", failure)
    # A body that was cancelled, or has asked the process to exit, failed like any other; but that is no Exception.
    return (
        error
        if isinstance(error, Exception)
        else UnreconstructedException(message_of(error), original_type=failure.type)
    )


def _with_note(error: BaseException, note: str, failure: Failure) -> BaseException:
    """Add a note to an exception that was rebuilt; to another one, if its class has code that fails."""
    try:
        error.add_note(note)
    except BaseException:  # noqa: BLE001 - an author's class may raise anything, and the failure must be told
        error = UnreconstructedException(failure.message, original_type=failure.type)
        error.add_note(note)
    return error


# --- live objects -----------------------------------------------------------------------------------------------------


def record_of(event: Event) -> EventRecord:
    """The engine's record of an event."""
    return EventRecord(kind_of(type(event)), event)


def event_of(record: EventRecord) -> Event:
    """Read the event of a record: the object itself, a copy if others get it too, or one that the engine describes."""
    body = record.body
    kind = type(body)
    if kind is StepFailure or kind is Release or kind is Cancellation:
        return engine_event(body, event_of)
    event: Event = body
    return copy_state_for_edit(event) if record.shared and record.is_shared else event


def read_field(record: EventRecord, name: str) -> Any:
    """A field of an event, None if it has none. It may be a property, with code of the author's."""
    try:
        return getattr(event_of(record), name, None)
    except BaseException as error:
        if not asks_to_exit(error):
            raise
        raise WorkflowRuntimeError(f"{record.kind.label}.{name} cannot be read: {described(error)}") from error


class LiveEventCodec:
    """The codec of runs that live and end with their process: everything stays the object that it is."""

    record = staticmethod(record_of)
    event = staticmethod(event_of)
    field = staticmethod(read_field)
    failure = staticmethod(failure_of)

    def requirement(self, event_type: type[Event], name: str, value: Any) -> Any:
        """See `EventCodec`."""
        del event_type, name
        return value

    def value(self, value: Any) -> Any:
        """See `EventCodec`."""
        return value

    def read_value(self, kept: Any) -> Any:
        """See `EventCodec`."""
        return kept

    def store_edit(self, edit: StoreEdit) -> tuple[dict[str, Any], tuple[str, ...], str]:
        """See `EventCodec`."""
        return edit.changed, edit.removed, wire_name(edit.state_type) if edit.state_type is not None else ""

    def text(self, text: str) -> str:
        """See `EventCodec`."""
        return text


LIVE_CODEC: EventCodec = LiveEventCodec()


# --- events that the engine makes -------------------------------------------------------------------------------------


def engine_event(body: Any, event_of: Callable[[EventRecord], Event]) -> Event:
    """An event that the engine itself made, with the author's events in it."""
    if isinstance(body, StepFailure):
        return _step_failed(body, event_of)
    if isinstance(body, Release):
        return _released(body, event_of)
    if isinstance(body, Cancellation):
        cancelled_at = datetime.fromtimestamp(body.at, tz=UTC)
        return events.RunCancelledEvent(reason=body.reason, steps=list(body.steps), cancelled_at=cancelled_at)
    from loom.effects.flow_events import flow_event

    return flow_event(body)


def _step_failed(body: StepFailure, event_of: Callable[[EventRecord], Event]) -> events.StepFailedEvent:
    """Make the event that a recovery step gets."""
    return events.StepFailedEvent(
        step_name=body.step,
        input_event=event_of(body.input),
        exception=exception_of(body.failure),
        attempts=body.attempts,
        elapsed_seconds=body.elapsed_s,
        failed_at=datetime.fromtimestamp(body.failed_at, tz=UTC),
    )


def _released(body: Release, event_of: Callable[[EventRecord], Event]) -> events.CollectionReleaseEvent:
    """Make the event that shows the set which fired a join."""
    return events.CollectionReleaseEvent(
        events=[event_of(member) for member in body.members],
        stream_id=f"stream-{body.stream}",
        binding_id=body.step,
    )


# --- the stream -------------------------------------------------------------------------------------------------------


def published_event(published: Published, codec: EventCodec = LIVE_CODEC) -> Event:
    """Make the event that a reader of the stream sees."""
    if isinstance(published, EventRecord):
        return codec.event(published)
    return _report_event(published)


def _report_event(report: Any) -> Event:
    match report:
        case StepReport():
            return _step_state(report)
        case IdleReport():
            return events.WorkflowIdleEvent(
                waiters=[waiter_dict(waiter) for waiter in report.waiters], idle_since=report.idle_since
            )
        case UnhandledReport():
            return events.UnhandledEvent(
                event_type=report.event.label,
                qualified_name=report.event.name,
                step_name=report.step,
                idle=report.idle,
            )
        case SupersededReport():
            return events.StreamSupersededEvent(
                step_name=report.step, execution=report.execution, cursors=list(report.cursors)
            )
        case RefusedReport():
            return events.AnswerRefusedEvent(
                event_type=report.event_type, step=report.step, waiter_id=report.waiter_id, reason=report.reason
            )
        case TimedOutReport():
            return events.WorkflowTimedOutEvent(timeout=report.timeout_s, active_steps=list(report.active_steps))
        case CancelledReport():
            return events.WorkflowCancelledEvent()
        case FailedReport():
            return events.WorkflowFailedEvent(
                step_name=report.step,
                exception=exception_of(report.failure),
                attempts=report.attempts,
                elapsed_seconds=report.elapsed_s,
            )
        case _:
            raise TypeError(f"Not a report: {report!r}")


def _step_state(report: StepReport) -> events.StepStateChanged:
    over = report.phase == "not_running"
    output = None
    if over and report.returned:
        output = report.output.shown if report.output is not None else str(type(None))
    return events.StepStateChanged(
        name=report.step,
        step_state=events.StepState(report.phase),
        worker_id="<enqueued>" if report.worker_id is None else str(report.worker_id),
        input_event_name=report.input.shown if over else report.input.label,
        output_event_name=output,
    )

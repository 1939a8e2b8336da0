"""Between events and records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import Field

from loom import Event, StartEvent, StopEvent
from loom.core.records import (
    RELEASE_KIND,
    STEP_FAILED_KIND,
    CancelledReport,
    EventRecord,
    FailedReport,
    Failure,
    IdleReport,
    Release,
    StepFailure,
    StepReport,
    TimedOutReport,
    UnhandledReport,
    WaiterReport,
)
from loom.effects.actions.outcomes import NotPlainData
from loom.effects.event_codec import (
    MissingTypeError,
    UnfitEventError,
    event_of,
    exception_of,
    failure_of,
    published_event,
    read_field,
    record_of,
)
from loom.effects.flow_result import FlowFailed
from loom.steps import events, serializers
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.serializers import exception_name


class Parcel(Event):
    weight: int
    stamps: list[str] = Field(default_factory=list)


PARCEL = record_of(Parcel(weight=2))


def test_record_holds_the_event_itself() -> None:
    event = Parcel(weight=1)
    record = record_of(event)
    assert event_of(record) is event
    assert record.kind.label == "Parcel"
    assert record.kind.is_a("workflows.events.Event")


def test_event_that_several_take_is_copied_for_each() -> None:
    event = Parcel(weight=1, stamps=["a"])
    shared = replace(record_of(event), shared=True)
    one, two = event_of(shared), event_of(shared)
    assert isinstance(one, Parcel)
    one.stamps.append("b")
    assert two == event == Parcel(weight=1, stamps=["a"])


def test_fields_are_read_and_missing_ones_are_none() -> None:
    assert read_field(record_of(Parcel(weight=3, note="x")), "weight") == 3
    assert read_field(record_of(Parcel(weight=3, note="x")), "note") == "x"
    assert read_field(record_of(Parcel(weight=3)), "colour") is None


def test_failure_of_a_step_is_the_event_that_recovers_it() -> None:
    error = ValueError("no")
    body = StepFailure("pack", PARCEL, failure_of(error), 3, 1.5, 1_700_000_000.0)
    event = event_of(EventRecord(STEP_FAILED_KIND, body))
    assert isinstance(event, events.StepFailedEvent)
    assert (event.step_name, event.exception, event.attempts, event.elapsed_seconds) == ("pack", error, 3, 1.5)
    assert event.input_event == Parcel(weight=2)
    assert event.failed_at.timestamp() == 1_700_000_000.0


def test_set_of_a_join_is_shown_as_an_event() -> None:
    event = event_of(EventRecord(RELEASE_KIND, Release(2, "join", (PARCEL,))))
    assert isinstance(event, events.CollectionReleaseEvent)
    assert event.events == [Parcel(weight=2)]


def test_exception_is_the_live_one_or_rebuilt() -> None:
    error = KeyError("x")
    assert exception_of(failure_of(error)) is error
    rebuilt = exception_of(Failure("builtins.ValueError", "no"))
    assert type(rebuilt) is ValueError
    assert isinstance(exception_of(Failure("nowhere.Error", "no")), serializers.UnreconstructedException)


def test_cancelled_body_is_an_ordinary_exception_to_others() -> None:
    error = exception_of(failure_of(asyncio.CancelledError("stop")))
    assert isinstance(error, Exception)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (PARCEL, Parcel(weight=2)),
        (CancelledReport(), events.WorkflowCancelledEvent()),
        (TimedOutReport(2.0, ("a", "b")), events.WorkflowTimedOutEvent(timeout=2.0, active_steps=["a", "b"])),
        (
            UnhandledReport(PARCEL.kind, "pack", idle=True),
            events.UnhandledEvent(event_type="Parcel", qualified_name=PARCEL.kind.name, step_name="pack", idle=True),
        ),
    ],
)
def test_reports_are_events_of_the_stream(report: Any, expected: Event) -> None:
    event = published_event(report)
    assert type(event) is type(expected)
    assert event == expected


def test_idle_report_lists_the_waiters() -> None:
    event = published_event(IdleReport((WaiterReport("ask", "t", "w", (("a", 1),), 5.0, 6.0),), 7.0))
    assert isinstance(event, events.WorkflowIdleEvent)
    assert event.idle_since == 7.0
    assert event.waiters == [
        {"step": "ask", "waiter_id": "w", "event_type": "t", "requirements": {"a": 1}, "since": 5.0, "deadline": 6.0}
    ]


def test_failed_run_tells_its_exception() -> None:
    event = published_event(FailedReport("pack", Failure("builtins.ValueError", "no"), 2, 0.5))
    assert isinstance(event, events.WorkflowFailedEvent)
    assert (event.step_name, str(event.exception), event.attempts, event.elapsed_seconds) == ("pack", "no", 2, 0.5)


START, STOP = record_of(StartEvent()).kind, record_of(StopEvent()).kind


@pytest.mark.parametrize(
    ("report", "shown"),
    [
        (StepReport("s", "preparing", None, START), ("preparing", "<enqueued>", "StartEvent", None)),
        (StepReport("s", "running", 3, START), ("running", "3", "StartEvent", None)),
        (
            StepReport("s", "not_running", 0, START, STOP, True),
            ("not_running", "0", "<class 'workflows.events.StartEvent'>", "<class 'workflows.events.StopEvent'>"),
        ),
        (
            StepReport("s", "not_running", 0, START, None, True),
            ("not_running", "0", "<class 'workflows.events.StartEvent'>", "<class 'NoneType'>"),
        ),
        (
            StepReport("s", "not_running", 0, START),
            ("not_running", "0", "<class 'workflows.events.StartEvent'>", None),
        ),
    ],
)
def test_states_of_steps_are_named_as_programs_know_them(report: StepReport, shown: tuple[Any, ...]) -> None:
    event = published_event(report)
    assert isinstance(event, events.StepStateChanged)
    assert (event.step_state.value, event.worker_id, event.input_event_name, event.output_event_name) == shown


def test_a_property_that_asks_to_exit_is_a_field_that_cannot_be_read() -> None:
    class Exits(Event):
        @property
        def amount(self) -> int:
            raise SystemExit(3)

    with pytest.raises(WorkflowRuntimeError, match=r"^Exits.amount cannot be read: SystemExit: 3$"):
        read_field(record_of(Exits()), "amount")


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (MissingTypeError, "loom.effects.convert.MissingTypeError"),
        (UnfitEventError, "loom.effects.convert.UnfitEventError"),
        (NotPlainData, "loom.effects.actions.plain.NotPlainData"),
        (FlowFailed, "loom.effects.flow_result.FlowFailed"),
    ],
)
def test_stored_failures_name_their_types_as_they_always_did(error: type[Exception], name: str) -> None:
    assert exception_name(error) == name

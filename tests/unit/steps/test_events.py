"""`StopEvent`, the events that the framework makes, and how all events describe themselves."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from loom.steps import events
from loom.steps.events import (
    CollectionReleaseEvent,
    DictLikeModel,
    Event,
    InternalDispatchEvent,
    StepFailedEvent,
    StepState,
    StepStateChanged,
    StopEvent,
    UnhandledEvent,
    WorkflowCancelledEvent,
    WorkflowIdleEvent,
    WorkflowTimedOutEvent,
)


class Ping(Event):
    n: int
    s: str = "x"


class AppError(Exception):
    pass


def test_events_describe_themselves_as_json_schema() -> None:
    schema = Ping.model_json_schema()
    assert (schema["properties"].keys(), schema["required"]) == ({"n", "s"}, ["n"])
    assert StopEvent.model_json_schema()["type"] == "object"
    assert "exception" in StepFailedEvent.model_json_schema()["properties"]


# --- StopEvent


def test_a_stop_event_carries_a_result() -> None:
    assert StopEvent("done").result == "done"
    assert StopEvent().result is None
    assert (str(StopEvent(result=5)), str(StopEvent())) == ("5", "None")
    assert repr(StopEvent(result=1, z=2)) == "StopEvent(z=2, result=1)"


def test_the_dump_of_a_stop_event_has_what_there_is() -> None:
    assert StopEvent().model_dump() == {}
    assert StopEvent(result=1).model_dump() == {"result": 1}
    assert StopEvent(result=1, z=2).model_dump() == {"result": 1, "_data": {"z": 2}}


def test_a_stop_event_may_compute_its_result() -> None:
    class Total(StopEvent):
        a: int

        def _get_result(self) -> Any:
            return self.a * 2

    assert (Total(a=2).result, Total(a=2).model_dump()) == (4, {"a": 2})


# --- the framework's events


def test_the_module_exports_what_it_names() -> None:
    assert all(hasattr(events, name) for name in events.__all__)
    assert issubclass(Event, DictLikeModel)


@pytest.mark.parametrize("cls", [StepStateChanged, UnhandledEvent, WorkflowIdleEvent])
def test_internal_events_share_a_base(cls: type[Event]) -> None:
    assert issubclass(cls, InternalDispatchEvent)


@pytest.mark.parametrize(
    "event",
    [
        WorkflowTimedOutEvent(timeout=1.5, active_steps=["a"]),
        WorkflowCancelledEvent(),
        StepStateChanged(name="a", step_state=StepState.RUNNING, worker_id="0", input_event_name="E"),
        UnhandledEvent(event_type="E", qualified_name="m.E", idle=True),
        WorkflowIdleEvent(waiters=[{"step": "a"}], idle_since=1.0),
        CollectionReleaseEvent(events=[Ping(n=1, z=2)], stream_id="s"),
    ],
)
def test_framework_events_survive_json(event: Event) -> None:
    assert type(event).model_validate_json(event.model_dump_json()) == event


def test_an_idle_event_needs_nothing() -> None:
    assert (WorkflowIdleEvent().waiters, WorkflowIdleEvent().idle_since) == ([], None)


def test_the_states_of_a_step() -> None:
    assert [state.value for state in StepState] == ["preparing", "running", "not_running"]


def test_a_failure_carries_its_input_with_its_type() -> None:
    failed = StepFailedEvent(
        step_name="a",
        input_event=Ping(n=1, z=2),
        exception=AppError("boom"),
        attempts=3,
        elapsed_seconds=0.5,
        failed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    dumped = json.loads(failed.model_dump_json())
    assert dumped["input_event"]["qualified_name"] == f"{__name__}.Ping"
    again = StepFailedEvent.model_validate(dumped)
    assert (again.input_event, again.failed_at, again.attempts) == (failed.input_event, failed.failed_at, 3)
    assert (type(again.exception), str(again.exception)) == (AppError, "boom")


def test_a_stop_event_with_fields_of_its_own_is_shown_by_them() -> None:
    class Shipped(StopEvent):
        parcels: int

    assert str(Shipped(parcels=3)) == "Shipped(parcels=3)"
    assert str(Shipped(parcels=3, result="two")) == "two"
    assert str(StopEvent()) == "None"

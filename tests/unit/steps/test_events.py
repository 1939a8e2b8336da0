"""`StopEvent`, the events that the framework makes, and field types for events and exceptions."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from loom.compat import events as compat_events
from loom.steps import events
from loom.steps.errors import WorkflowTimeoutError
from loom.steps.events import (
    CollectionReleaseEvent,
    DictLikeModel,
    Event,
    InternalDispatchEvent,
    SerializableEvent,
    SerializableEventType,
    SerializableOptionalEvent,
    SerializableOptionalException,
    StepFailedEvent,
    StepState,
    StepStateChanged,
    StopEvent,
    UnhandledEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    WorkflowIdleEvent,
    WorkflowTimedOutEvent,
)
from loom.steps.serializers import JsonSerializer, UnreconstructedException


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


def test_the_module_has_what_compat_exports() -> None:
    assert [name for name in compat_events.__all__ if not hasattr(events, name)] == ["UnreconstructedException"]
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


class TwoPartError(Exception):
    def __init__(self, a: str, b: str) -> None:
        super().__init__(a + b)


class NumberedError(Exception):
    def __init__(self, number: object) -> None:
        super().__init__(f"number {number}")


# --- exceptions inside events


def travel(exc: BaseException) -> tuple[dict[str, str], BaseException]:
    dumped = WorkflowFailedEvent(step_name="a", exception=exc).model_dump(mode="json")
    return dumped["exception"], WorkflowFailedEvent.model_validate(dumped).exception


@pytest.mark.parametrize(
    ("exc", "name"),
    [
        (ValueError("x"), "builtins.ValueError"),
        (ValueError(), "builtins.ValueError"),
        (KeyError("k"), "builtins.KeyError"),
        (AppError("y"), f"{__name__}.AppError"),
        (NumberedError(3), f"{__name__}.NumberedError"),
        (WorkflowTimeoutError("late"), "workflows.errors.WorkflowTimeoutError"),
    ],
)
def test_a_known_exception_comes_back_as_its_class(exc: Exception, name: str) -> None:
    dumped, again = travel(exc)
    assert dumped == {"exception_type": name, "exception_message": str(exc)}
    assert (type(again), str(again)) == (type(exc), str(exc))


@pytest.mark.parametrize(
    "exc", [TwoPartError("a", "b"), json.JSONDecodeError("m", "d", 0), asyncio.CancelledError("c")]
)
def test_one_that_a_message_cannot_build_has_a_stand_in(exc: BaseException) -> None:
    dumped, again = travel(exc)
    assert isinstance(again, UnreconstructedException)
    assert (again.original_type, str(again)) == (dumped["exception_type"], str(exc))


@pytest.mark.parametrize(
    "name", ["builtins.eval", "builtins.int", "builtins.KeyboardInterrupt", "os.system", "nowhere.Error", "x", ""]
)
def test_what_is_no_known_exception_is_never_called(name: str) -> None:
    data = {"step_name": "a", "exception": {"exception_type": name, "exception_message": "m"}}
    exc = WorkflowFailedEvent.model_validate(data).exception
    assert isinstance(exc, UnreconstructedException)
    assert (str(exc), exc.original_type) == ("m", name)


def test_a_stand_in_keeps_its_original_type_on_further_trips() -> None:
    dumped, again = travel(UnreconstructedException("m", original_type="far.Error"))
    assert dumped["exception_type"] == "far.Error"
    assert isinstance(again, UnreconstructedException)
    assert repr(again) == "UnreconstructedException(original_type='far.Error', 'm')"


def test_a_local_exception_is_found_while_it_exists() -> None:
    class LocalError(Exception):
        pass

    assert type(travel(LocalError("m"))[1]) is LocalError


def test_a_restricted_serializer_restricts_exceptions_too() -> None:
    data = {"step_name": "a", "exception": {"exception_type": f"{__name__}.AppError", "exception_message": "m"}}
    for allowed, expected in (([], UnreconstructedException), ([AppError], AppError)):
        with JsonSerializer(allowed_types=allowed).validation_context():
            assert type(WorkflowFailedEvent.model_validate(data).exception) is expected


ALLOW_LISTS = [None, [], [WorkflowFailedEvent], [WorkflowFailedEvent, AppError]]


@pytest.mark.parametrize("allowed", ALLOW_LISTS, ids=["any", "none", "the event", "an error too"])
@pytest.mark.parametrize("exc", [TwoPartError("a", "b"), AppError("y"), UnicodeDecodeError("utf8", b"x", 0, 1, "bad")])
def test_further_trips_change_nothing(exc: Exception, allowed: list[type[Any]] | None) -> None:
    """A stand-in is written as what it is for, and is never wrapped in another one."""
    serializer = JsonSerializer(allowed_types=allowed)
    first = serializer.serialize(WorkflowFailedEvent(step_name="a", exception=exc))
    text = first
    for _ in range(3):
        again = serializer.deserialize(text).exception
        assert type(again) in (type(exc), UnreconstructedException)
        assert str(again) == str(exc)
        text = serializer.serialize(WorkflowFailedEvent(step_name="a", exception=again))
        assert text == first


def test_a_stand_in_becomes_the_error_where_its_class_is_allowed() -> None:
    closed, open_ = JsonSerializer(allowed_types=[WorkflowFailedEvent]), JsonSerializer()
    stand_in = closed.deserialize(closed.serialize(WorkflowFailedEvent(step_name="a", exception=AppError("y"))))
    assert isinstance(stand_in.exception, UnreconstructedException)
    again = open_.deserialize(closed.serialize(stand_in)).exception
    assert (type(again), str(again)) == (AppError, "y")


@pytest.mark.parametrize("allowed", [None, []], ids=["any", "none"])
def test_a_stand_in_that_the_original_has_saved_is_read(allowed: list[type[Any]] | None) -> None:
    """The original writes one under the name of its own class, and so loses which error it was."""
    name = "workflows.events.UnreconstructedException"
    data = {"step_name": "a", "exception": {"exception_type": name, "exception_message": "m"}}
    with JsonSerializer(allowed_types=allowed).validation_context():
        exc = WorkflowFailedEvent.model_validate(data).exception
    assert isinstance(exc, UnreconstructedException)
    assert (str(exc), exc.original_type) == ("m", None)
    assert WorkflowFailedEvent(step_name="a", exception=exc).model_dump()["exception"] == data["exception"]


@pytest.mark.parametrize("data", [5, {}, {"exception_type": 5}])
def test_malformed_exceptions_are_validation_errors(data: Any) -> None:
    with pytest.raises(ValidationError, match="exception_type"):
        WorkflowFailedEvent.model_validate({"step_name": "a", "exception": data})


# --- annotated types


class Carrier(BaseModel):
    event: SerializableEvent
    maybe: SerializableOptionalEvent = None
    error: SerializableOptionalException = None
    kind: SerializableEventType = Event


def test_carriers_bring_events_types_and_errors_back() -> None:
    carrier = Carrier(event=Ping(n=1, z=2), maybe=StopEvent(result=3), error=ValueError("v"), kind=Ping)
    dumped = carrier.model_dump(mode="json")
    assert dumped["kind"] == f"{__name__}.Ping"
    again = Carrier.model_validate(dumped)
    assert (again.event, again.maybe, again.kind, str(again.error)) == (carrier.event, carrier.maybe, Ping, "v")
    empty = Carrier.model_validate(Carrier(event=Event()).model_dump())
    assert (empty.maybe, empty.error, empty.kind) == (None, None, Event)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event", {"n": 1}),
        ("event", None),
        ("maybe", 5),
        ("kind", f"{__name__}.Carrier"),
        ("kind", "nowhere.Event"),
        ("kind", dict),
    ],
)
def test_carriers_refuse_what_is_no_event(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        Carrier.model_validate({"event": Event(), field: value})

"""Exceptions, events and event classes as fields: how they are written and what they come back as."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from loom.steps.errors import WorkflowTimeoutError
from loom.steps.events import (
    Event,
    SerializableEvent,
    SerializableEventType,
    SerializableOptionalEvent,
    SerializableOptionalException,
    StopEvent,
    UnreconstructedException,
    WorkflowFailedEvent,
)
from loom.steps.serializers import JsonSerializer


class Ping(Event):
    n: int
    s: str = "x"


class AppError(Exception):
    pass


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

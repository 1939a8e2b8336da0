"""Field types for events, event classes and exceptions inside events, and how an exception travels.

An exception is written as `{exception_type, exception_message}`. It comes back as its class where this process has that
class already and the class takes one message. May import `event_base`, `registry` and `serializers`.
"""

from __future__ import annotations

import builtins
import sys
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator
from typing_extensions import override

from loom.steps.event_base import Event
from loom.steps.registry import (
    AmbiguousTypeError,
    framework_name,
    framework_type,
    is_framework,
    module_of,
    names_of,
    resolve_subclass,
    wire_name,
)
from loom.steps.serializers import JsonSerializer, active_serializer
from loom.steps.texts import message_of

_PLAIN = JsonSerializer()


class UnreconstructedException(Exception):
    """Stands for an exception whose class is unknown here or cannot be built from a message alone."""

    def __init__(self, message: str, *, original_type: str | None = None) -> None:
        super().__init__(message)
        self.original_type = original_type

    @override
    def __repr__(self) -> str:
        return f"UnreconstructedException(original_type={self.original_type!r}, {self.args[0]!r})"


framework_name(UnreconstructedException, "workflows.events.UnreconstructedException")


class _Verbatim(str):
    """A message that reads the same after `repr`, for exceptions such as KeyError that show the repr of theirs."""

    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return str(self)


def exception_name(cls: type[BaseException]) -> str:
    """The wire name of an exception class."""
    return wire_name(cls) if is_framework(cls) else f"{module_of(cls)}.{cls.__qualname__}"


def dump_exception(exc: BaseException) -> dict[str, Any]:
    """An exception as data. One that could not be rebuilt keeps the name it came with."""
    original = exc.original_type if isinstance(exc, UnreconstructedException) else None
    return {"exception_type": original or exception_name(type(exc)), "exception_message": message_of(exc)}


def load_exception(data: Any) -> BaseException:
    """The exception that the data describes; what cannot be rebuilt is an `UnreconstructedException`."""
    if isinstance(data, BaseException):
        return data
    if not isinstance(data, dict) or not isinstance(name := data.get("exception_type"), str):
        msg = "An exception is written as {'exception_type': ..., 'exception_message': ...}."
        raise ValueError(msg)
    message = str(data.get("exception_message", ""))
    cls = _exception_class(name)
    if cls is not None:
        try:
            exc = cls(message)
            if str(exc) != message:
                exc.args = (_Verbatim(message),)
            isinstance(exc, UnreconstructedException)  # which asks it for its class, as many will
        except BaseException:  # noqa: BLE001 - foreign code; the stand-in below keeps the facts
            cls = None
        else:
            return exc
    return UnreconstructedException(message, original_type=name)


def _exception_class(name: str) -> type[Exception] | None:
    """An exception class that already exists under that name; nothing that is not an exception can be reached."""
    serializer = active_serializer.get()
    found: Any
    if name.startswith("builtins."):
        found = vars(builtins).get(name.removeprefix("builtins."))
    elif (framework := framework_type(name)) is not None:
        found = framework
    elif serializer is not None and not serializer.allows(name):
        found = None
    else:
        found = _existing_exception(name)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _existing_exception(name: str) -> Any:
    module_name, _, attribute = name.rpartition(".")
    found = vars(sys.modules[module_name]).get(attribute) if module_name in sys.modules else None
    if isinstance(found, type) and name in names_of(found):
        return found
    try:
        return resolve_subclass(name, Exception)
    except AmbiguousTypeError:
        return None


def _dump_event(event: Event) -> Any:
    return _PLAIN.serialize_value(event)


def _load_event(data: Any) -> Event:
    event = (active_serializer.get() or _PLAIN).deserialize_value(data)
    if not isinstance(event, Event):
        msg = "SerializableEvent must resolve to an Event instance"
        raise ValueError(msg)
    return event


def _load_event_type(data: Any) -> type[Event]:
    found = data if isinstance(data, type) else (active_serializer.get() or _PLAIN).resolve_class(data)
    if not issubclass(found, Event):
        msg = "SerializableEventType must resolve to an Event class"
        raise ValueError(msg)
    return found


# The validator comes first and the serializer around it: the other way round, a model that does not allow arbitrary
# types would lose the serializer.
SerializableEvent = Annotated[Event, PlainValidator(_load_event), PlainSerializer(_dump_event, return_type=Any)]
"""An event of any class, written with its type."""

SerializableOptionalEvent = Annotated[
    Event | None,
    PlainValidator(lambda data: None if data is None else _load_event(data)),
    PlainSerializer(lambda event: None if event is None else _dump_event(event), return_type=Any),
]
"""The same, or None."""

SerializableException = Annotated[
    Exception, PlainValidator(load_exception), PlainSerializer(dump_exception, return_type=dict[str, Any])
]
"""An exception, written as its type's name and its message."""

SerializableOptionalException = Annotated[
    Exception | None,
    PlainValidator(lambda data: None if data is None else load_exception(data)),
    PlainSerializer(lambda exc: None if exc is None else dump_exception(exc), return_type=Any),
]
"""The same, or None."""

SerializableEventType = Annotated[
    type[Event], PlainValidator(_load_event_type), PlainSerializer(wire_name, return_type=str)
]
"""An event class, written as its name."""

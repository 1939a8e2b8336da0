"""All events: the ones that authors write, the ones that the engine makes, and stand-ins for types that are not here.

An author derives from `Event` or from one of the four that come with it. The engine makes failures, ends of runs, and
reports on what goes on inside. Some of them hold other events and exceptions; their field types are here too.

An exception is written as `{exception_type, exception_message}`. It comes back as its class where this process has that
class already and the class takes one message.

A stand-in lets a process send events whose code it lacks, and which it cannot check. They are marked as unchecked; the
run that takes one compares it with the class.
"""

from __future__ import annotations

import builtins
import sys
from datetime import datetime
from enum import Enum
from types import new_class
from typing import Annotated, Any

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from typing_extensions import override

from loom.steps.dict_like import DictLikeModel
from loom.steps.errors import message_of
from loom.steps.registry import (
    AmbiguousTypeError,
    framework_name,
    framework_type,
    is_framework,
    module_of,
    names_of,
    register_event,
    resolve_subclass,
    wire_name,
)
from loom.steps.serializers import JsonSerializer, active_serializer

# Events that authors write.


class Event(DictLikeModel):
    """What steps take and return: declared fields, and any other keyword besides.

    Every subclass is known by its name from the moment it is defined, so that stored events find their class again.
    """

    @classmethod
    @override
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        register_event(cls)


class StartEvent(Event):
    """Starts a run; `run(**kwargs)` makes one of its keywords."""


class StopEvent(Event):
    """Ends a run. The run's result is `result`, or the event itself where a subclass is used."""

    _result: Any = PrivateAttr(default=None)

    def __init__(self, result: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._result = result

    def _get_result(self) -> Any:
        """Return what `result` answers; subclasses may override it."""
        return self._result

    @property
    def result(self) -> Any:
        """The result of the run."""
        return self._get_result()

    @model_serializer(mode="wrap")
    @override
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The declared fields, the result unless it is None, and the extras under `_data` if there are any."""
        dumped: dict[str, Any] = handler(self)
        if self._result is not None:
            dumped["result"] = self._result
        if self._data:
            dumped["_data"] = self._data
        return dumped

    @override
    def __repr__(self) -> str:
        shown = {**self._data, **self.model_dump()}
        shown.pop("_data", None)
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in shown.items())})"

    @override
    def __str__(self) -> str:
        # A subclass carries its result in fields of its own.
        return repr(self) if self._result is None and type(self) is not StopEvent else str(self._result)


class InputRequiredEvent(Event):
    """Asks someone outside for input. It goes to the stream, and no step has to accept it."""


class HumanResponseEvent(Event):
    """Brings an answer from outside. No step has to produce it."""


EventType = type[Event]

register_event(Event)
for _event in (Event, StartEvent, StopEvent, InputRequiredEvent, HumanResponseEvent):
    framework_name(_event, f"workflows.events.{_event.__name__}")


_PLAIN = JsonSerializer()


# Field types for events, event classes and exceptions inside events.


class UnreconstructedException(Exception):
    """An exception whose class is unknown here or cannot be built from a message alone."""

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
    """Return the wire name of an exception class."""
    return wire_name(cls) if is_framework(cls) else f"{module_of(cls)}.{cls.__qualname__}"


def dump_exception(exc: BaseException) -> dict[str, Any]:
    """Return an exception as data. One that could not be rebuilt keeps the name it came with."""
    original = exc.original_type if isinstance(exc, UnreconstructedException) else None
    return {"exception_type": original or exception_name(type(exc)), "exception_message": message_of(exc)}


def load_exception(data: Any) -> BaseException:
    """Return the exception that the data describes; what cannot be rebuilt is an `UnreconstructedException`."""
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


# Events that the engine makes.


class StepFailedEvent(Event, defer_build=True):
    """Goes to a `@catch_error` handler when a step has failed and its retries are used up."""

    step_name: str
    input_event: SerializableEvent
    exception: SerializableException
    attempts: int
    elapsed_seconds: float
    failed_at: datetime


class CollectionReleaseEvent(Event, defer_build=True):
    """The batch that a collect step was called with; seen as `StepFailedEvent.input_event`."""

    events: list[SerializableEvent] = Field(default_factory=list)
    stream_id: str = ""
    binding_id: str = ""


class AnswerRefusedEvent(Event, defer_build=True):
    """An event that was sent was refused: it does not fit its class, or the schema that an action asks for.

    What waited for it waits on.
    """

    action: str = Field(default="", description="The action of a flow that waits on.")
    reason: str = Field(description="What does not fit, without values.")
    event_type: str = Field(default="", description="Class name of the event.")
    step: str = Field(default="", description="The step that the event was for.")
    waiter_id: str | None = Field(default=None, description="The wait that goes on, if it was one.")


class WorkflowTimedOutEvent(StopEvent, defer_build=True):
    """The last event of a run that took too long."""

    timeout: float
    active_steps: list[str]


class WorkflowCancelledEvent(StopEvent, defer_build=True):
    """The last event of a run that was cancelled."""


class WorkflowFailedEvent(StopEvent, defer_build=True):
    """The last event of a run that failed; attempts and seconds are None where no step's attempts were used up."""

    step_name: str
    exception: SerializableException
    attempts: int | None = None
    elapsed_seconds: float | None = None


class IdleReleasedEvent(StopEvent, defer_build=True):
    """Says that an idle run was released from memory; it is not over."""


class StreamSupersededEvent(Event, defer_build=True):
    """A step's body ran again, after a crash or a release, and wrote something else to the stream.

    What the same execution had written at these cursors does not count any more: what it writes now follows.
    """

    step_name: str = Field(description="Name of the step.")
    execution: int = Field(description="Which of the run's executions: the same number in all its repetitions.")
    cursors: list[tuple[int, int]] = Field(
        description="The first and the last cursor of each unbroken row of superseded events, in order."
    )


class InternalDispatchEvent(Event, defer_build=True):
    """A report from inside the engine, streamed only to those who ask for internal events."""


class WorkflowIdleEvent(InternalDispatchEvent):
    """The run has become idle: only input from outside can move it."""

    waiters: list[dict[str, Any]] = Field(default_factory=list, description="What the run waits for.")
    idle_since: float | None = Field(default=None, description="When the run became idle, in seconds since the epoch.")


class UnhandledEvent(InternalDispatchEvent):
    """An event has come in that no step and no waiter takes."""

    event_type: str = Field(description="Class name of the event.")
    qualified_name: str = Field(description="Wire name of the event's class.")
    step_name: str | None = Field(default=None, description="The step it was addressed to, if any.")
    idle: bool = Field(description="Whether the run is idle after it.")


class StepState(Enum):
    """Where an execution of a step stands."""

    PREPARING = "preparing"
    """Queued: the step has no free worker."""
    RUNNING = "running"
    NOT_RUNNING = "not_running"


class StepStateChanged(InternalDispatchEvent):
    """An execution of a step was queued, started or ended."""

    name: str = Field(description="Name of the step.")
    step_state: StepState = Field(description="Its new state.")
    worker_id: str = Field(description="The worker it runs on.")
    input_event_name: str = Field(description="Class of the event it takes.")
    output_event_name: str | None = Field(default=None, description="Class of the event it returned.")


for _engine_event in (
    StepFailedEvent,
    CollectionReleaseEvent,
    WorkflowTimedOutEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    IdleReleasedEvent,
    InternalDispatchEvent,
    WorkflowIdleEvent,
    UnhandledEvent,
    StepStateChanged,
):
    framework_name(_engine_event, f"workflows.events.{_engine_event.__name__}")
    # Only these put off building their validators, for the sake of import time. Subclasses of theirs in user code
    # are built when they are defined, where a mistake in them belongs.
    _engine_event.model_config.pop("defer_build", None)
framework_name(StreamSupersededEvent, "loom.StreamSupersededEvent")
StreamSupersededEvent.model_config.pop("defer_build", None)

# Flows had it first, and under this name it is stored.
framework_name(AnswerRefusedEvent, "loom.flows.AnswerRefusedEvent")
AnswerRefusedEvent.model_config.pop("defer_build", None)


# Stand-ins for types that this process lacks.


def stand_in(name: str) -> type[Event]:
    """Return an event class for a type by its wire name. Its fields are stored as they are given, unchecked."""
    module, _, short = name.rpartition(".")
    namespace = {
        "__module__": module,
        "__qualname__": short,
        "custom_model_dump": model_serializer(mode="plain")(_fields_side_by_side),
    }
    cls: type[Event] = new_class(short, (_StandIn, Event), exec_body=lambda body: body.update(namespace))
    return cls


def is_stand_in(cls: type[Any]) -> bool:
    """Say whether a class was made by `stand_in`."""
    return issubclass(cls, _StandIn)


class _StandIn:
    """Keeps a stand-in out of the registry, where the real class may be by the same name."""

    __loom_stand_in__ = True

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        pass


def _fields_side_by_side(self: Any) -> dict[str, Any]:
    """Return all fields, as the real class stores the ones that it declares."""
    return dict(self._data)

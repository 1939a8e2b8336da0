"""All events: the ones that authors write, the ones that the engine makes, and stand-ins for types that are not here.

All derive from `DictLikeModel`, a pydantic model that keeps undeclared keywords too, as `DictState` does.

An author derives from `Event` or from one of the four that come with it. The engine makes failures, ends of runs, and
reports on what goes on inside. Some of them hold other events and exceptions; their field types are here too.

A stand-in lets a process send events whose code it lacks, and which it cannot check. They are marked as unchecked; the
run that takes one compares it with the class.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from typing_extensions import override

from loom.steps.registry import built_on_first_use, framework_name, register_event, wire_name
from loom.steps.serializers import JsonSerializer, active_serializer, dump_exception, load_exception

if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView

# The base: a model with extras.

_KNOWN = "__loom_known__"
_EXTRAS = "__loom_extras__"
_COLLECTS_FIELDS = "pydantic._internal._fields"


class _MappingMethod:
    """Makes a method of the mapping face give way to a declared field of its name.

    The values of fields are in the instance's `__dict__`, which comes before a descriptor that has only `__get__`.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: DictLikeModel | None, owner: type[DictLikeModel]) -> Any:
        name = self._function.__name__
        if name in owner.__pydantic_fields__ or (instance is None and _asked_for_fields(sys._getframe(1).f_globals)):
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {name!r}")
        return self._function.__get__(instance, owner)


def _asked_for_fields(caller: dict[str, Any]) -> bool:
    """Return whether pydantic asks, to collect the fields of a new class: a method would become a field's default."""
    return caller.get("__name__") == _COLLECTS_FIELDS


@built_on_first_use
class DictLikeModel(BaseModel, defer_build=True):  # noqa: PLW1641 - pydantic gives a hash to models that are frozen
    """Declared fields are validated as in any model; every other keyword is kept as it is in `_data`.

    Attributes reach both. The mapping face (`[]`, `get`, `in`, `len`, iteration, `keys` and so on) covers `_data` only.
    `get`, `keys`, `values`, `items` and `to_dict` may be declared as fields; they are fields like others then.
    """

    # A slot, made on first use, and not a private attribute of pydantic: those cost every construction more than
    # the whole validation of a small model, and most models carry no extras.
    __slots__ = (_EXTRAS,)

    # A dump can always be validated again: it goes by name, not by alias, and pydantic's null for NaN is no float.
    model_config = ConfigDict(
        arbitrary_types_allowed=True,
        populate_by_name=True,
        ser_json_inf_nan="constants",
        ignored_types=(_MappingMethod,),
    )

    def __init__(self, **params: Any) -> None:
        known = type(self).__dict__.get(_KNOWN)
        if known is None:
            known = _known_keywords(type(self))
        if known.issuperset(params):
            # An empty slot would raise an AttributeError whenever extras are looked for.
            fill_slot(self, None)
            # What BaseModel.__init__ does, without passing the keywords through another call.
            self.__pydantic_validator__.validate_python(params, self_instance=self)
            return
        private = self.__private_attributes__
        data = _checked(params.pop("_data", None))
        private_values = {key: params.pop(key) for key in list(params) if key in private}
        extras = {key: params.pop(key) for key in list(params) if key not in known}
        super().__init__(**params)
        for key, value in private_values.items():
            super().__setattr__(key, value)
        if data is not None:
            object.__setattr__(self, _EXTRAS, data.copy())
        # Added, not assigned: `model_post_init` may have set some already.
        self._data.update(extras)

    @property
    def _data(self) -> dict[str, Any]:
        try:
            extras: dict[str, Any] | None = read_slot(self)
        except AttributeError:
            extras = None
        if extras is None:
            extras = {}
            fill_slot(self, extras)
        return extras

    # Hidden from type checkers, as pydantic does: otherwise they would take any misspelt attribute for an extra one.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            cls = type(self)
            if name in cls.__private_attributes__ or name in cls.__pydantic_fields__ or name.startswith("__pydantic"):
                return super().__getattr__(name)
            try:
                return self._data[name]
            except KeyError:
                raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}") from None

        def __setattr__(self, name: str, value: Any) -> None:
            cls = type(self)
            if name in cls.__pydantic_fields__ or name in cls.__private_attributes__:
                super().__setattr__(name, value)
            elif name == "_data":
                object.__setattr__(self, _EXTRAS, value)
            elif isinstance(found := getattr(cls, name, None), property) and found.fset is not None:
                found.fset(self, value)
            else:
                self._data[name] = value

        def __delattr__(self, name: str) -> None:
            if name in self._data:
                del self._data[name]
            else:
                super().__delattr__(name)

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._data[key] = value

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def __len__(self) -> int:
        return len(self._data)

    @override
    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # the mapping face replaces pydantic's pairs
        return iter(self._data)

    def __bool__(self) -> bool:
        return True

    if TYPE_CHECKING:
        # Type checkers let a field of any type take the place of a name without an annotation whose value is Any, but
        # not that of a method, and pyright not that of a property. An annotation would make each of them a field.
        get = cast("Any", None)
        keys = cast("Any", None)
        values = cast("Any", None)
        items = cast("Any", None)
        to_dict = cast("Any", None)

    else:

        @_MappingMethod
        def get(self, key: str, default: Any = None) -> Any:
            """Return the extra value of that name, or the default."""
            return self._data.get(key, default)

        @_MappingMethod
        def keys(self) -> KeysView[str]:
            """Return the names of the extra values."""
            return self._data.keys()

        @_MappingMethod
        def values(self) -> ValuesView[Any]:
            """Return the extra values."""
            return self._data.values()

        @_MappingMethod
        def items(self) -> ItemsView[str, Any]:
            """Names and values of the extras."""
            return self._data.items()

        @_MappingMethod
        def to_dict(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            """Return the extras themselves, not a copy; arguments are accepted and ignored."""
            return self._data

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The declared fields and, if there are any, the extras under `_data`."""
        dumped: dict[str, Any] = handler(self)
        if self._data:
            dumped["_data"] = self._data
        return dumped

    @classmethod
    @override
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:
        """Build without validation; keywords that are not declared are kept as extras."""
        model = super().model_construct(_fields_set, **values)
        known = _known_keywords(cls)
        extras = {k: v for k, v in values.items() if k not in known and k not in cls.__private_attributes__}
        data = _checked(extras.pop("_data", None)) or {}
        model._data.update(data, **extras)
        return model

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with its own extras; keys of `update` that are not declared change the extras."""
        fields = type(self).__pydantic_fields__
        declared = {key: value for key, value in (update or {}).items() if key in fields}
        copied = super().model_copy(update=declared, deep=deep)
        if deep and declared:  # the one case in which pydantic makes a deep copy without `__deepcopy__`
            object.__setattr__(copied, _EXTRAS, deepcopy(self._data))
        for key, value in (update or {}).items():
            if key not in fields:
                setattr(copied, key, value)
        return copied

    @override
    def __copy__(self) -> Self:
        copied = super().__copy__()
        if self._data:
            object.__setattr__(copied, _EXTRAS, self._data.copy())
        return copied

    @override
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        copied = super().__deepcopy__(memo)
        if self._data:
            object.__setattr__(copied, _EXTRAS, deepcopy(self._data, memo))
        return copied

    @override
    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        return self._data == other._data if equal is True and isinstance(other, DictLikeModel) else equal

    @override
    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), _EXTRAS: self._data}

    @override
    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        object.__setattr__(self, _EXTRAS, state[_EXTRAS])


read_slot: Callable[[DictLikeModel], dict[str, Any] | None] = DictLikeModel.__dict__[_EXTRAS].__get__
fill_slot: Callable[[DictLikeModel, dict[str, Any] | None], None] = DictLikeModel.__dict__[_EXTRAS].__set__
"""The slot of the extras, past pydantic's `__getattr__` and `__setattr__`. It holds None until there are any."""


def _known_keywords(cls: type[DictLikeModel]) -> frozenset[str]:
    """The keywords that pydantic itself takes: names and aliases of fields. Kept on the class."""
    if not cls.__pydantic_complete__:
        # Generated aliases are known after that. The caller of `__init__` may have local names that annotations use.
        cls.model_rebuild(raise_errors=False, _parent_namespace_depth=4)
    known = set(cls.__pydantic_fields__)
    for field in cls.__pydantic_fields__.values():
        alias = field.validation_alias
        for choice in alias.choices if isinstance(alias, AliasChoices) else (field.alias, alias):
            first = choice.path[0] if isinstance(choice, AliasPath) else choice
            if isinstance(first, str):
                known.add(first)
    frozen = frozenset(known)
    setattr(cls, _KNOWN, frozen)
    return frozen


def _checked(data: Any) -> dict[str, Any] | None:
    if data is not None and not isinstance(data, dict):
        msg = f"_data must be a dict, not {type(data).__name__}."
        raise ValueError(msg)
    return data


# Events that authors write.


@built_on_first_use
class Event(DictLikeModel, defer_build=True):
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


@built_on_first_use
class InputRequiredEvent(Event, defer_build=True):
    """Asks someone outside for input. It goes to the stream, and no step has to accept it."""


@built_on_first_use
class HumanResponseEvent(Event, defer_build=True):
    """Brings an answer from outside. No step has to produce it."""


EventType = type[Event]

register_event(Event)
for _event in (Event, StartEvent, StopEvent, InputRequiredEvent, HumanResponseEvent):
    framework_name(_event, f"workflows.events.{_event.__name__}")


_PLAIN = JsonSerializer()


# Field types for events, event classes and exceptions inside events.


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


@built_on_first_use
class StepFailedEvent(Event, defer_build=True):
    """Goes to a `@catch_error` handler when a step has failed and its retries are used up."""

    step_name: str
    input_event: SerializableEvent
    exception: SerializableException
    attempts: int
    elapsed_seconds: float
    failed_at: datetime


@built_on_first_use
class RunCancelledEvent(Event, defer_build=True):
    """Goes to the `@on_cancel` step of a run that is cancelled, once its work under way was stopped."""

    reason: str = Field(default="", description="What the caller gave as the reason.")
    steps: list[str] = Field(
        default_factory=list, description="The steps that had work under way: queued, executing, waiting or to retry."
    )
    cancelled_at: datetime = Field(description="When the run was cancelled.")


@built_on_first_use
class CollectionReleaseEvent(Event, defer_build=True):
    """The batch that a collect step was called with; seen as `StepFailedEvent.input_event`."""

    events: list[SerializableEvent] = Field(default_factory=list)
    stream_id: str = ""
    binding_id: str = ""


@built_on_first_use
class AnswerRefusedEvent(Event, defer_build=True):
    """An event that was sent was refused: it does not fit its class, or the schema that an action asks for.

    What waited for it waits on.
    """

    action: str = Field(default="", description="The action of a flow that waits on.")
    reason: str = Field(description="What does not fit, without values.")
    event_type: str = Field(default="", description="Class name of the event.")
    step: str = Field(default="", description="The step that the event was for.")
    waiter_id: str | None = Field(default=None, description="The wait that goes on, if it was one.")


@built_on_first_use
class WorkflowTimedOutEvent(StopEvent, defer_build=True):
    """The last event of a run that took too long."""

    timeout: float
    active_steps: list[str]


@built_on_first_use
class WorkflowCancelledEvent(StopEvent, defer_build=True):
    """The last event of a run that was cancelled."""


@built_on_first_use
class WorkflowFailedEvent(StopEvent, defer_build=True):
    """The last event of a run that failed; attempts and seconds are None where no step's attempts were used up."""

    step_name: str
    exception: SerializableException
    attempts: int | None = None
    elapsed_seconds: float | None = None


@built_on_first_use
class IdleReleasedEvent(StopEvent, defer_build=True):
    """Says that an idle run was released from memory; it is not over."""


@built_on_first_use
class StreamSupersededEvent(Event, defer_build=True):
    """A step's body ran again, after a crash or a release, and wrote something else to the stream.

    What the same execution had written at these cursors does not count any more: what it writes now follows.
    """

    step_name: str = Field(description="Name of the step.")
    execution: int = Field(description="Which of the run's executions: the same number in all its repetitions.")
    cursors: list[tuple[int, int]] = Field(
        description="The first and the last cursor of each unbroken row of superseded events, in order."
    )


@built_on_first_use
class InternalDispatchEvent(Event, defer_build=True):
    """A report from inside the engine, streamed only to those who ask for internal events."""


@built_on_first_use
class WorkflowIdleEvent(InternalDispatchEvent, defer_build=True):
    """The run has become idle: only input from outside can move it."""

    waiters: list[dict[str, Any]] = Field(default_factory=list, description="What the run waits for.")
    idle_since: float | None = Field(default=None, description="When the run became idle, in seconds since the epoch.")


@built_on_first_use
class UnhandledEvent(InternalDispatchEvent, defer_build=True):
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


@built_on_first_use
class StepStateChanged(InternalDispatchEvent, defer_build=True):
    """An execution of a step was queued, started or ended."""

    name: str = Field(description="Name of the step.")
    step_state: StepState = Field(description="Its new state.")
    worker_id: str = Field(description="The worker it runs on.")
    input_event_name: str = Field(description="Class of the event it takes.")
    output_event_name: str | None = Field(default=None, description="Class of the event it returned.")


for _engine_event in (
    StepFailedEvent, CollectionReleaseEvent, WorkflowTimedOutEvent, WorkflowCancelledEvent, WorkflowFailedEvent,
    IdleReleasedEvent, InternalDispatchEvent, WorkflowIdleEvent, UnhandledEvent, StepStateChanged,
):  # fmt: skip
    framework_name(_engine_event, f"workflows.events.{_engine_event.__name__}")
framework_name(StreamSupersededEvent, "loom.StreamSupersededEvent")
framework_name(RunCancelledEvent, "loom.RunCancelledEvent")

# Flows had it first, and under this name it is stored.
framework_name(AnswerRefusedEvent, "loom.flows.AnswerRefusedEvent")

"""The codec of stored runs: what authors write becomes text of the workflow's serializer.

Each reading makes new objects, so that nothing is shared between steps. The store of a run is a text for each top-level
key of its state. Such a text says by its first character how to read it: `=` in the JSON form that the field's type
gives it, `:` by the serializer alone, which brings back what it wrote whatever the class has become.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python
from pydantic_core.core_schema import ErrorType

from loom.core.records import (
    CHECKED,
    START_EVENT,
    UNCHECKED,
    Cancellation,
    EventRecord,
    Failure,
    Release,
    StepFailure,
)
from loom.effects.event_codec import MissingTypeError, UnfitEventError, engine_event
from loom.effects.exceptions import asks_to_exit
from loom.steps.errors import described, message_of, well_formed
from loom.steps.events import Event
from loom.steps.registry import UnknownTypeError, kind_of, resolve, resolve_subclass, wire_name
from loom.steps.serializers import TAG_MARK, JsonSerializer, exception_name
from loom.steps.stand_ins import is_stand_in
from loom.steps.state_store import DictState, InMemoryStateStore, StoreEdit, UnserializableKeyWarning
from loom.steps.state_store.edits import apply_to_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from loom.steps.serializers import BaseSerializer


_MAX_FIELDS, _MAX_REASON = 5, 500
"""The most fields, and characters, of the reason why an event does not fit."""
_PLAIN_ERRORS = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error", "union_tag_invalid"}
"""Errors of pydantic whose words do not repeat the value."""


class StoredEventCodec:
    """Events, values and store edits of one workflow's runs as texts, and back. See `EventCodec`."""

    __slots__ = ("_is_json", "_last", "_serializer", "_state")

    def __init__(self, serializer: BaseSerializer, state_type: type[BaseModel] = DictState) -> None:
        self._serializer = serializer
        self._is_json = isinstance(serializer, JsonSerializer)
        self._state = _StoredState(serializer, state_type)
        self._last: tuple[str, dict[str, Any]] = ("", {})
        """The fields that were read last: many waiters may ask about one event."""

    def record(self, event: Event) -> EventRecord:
        """The event as text; `ValueError` with its type and the path of what cannot be stored.

        An event that a body makes of a class counts as checked by it; one of a stand-in for a class does not.
        """
        kind = kind_of(type(event))
        try:
            text = storable(self._serializer.serialize(event))
            return EventRecord(kind, text, UNCHECKED if is_stand_in(type(event)) else CHECKED)
        except ValueError as error:
            raise ValueError(f"The event {kind.name} cannot be stored: {message_of(error)}") from error
        except BaseException as error:
            if not asks_to_exit(error):
                raise
            raise ValueError(f"The event {kind.name} cannot be stored: {described(error)}") from error

    def sent(self, event: Event, *, is_known: bool) -> EventRecord:
        """Record an event from outside: compared with its class if this process works for the run, else unchecked.

        The class of a sender that does not work for the run says nothing: it may be of another version than the run's.
        """
        record = self.record(event)
        if record.checked is None:  # flows compare with schemas, not with classes
            return record
        return self.checked(record) if is_known else record.as_unchecked()

    def event(self, record: EventRecord) -> Event:
        """Read the event of a record's text, or one that the engine describes."""
        body = record.body
        if not isinstance(body, str):
            return engine_event(body, self.event)
        try:
            event: Event = read_text(self._serializer, body)
            # The test by the classes is many times faster than `isinstance`, which runs code of pydantic's.
            if Event not in type(event).__mro__ and not isinstance(event, Event):
                raise ValueError(f"The record of an event {record.kind.name} holds a {type(event).__name__}.")
        except MissingTypeError:
            raise
        except BaseException as error:  # a serializer, or a validator of the author's, may raise anything
            if not isinstance(error, Exception) and not asks_to_exit(error):
                raise
            if record.checked is None and not record.kind.is_a(START_EVENT):
                raise  # an earlier version had stored it, and nothing says whether it had fitted
            raise UnfitEventError(record, misfit(error)) from error
        return event

    def checked(self, record: EventRecord) -> EventRecord:
        """Compare an event with its class, if this process has it; `UnfitEventError` if it does not fit.

        An instance may not fit either: `model_construct` and assignments validate nothing.
        """
        try:
            self.event(record)
        except MissingTypeError:
            return record.as_unchecked()
        return record.as_checked()

    def value(self, value: Any) -> str:
        """A value as text; `ValueError` with the path of what cannot be stored."""
        return storable(self._serializer.serialize(value))

    def read_value(self, kept: str) -> Any:
        """Read the value of a text."""
        return read_text(self._serializer, kept)

    def failure(self, error: BaseException) -> Failure:
        """A failure: the name of its type and its message."""
        return Failure(exception_name(type(error)), well_formed(message_of(error)))

    def text(self, text: str) -> str:
        """A name or message without lone surrogates."""
        return well_formed(text)

    # -- requirements -------------------------------------------------------------------------------------------------

    def field(self, record: EventRecord, name: str) -> Any:
        """A field of an event in its JSON form, read without the event's class; None if it has none.

        Only what was stored is seen, no properties of the class. A foreign serializer's text must be read as a whole.
        """
        body = record.body
        if isinstance(body, StepFailure | Release | Cancellation):
            return _engine_fields(body).get(name)
        if not self._is_json:
            return _comparable(to_jsonable_python(getattr(self.event(record), name, None)))
        text, fields = self._last
        if text is not body:
            fields = _fields_of(self._serializer.read_json(body))  # type: ignore[attr-defined]  # it is of JSON
            self._last = (body, fields)
        return _comparable(fields.get(name))

    def fields(self, record: EventRecord) -> dict[str, Any]:
        """All fields of an event in its JSON form, read without the event's class."""
        fields = _fields_of(json.loads(record.body))
        fields.pop("_data", None)
        return fields

    def requirement(self, event_type: type[Event], name: str, value: Any) -> Any:
        """A wanted value in the form that `field` answers in: as it stands in an event that has it."""
        serializer = self._serializer
        if not isinstance(serializer, JsonSerializer):
            return _comparable(to_jsonable_python(value))
        with warnings.catch_warnings():
            # The event lacks all other fields, and the value may be of another type than its field.
            warnings.simplefilter("ignore")
            try:
                fields = _fields_of(serializer.serialize_value(event_type.model_construct(**{name: value})))
            except (ValueError, TypeError, AttributeError):
                fields = {}
        try:
            return _comparable(fields[name] if name in fields else serializer.serialize_value(value))
        except ValueError as error:
            raise ValueError(f"The requirement {name} of {event_type.__name__} cannot be stored: {error}") from error

    # -- the store ----------------------------------------------------------------------------------------------------

    def store_edit(self, edit: StoreEdit) -> tuple[dict[str, Any], tuple[str, ...], str]:
        """An edit of the store: texts by key, removed keys, and the name of the new type if it has changed."""
        return self._state.edit(edit)

    def store_values(self, staged: InMemoryStateStore[Any]) -> tuple[dict[str, str], str]:
        """A whole store: texts by key, and the name of its type if it is not the workflow's."""
        return self._state.values(staged)

    def store_from(self, values: Mapping[str, str], store_type: str = "", version: int = 0) -> InMemoryStateStore[Any]:
        """Read a store from its texts by key."""
        return self._state.store(values, store_type, version)


def misfit(error: BaseException) -> str:
    """Tell why an event does not fit its class, in a line: which fields, and what is wrong. Values are left out, since
    what is told of an event is shown to more people than the event itself.
    """
    if not isinstance(error, ValidationError):
        return f"it cannot be read ({type(error).__name__})"
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(map(str, part['loc'])) or 'it'}: {_without_value(part)}" for part in problems[:_MAX_FIELDS]]
    if len(problems) > _MAX_FIELDS:
        told.append(f"and {len(problems) - _MAX_FIELDS} more")
    return well_formed(" ".join("; ".join(told).split()))[:_MAX_REASON]


def _without_value(problem: ErrorDetails) -> str:
    """Tell what pydantic says of a field. The words of a validator of the author's may repeat the value."""
    kind = problem["type"]
    return problem["msg"] if kind in _PLAIN_ERRORS else "The value is refused"


def _fields_of(data: Any) -> dict[str, Any]:
    """The fields of an event in the serializer's JSON form, declared and undeclared."""
    value = data.get("value") if isinstance(data, dict) else None
    if not isinstance(value, dict):
        return {}
    extras = value.get("_data") or {}
    if TAG_MARK in extras:  # not all of its keys are names
        extras = {name: item for name, item in extras["value"] if isinstance(name, str)}
    return {**extras, **value}


def _engine_fields(body: StepFailure | Release | Cancellation) -> dict[str, Any]:
    """The plain fields of the events that the engine makes."""
    if isinstance(body, StepFailure):
        return {"step_name": body.step, "attempts": body.attempts, "elapsed_seconds": body.elapsed_s}
    if isinstance(body, Cancellation):
        return {"reason": body.reason, "steps": list(body.steps)}
    return {"stream_id": f"stream-{body.stream}", "binding_id": body.step}


def _comparable(value: Any) -> Any:
    """A JSON value that stays equal to itself when it is stored: requirements are part of the run's state."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {TAG_MARK: "float", "value": repr(value)}
    if isinstance(value, dict):
        return {well_formed(key): _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return value


# --- texts of the serializer ------------------------------------------------------------------------------------------

_DIGITS = 4300
_RUN = re.compile(r"[0-9]*+", re.ASCII)
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def read_text(serializer: BaseSerializer, text: str) -> Any:
    """Read a text; `MissingTypeError` if this process lacks a class that it names."""
    try:
        return serializer.deserialize(text)
    except UnknownTypeError as error:
        raise MissingTypeError(error.name) from error
    except ValidationError as error:
        missing = _missing_in(error)
        if missing is None:
            raise
        raise MissingTypeError(missing) from error


def storable(text: str) -> str:
    """Give back the text of a serializer, which must have a form in UTF-8 and no number too long to be shown.

    A field of a type writes any integer, but Python prints none of more than 4,300 digits: every list that the run
    stands in would fail.
    """
    if not text.isascii() and well_formed(text) != text:
        raise ValueError("the serializer's text has lone surrogates in it, which cannot be stored.")
    # Long digits may also stand in a string, where they are as good as any text.
    if _has_long_number(text) and _has_long_number(_STRINGS.sub("", text)):
        raise ValueError("it holds an integer of 4,300 digits or more, which cannot be shown.")
    return text


def _has_long_number(text: str) -> bool:
    """Look for 4,300 digits in a row. One in 4,300 places is looked at: so long a row covers one of them.

    A search through all of the text would take half a second for 10 MB, in which no other thread moves.
    """
    for position in range(_DIGITS - 1, len(text), _DIGITS):
        if text[position] in "0123456789":
            before = text[position - _DIGITS + 1 : position][::-1]
            if _length_of_run(before, 0) + _length_of_run(text, position) >= _DIGITS:
                return True
    return False


def _length_of_run(text: str, start: int) -> int:
    found = _RUN.match(text, start)
    return 0 if found is None else found.end() - start


def _missing_in(error: ValidationError) -> str | None:
    """The name of a class that some part of a model needs, if that is why it cannot be read."""
    for detail in error.errors(include_url=False, include_input=False):
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, UnknownTypeError):
            return cause.name
    return None


# --- the store of a run -----------------------------------------------------------------------------------------------

_TYPED, _PLAIN = "=", ":"
# Agents keep a live object here and set it anew after a load; see the state store.
_MAY_BE_LEFT_OUT = frozenset({"memory"})


class _StoredState:
    """States of one declared type, or of types that a run has put in its place, as texts and back."""

    __slots__ = ("_serializer", "_state_type")

    def __init__(self, serializer: BaseSerializer, state_type: type[BaseModel]) -> None:
        self._serializer = serializer
        self._state_type = state_type

    def edit(self, edit: StoreEdit) -> tuple[dict[str, Any], tuple[str, ...], str]:
        """Texts by key, removed keys, and the name of the new type if the edit has changed it."""
        changed, left_out = self._write({k: v for k, v in edit.changed.items() if k not in edit.transient})
        name = wire_name(edit.state_type) if edit.state_type is not None else ""
        return changed, (*edit.removed, *left_out), name

    def values(self, store: InMemoryStateStore[Any]) -> tuple[dict[str, str], str]:
        """Texts of a whole store by key, and the name of its type if it is not the declared one."""
        cls = store._current_type()
        kept = {key for key, field in cls.model_fields.items() if field.exclude is not True}
        values = {k: v for k, v in store.values().items() if k in kept or k not in cls.model_fields}
        written, _ = self._write(values)
        return written, "" if cls is self._state_type else wire_name(cls)

    def store(self, values: Mapping[str, str], store_type: str, version: int) -> InMemoryStateStore[Any]:
        """Read a store from its texts by key."""
        cls = self._class_of(store_type)
        if not values:
            return InMemoryStateStore(state_type=cls, version=version)
        typed: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for key, text in sorted(values.items()):
            if text.startswith(_TYPED):
                typed[key] = json.loads(text[1:])
            else:
                plain[key] = read_text(self._serializer, text[1:])
        state = self._typed_state(cls, typed) if typed else None
        state = apply_to_state(state, StoreEdit(0, plain), cls)
        return InMemoryStateStore(state, version=version)

    def _class_of(self, name: str) -> type[BaseModel]:
        if not name or name == wire_name(self._state_type):
            return self._state_type
        try:
            if isinstance(self._serializer, JsonSerializer):
                found = self._serializer.resolve_class(name)
            else:
                found = resolve_subclass(name, BaseModel) or resolve(name)
        except UnknownTypeError as error:
            raise MissingTypeError(name) from error
        if not issubclass(found, BaseModel):
            raise ValueError(f"The store's type {name} is no model.")
        return found

    def _write(self, values: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Texts by key, and the keys that have none and may do without."""
        written: dict[str, str] = {}
        left_out: list[str] = []
        for key, value in values.items():
            try:
                if well_formed(key) != key:
                    raise ValueError("the key has lone surrogates in it.")
                written[key] = self._text(key, value)
            except Exception as error:
                if key not in _MAY_BE_LEFT_OUT:
                    raise ValueError(f"The state value for key {key!r} cannot be stored: {error}") from error
                message = f"The stored run leaves out the state value for key {key}."
                warnings.warn(message, UnserializableKeyWarning, stacklevel=2)
                left_out.append(key)
        return written, left_out

    def _text(self, key: str, value: Any) -> str:
        if key in self._state_type.model_fields:
            try:
                return _TYPED + storable(json.dumps(_dumped_field(self._state_type, key, value)))
            except (PydanticSerializationError, LookupError):
                pass  # the value is not what its type says, so that its type would not bring it back
        return _PLAIN + storable(self._serializer.serialize(value))

    def _typed_state(self, cls: type[BaseModel], values: dict[str, Any]) -> BaseModel:
        try:
            with self._serializer.validation_context():
                return cls.model_validate(values, by_alias=False, by_name=True)
        except ValidationError as error:
            missing = _missing_in(error)
            if missing is not None:
                raise MissingTypeError(missing) from error
            # Fields may be assigned without their model's consent. What each type makes of its own field is taken.
            read = {key: self._read_field(cls, key, value) for key, value in values.items()}
            return apply_to_state(None, StoreEdit(0, read), cls)

    def _read_field(self, cls: type[BaseModel], key: str, value: Any) -> Any:
        field = cls.model_fields.get(key)
        if field is None:
            return value
        hint: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        try:
            with self._serializer.validation_context():
                return TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"The state value for key {key!r} cannot be read: {error}") from error


def _dumped_field(cls: type[BaseModel], name: str, value: Any) -> Any:
    """The JSON form that a model gives a field; an error if the value is not of the field's type."""
    draft = cls.__new__(cls)
    object.__setattr__(draft, "__dict__", {name: value})
    object.__setattr__(draft, "__pydantic_fields_set__", {name})
    object.__setattr__(draft, "__pydantic_extra__", None)
    object.__setattr__(draft, "__pydantic_private__", None)
    return draft.model_dump(mode="json", include={name}, by_alias=False, warnings="error")[name]

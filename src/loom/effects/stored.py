"""The conversion of stored runs: what authors write becomes text of the workflow's serializer.

Each reading makes new objects, so that nothing is shared between steps. May import loom.steps and loom.core.
"""

from __future__ import annotations

import json
import math
import warnings
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import ErrorType

from loom.core.records import (
    CHECKED,
    START_EVENT,
    UNCHECKED,
    EventRecord,
    Failure,
    Release,
    StepFailure,
)
from loom.effects.convert import MissingTypeError, UnfitEventError, engine_event
from loom.effects.exits import asks_to_exit
from loom.effects.stored_state import StoredState, read_text, storable
from loom.steps.event_types import exception_name
from loom.steps.events import Event
from loom.steps.jsonable import TAG_MARK
from loom.steps.registry import kind_of
from loom.steps.serializers import JsonSerializer
from loom.steps.stand_ins import is_stand_in
from loom.steps.state_store import DictState
from loom.steps.texts import described, message_of, well_formed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import InMemoryStateStore, StoreEdit

__all__ = ["MissingTypeError", "StoredBodies", "UnfitEventError"]

_MAX_FIELDS, _MAX_REASON = 5, 500
"""How much is told of why an event does not fit: fields, and characters."""
_PLAIN_ERRORS = frozenset(get_args(ErrorType)) - {"value_error", "assertion_error", "union_tag_invalid"}
"""Errors of pydantic whose words do not repeat the value."""


class StoredBodies:
    """Events, values and store edits of one workflow's runs as texts, and back. See `Conversion`."""

    __slots__ = ("_last", "_serializer", "_state")

    def __init__(self, serializer: BaseSerializer, state_type: type[BaseModel] = DictState) -> None:
        self._serializer = serializer
        self._state = StoredState(serializer, state_type)
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
        """The event that a record's text stands for, or one that the engine describes."""
        body = record.body
        if not isinstance(body, str):
            return engine_event(body, self.event)
        try:
            event = read_text(self._serializer, body)
            if not isinstance(event, Event):
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
        """The value that a text stands for."""
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
        if isinstance(body, StepFailure | Release):
            return _engine_fields(body).get(name)
        if not isinstance(self._serializer, JsonSerializer):
            return _comparable(to_jsonable_python(getattr(self.event(record), name, None)))
        text, fields = self._last
        if text is not body:
            fields = _fields_of(self._serializer.read_json(body))
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
        """The store that texts by key stand for."""
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


def _engine_fields(body: StepFailure | Release) -> dict[str, Any]:
    """The plain fields of the events that the engine makes."""
    if isinstance(body, StepFailure):
        return {"step_name": body.step, "attempts": body.attempts, "elapsed_seconds": body.elapsed_s}
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

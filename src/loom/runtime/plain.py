"""Values of the engine as plain data for programs. What is stored is read without the author's classes."""

from __future__ import annotations

import json
from typing import Any, overload

import msgspec

from loom.api.times import moment
from loom.core.persistent import Fifo, Map
from loom.core.records import STOP_EVENT, EventKind, EventRecord

_MODEL = "__is_pydantic"
_PLAIN_MODEL = {_MODEL, "value", "qualified_name"}
"""What a serializer writes of a model. It writes more if a part of it is not as JSON has it."""
_TIMES = frozenset({"at", "since", "deadline", "due", "idle_since", "timestamp", "first_at"})


@overload
def iso(at: float) -> str: ...
@overload
def iso(at: None) -> None: ...
@overload
def iso(at: float | None) -> str | None: ...
def iso(at: float | None) -> str | None:
    """A time of the engine for programs."""
    return None if at is None else moment(at).isoformat().replace("+00:00", "Z")


def fields_of(record: EventRecord) -> Any:
    """The fields of an event as they are stored: a dict, or the text of a serializer of the workflow's own."""
    body = record.body
    return stored_value(body) if isinstance(body, str) else plain(body)


def plain_stop(record: EventRecord) -> dict[str, Any] | None:
    """The fields of a stop event that has nothing but plain data in it; None if it takes classes to read it.

    Most runs end so, and classes of events take long to import.
    """
    if record.kind.name != STOP_EVENT or not isinstance(record.body, str):
        return None
    try:
        stored = json.loads(record.body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or stored.keys() != _PLAIN_MODEL or stored["qualified_name"] != STOP_EVENT:
        return None
    fields = stored["value"]
    return fields if isinstance(fields, dict) and fields.keys() <= {"result"} else None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def stored_value(text: str) -> Any:
    """What a serializer has written, without its marks for models; its text if that is no JSON."""
    try:
        # Python's words for numbers that JSON lacks would spoil what is printed.
        stored = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    if not isinstance(stored, dict) or not stored.get(_MODEL) or not isinstance(stored.get("value"), dict):
        return stored
    fields = dict(stored["value"])
    extras = fields.pop("_data", None)
    return {**fields, **extras} if isinstance(extras, dict) else fields


def plain(value: Any) -> Any:
    """A value of the engine as JSON has it: events with their type and fields, times as dates."""
    match value:
        case EventRecord():
            return {"type": value.kind.name, "fields": fields_of(value)}
        case EventKind():
            return value.name
        case Fifo() | list() | tuple():
            return [plain(item) for item in value]
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return {name: _named(name, item) for name, item in fields.items()}
        case Map() | dict():
            return {str(key): plain(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _named(name: str, value: Any) -> Any:
    return iso(value) if name in _TIMES and isinstance(value, float) else plain(value)

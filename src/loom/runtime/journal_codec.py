"""Ticks as text and back: the records of a journal.

A record is JSON with a version. Events in it are texts of the workflow's serializer, and so are the values of the
store; classes are found by the serializer, which looks them up and never imports. An exception is its name and message.
May import loom.core, loom.effects and loom.steps.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from pydantic import TypeAdapter

from loom.core.records import EventKind, EventRecord
from loom.core.ticks import (
    TickAddEvent,
    TickAwaitEvent,
    TickChildEnded,
    TickEditStore,
    TickPublishEvent,
    TickRecordResult,
    TickRetryRun,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    WorkflowTick,
)
from loom.effects.convert import event_of, record_of
from loom.steps.events import Event
from loom.steps.state_store import UnserializableKeyWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

    from loom.steps.serializers import BaseSerializer

JOURNAL_VERSION = 1

# Agents keep a live object here and set it anew after a load; see the state store.
_MAY_BE_LEFT_OUT = frozenset({"memory"})


class _Entry(msgspec.Struct):
    """What a record's text holds."""

    v: int
    tick: WorkflowTick


class JournalCodec:
    """Writes and reads the ticks of one workflow's runs."""

    def __init__(self, serializer: BaseSerializer, state_type: type[BaseModel]) -> None:
        self._serializer = serializer
        self._state_type = state_type
        self._read = msgspec.json.Decoder(_Entry)

    def encode(self, tick: WorkflowTick) -> str:
        """A tick as text; `ValueError` if something in it has no text form."""
        written = _mapped(tick, self._write_record, self._serializer.serialize, self._write_store)
        if isinstance(written, TickStepResult) and written.failure is not None:
            written = replace(written, failure=replace(written.failure, body=None))
        return msgspec.json.encode(_Entry(JOURNAL_VERSION, written)).decode()

    def decode(self, data: str) -> WorkflowTick:
        """The tick that a text stands for; `ValueError` if it cannot be read."""
        try:
            entry = self._read.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"This is not a journal record: {error}") from error
        if entry.v != JOURNAL_VERSION:
            raise ValueError(f"The journal record has version {entry.v}; this code reads version {JOURNAL_VERSION}.")
        return _mapped(entry.tick, self._read_record, self._serializer.deserialize, self._read_store)

    def _write_record(self, record: EventRecord) -> EventRecord:
        return EventRecord(EventKind(record.kind.name), self._serializer.serialize(event_of(record)), record.shared)

    def _read_record(self, record: EventRecord) -> EventRecord:
        event = self._serializer.deserialize(record.body)
        if not isinstance(event, Event):
            raise ValueError(f"The journal names an event {record.kind.name}, but holds a {type(event).__name__}.")
        return replace(record_of(event), shared=record.shared)

    def _write_store(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of the store. Declared fields are written as their types say, live handles not at all."""
        written: dict[str, Any] = {}
        for key, value in values.items():
            field = self._state_type.model_fields.get(key)
            if field is not None and field.exclude:
                continue
            try:
                written[key] = self._write_value(field, value)
            except Exception as error:
                if key not in _MAY_BE_LEFT_OUT:
                    raise ValueError(f"Failed to serialize state value for key {key}: {error}") from error
                warnings.warn(f"The journal leaves out the state value for key {key}.", UnserializableKeyWarning, 2)
        return written

    def _write_value(self, field: Any, value: Any) -> str:
        if field is None:
            return self._serializer.serialize(value)
        return json.dumps(TypeAdapter(field.annotation).dump_python(value, mode="json"))

    def _read_store(self, values: dict[str, Any]) -> dict[str, Any]:
        fields = self._state_type.model_fields
        return {key: self._read_value(fields.get(key), text) for key, text in values.items()}

    def _read_value(self, field: Any, text: str) -> Any:
        if field is None:
            return self._serializer.deserialize(text)
        return TypeAdapter(field.annotation).validate_python(json.loads(text))


def _mapped(
    tick: WorkflowTick,
    record: Callable[[EventRecord], EventRecord],
    value: Callable[[Any], Any],
    store: Callable[[dict[str, Any]], dict[str, Any]],
) -> WorkflowTick:
    """The tick with everything changed in it that the author's code put there."""

    def optional(found: EventRecord | None) -> EventRecord | None:
        return record(found) if found is not None else None

    match tick:
        case TickStartRun():
            return replace(tick, event=optional(tick.event), store=store(tick.store))
        case TickAddEvent() | TickPublishEvent():
            return replace(tick, event=record(tick.event))
        case TickStepResult():
            collects = tuple(replace(call, event=record(call.event)) for call in tick.collects)
            return replace(tick, returned=tuple(map(record, tick.returned)), collects=collects)
        case TickAwaitEvent():
            requirements = tuple((name, value(wanted)) for name, wanted in tick.requirements)
            return replace(tick, requirements=requirements, waiter_event=optional(tick.waiter_event))
        case TickEditStore():
            return replace(tick, changed=store(tick.changed))
        case TickChildEnded() | TickRetryRun():
            return replace(tick, event=optional(tick.event))
        case _:
            return _mapped_rarely(tick, value)


def _mapped_rarely(tick: WorkflowTick, value: Callable[[Any], Any]) -> WorkflowTick:
    match tick:
        case TickRecordResult():
            return replace(tick, value=value(tick.value))
        case TickStartChild():
            # A live workflow has no text form; a run that is restored starts its child anew.
            return replace(tick, start=None)
        case _:
            return tick

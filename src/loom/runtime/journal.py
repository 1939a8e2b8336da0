"""Journals of runs in memory: ticks as text and back, and the state that a snapshot and its journal lead to.

A record is JSON with a version. Events and values of the store in it are texts of the workflow's serializer. The
serializer looks classes up and never imports. An exception is its name and message.

A context dict gives executions and timers new numbers when it is loaded, while the ticks after it still use the old
ones. Numbers that were given after the snapshot have all moved by the same distance. Older executions are found by
their work item, and timers by their due time.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from pydantic import TypeAdapter

from loom.core.persistent import EMPTY_FIFO
from loom.core.records import EventKind, EventRecord
from loom.core.reducer import advance
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickChildEnded,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickPublishEvent,
    TickRecordResult,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickSleep,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
    WorkflowTick,
)
from loom.effects.event_codec import event_of, read_field, record_of
from loom.steps.events import Event
from loom.steps.state_store import UnserializableKeyWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import BaseModel

    from loom.core.planner import Planner
    from loom.core.state import BrokerState
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
        """Read a tick from its text; `ValueError` if it cannot be read."""
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


_NOBODY = "restoring"


def catch_up(state: BrokerState, ticks: Iterable[WorkflowTick], planner: Planner, saved_sequence: int) -> BrokerState:
    """The state after the ticks, without an owner. `saved_sequence` is the last number that the snapshot knew."""
    numbers = _Numbers(0, 0)
    for position, tick in enumerate(ticks):
        if position == 0 and state.is_running:
            state = replace(state, run_id=_NOBODY)
            if not isinstance(tick, TickResume):
                state = _revived(state, planner)
                numbers = _Numbers(saved_sequence, state.sequence - saved_sequence)
        if isinstance(tick, TickResume):
            numbers = _Numbers(0, 0)  # the process that recovered the run used the numbers of this very state
        state, _ = advance(state, numbers.translate(state, tick), planner, read_field)
    outcome = state.outcome
    if outcome is not None and outcome.status in ("cancelled", "parked"):
        state = replace(state, outcome=None, is_running=True)
    return replace(state, run_id="")


def _revived(state: BrokerState, planner: Planner) -> BrokerState:
    """A loaded state as the process had it that wrote the snapshot: bodies under way, waits in their bodies."""
    ready = {step: worker.ready for step, worker in state.workers.items()}
    for step, worker in state.workers.items():
        # Bodies that were to go on had no worker yet: the ones that were executing come first.
        state = replace(state, workers=state.workers.set(step, replace(worker, ready=EMPTY_FIFO)))
    ticks = state.ticks
    state, _ = advance(state, TickResume(at=state.at, more=True), planner, read_field)
    for step, worker in state.workers.items():
        suspended = worker.suspended
        for item, execution in worker.suspended.items():
            suspended = suspended.set(item, replace(execution, live=True))
        alive = replace(worker, suspended=suspended, ready=ready.get(step, EMPTY_FIFO))
        state = replace(state, workers=state.workers.set(step, alive))
    return replace(state, ticks=ticks)


class _Numbers:
    """What the numbers in the ticks are called in the state."""

    __slots__ = ("_offset", "_saved")

    def __init__(self, saved: int, offset: int) -> None:
        self._saved = saved
        self._offset = offset

    def translate(self, state: BrokerState, tick: WorkflowTick) -> WorkflowTick:
        """The tick in the state's numbers."""
        if not self._saved:
            return tick
        match tick:
            case TickStepResult() | TickEndWait() | TickLeaveStep() | TickRefuseEvent():
                return replace(tick, seq=self._execution(state, tick.step, tick.item, tick.seq))
            case TickAwaitEvent() | TickSleep() | TickRecordResult() | TickStartChild():
                return replace(tick, source=self._source(state, tick.source))
            case TickAddEvent() | TickPublishEvent() | TickEditStore():
                return replace(tick, source=self._source(state, tick.source)) if tick.source is not None else tick
            case TickTimerFired():
                return replace(tick, timer=self._timer(state, tick))
            case TickSkip(timer=int(timer)) if timer > self._saved:
                return replace(tick, timer=timer + self._offset)
            case TickTimeout():
                return replace(tick, timer=state.timeout_timer or tick.timer)
            case _:
                return tick

    def _source(self, state: BrokerState, source: Source) -> Source:
        return replace(source, seq=self._execution(state, source.step, source.item, source.seq))

    def _execution(self, state: BrokerState, step: str, item: int, seq: int) -> int:
        if seq > self._saved:
            return seq + self._offset
        worker = state.workers.get(step)
        execution = worker.execution(item) if worker is not None else None
        return execution.seq if execution is not None else seq

    def _timer(self, state: BrokerState, tick: TickTimerFired) -> int:
        if tick.timer > self._saved:
            return tick.timer + self._offset
        due = [
            (timer.due, number)
            for number, timer in state.timers.items()
            if timer.due <= tick.at and timer.purpose != "timeout" and number <= self._saved + self._offset
        ]
        return min(due)[1] if due else tick.timer

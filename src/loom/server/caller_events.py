"""Events as callers send and get them: envelopes, the way from a type name to an event, and who may send which.

A type name from a client resolves among classes that are loaded, never by import. With the scope `event` a caller sends
answers; an administrator sends the rest, which is recorded; nobody sends the engine's own events. Without keys a caller
on this machine is an administrator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from loom.core.records import START_EVENT
from loom.effects.actions.events import CallbackEvent
from loom.effects.flow_events import FlowEvent
from loom.effects.flow_result import FlowResult
from loom.flows.diagnostics import did_you_mean
from loom.runtime.durable.external import takes, way_in
from loom.runtime.flow import Flow
from loom.server.problems import ApiProblem
from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from loom.steps.graph import is_bound, is_own
from loom.steps.registry import (
    AmbiguousTypeError,
    UnknownTypeError,
    framework_type,
    module_of,
    names_of,
    resolve,
    wire_name,
)
from loom.store.errors import RunFinished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loom.api.compatible import Envelope
    from loom.core.records import EventKind
    from loom.core.state import BrokerState
    from loom.server.call import Call
    from loom.steps.workflow import Workflow
    from loom.store.records import RunRow


_E = TypeVar("_E", bound=Event)

_FRAMEWORK: tuple[type[Event], ...] = (StartEvent, StopEvent, InputRequiredEvent, HumanResponseEvent)
_EXTRAS = "_data"
_SHOWN = 100
"""How many characters of an unknown name a refusal repeats."""


class BadEvent(ValueError):
    """What a client sent is no event that the workflow takes; the text says why."""


class BadValue(BadEvent):
    """The type of the event is known, and this is no value of it."""


def envelope(event: Event, *, qualified_name: bool = True) -> Envelope:
    """An event for clients. `ValueError` if its values have no JSON form."""
    cls = type(event)
    above = [base.__name__ for base in cls.__mro__[1:] if issubclass(base, Event) and base is not Event]
    return {
        "value": fields_of(event),
        "type": cls.__name__,
        "types": above or None,
        "qualified_name": wire_name(cls) if qualified_name else None,
    }


def fields_of(event: Event) -> dict[str, Any]:
    """The fields of an event as JSON has them; the result of a flow are its outputs."""
    if isinstance(event, StopEvent) and isinstance(event.result, FlowResult):
        return {"result": event.result.outputs}
    return event.model_dump(mode="json")


def result_value(event: StopEvent) -> Any:
    """What a run gave, without the event around it: the result of a plain `StopEvent`, else the event's fields."""
    fields = fields_of(event)
    return fields.get("result") if type(event) is StopEvent else fields


def event_from(
    data: Any,
    workflow: Workflow | None,
    others: Iterable[str] | Callable[[str], Iterable[str]] = (),
    *,
    flow: bool = False,
) -> Event:
    """The event that a client sends into a run: `{type, value}` or `{qualified_name, data}`.

    Known are the workflow's own types, the framework's, and `others` by their full names, for a short name or
    for all. A flow takes any name.
    """
    if not _is_envelope(data):
        raise BadEvent('An event is an object {"type": "…", "value": {…}}.')
    name, value = _type_name(data), data["value"] if "value" in data else data["data"]
    known = (*(workflow.events if workflow is not None else ()), *_FRAMEWORK, *((CallbackEvent,) if flow else ()))
    awaited = tuple(others(name) if callable(others) else others)
    cls = _find(name, known, awaited)
    if cls is not None and (cls in (*_FRAMEWORK, CallbackEvent) or not flow):
        return _made(cls, value)
    if flow and name in names_of(FlowEvent):
        return _made(FlowEvent, value)
    if flow:
        # A name of the engine's stays whole, so that it is known as such and refused.
        return FlowEvent(name=_short(name) if framework_type(name) is None else name, data=value)
    names = sorted({cls.__name__ for cls in known} | {_short(full) for full in awaited} - {_short(name)})
    hint = did_you_mean(_short(name)[:_SHOWN], names)
    raise BadEvent(f"The event type {name[:_SHOWN]!r} is not known here.{hint} Known are {', '.join(names)}.")


def start_from(data: Any, workflow: Workflow) -> Any:
    """What a run begins with: a start event, or the trigger's body of a flow. Plain fields will do as well."""
    plain = _plain_start(data, workflow)
    if isinstance(workflow, Flow):
        return plain
    if plain is not None and not isinstance(plain, dict):
        raise BadEvent(f"The start event is an object, not {_json_kind(plain)}.")
    return _made(workflow.start_event_class, plain if plain is not None else {})


def _plain_start(data: Any, workflow: Workflow) -> Any:
    """The fields of a start event, out of their envelope if they are in one."""
    if _is_envelope(data):
        name = _type_name(data)
        expected = workflow.start_event_class
        if name not in {*names_of(expected), *names_of(StartEvent), expected.__name__, StartEvent.__name__}:
            raise BadEvent(f"The start event is a {expected.__name__}, not {name!r}.")
        data = data["value"] if "value" in data else data["data"]
    if isinstance(workflow, Flow) and isinstance(data, dict) and set(data) == {_EXTRAS}:
        return data[_EXTRAS]  # a start event without declared fields, written out
    return data


def _is_envelope(data: Any) -> bool:
    return isinstance(data, dict) and ("value" in data or "data" in data) and bool(_type_name(data))


def _type_name(data: dict[str, Any]) -> str:
    name = data.get("type") or data.get("qualified_name")
    return name if isinstance(name, str) else ""


def _find(name: str, known: Iterable[type[Event]], others: Iterable[str]) -> type[Event] | None:
    """A type by its short name or its full one."""
    for cls in known:
        if name == cls.__name__ or name in names_of(cls):
            return cls
    # What a step awaits is declared nowhere. Its class is there, for the step has it.
    awaited = [full for full in others if name in (full, _short(full))]
    for full in sorted(awaited, key=len, reverse=True):
        try:
            found = resolve(full)
        except (UnknownTypeError, AmbiguousTypeError):
            continue
        if issubclass(found, Event):
            return found
    return None


def _made(cls: type[_E], value: Any) -> _E:
    if not isinstance(value, dict):
        raise BadValue(f"The value of {cls.__name__} is an object, not {_json_kind(value)}.")
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, part['loc'])) or 'it'}: {part['msg']}" for part in error.errors())
        raise BadValue(f"This is no {cls.__name__}: {found}.") from error
    except (ValueError, TypeError) as error:
        raise BadValue(f"This is no {cls.__name__}: {error}") from error


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _json_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def event_names(workflow: Workflow | None, row: RunRow, name: str) -> tuple[str, ...]:
    """The full names that a type may have which no step of the workflow declares.

    A step may await it now, later, or have done so before: so it is also looked for beside the workflow's class.
    """
    beside = (f"{module_of(type(workflow))}.{name}",) if workflow is not None and "." not in name else (name,)
    return (*row.head.waiting_for, *beside)


# -- who may send which -----------------------------------------------------------------------------------------------


_OVER = ("completed", "cancelled")
"""Runs that take nothing any more, from any caller: they say so, or know the event again."""


async def check_sent(
    call: Call,
    row: RunRow,
    event: Event,
    *,
    step: str | None = None,
    waiter_id: str | None = None,
    event_id: str | None = None,
) -> str | None:
    """Refuse an event that the caller may not send into this run now. One that the run has had is let through.

    Returns the waiter that it is to be sent to; None: any step or waiter that takes it.
    """
    record = call.runtime.codec_of(row).record(event)
    kind = record.kind
    _refuse_own(call, kind)
    way = await way_in(call.runtime, row, record, step, waiter_id)
    if call.principal.has("admin"):
        call.forced = kind.name if way is None or way.waiter_id != waiter_id else None
        return waiter_id
    if way is not None:
        return way.waiter_id
    if row.head.status in _OVER or (event_id is not None and await call.runtime.has_event(row.run_id, event_id)):
        return waiter_id
    if row.head.status != "running":  # it may be retried before the event is there
        raise RunFinished(row.run_id, row.head.status)
    call.forced = kind.name
    raise ApiProblem("forbidden", _refusal(row, kind, step))


def check_better(call: Call, row: RunRow, event: Event, state: BrokerState) -> None:
    """Refuse an event in place of the one that failed a run, unless it is an answer or what the run began with."""
    kind = call.runtime.codec_of(row).record(event).kind
    _refuse_own(call, kind)
    code, item, outcome = call.runtime.codes.get(row.workflow), state.failed_item(), state.outcome
    abandoned = outcome.abandoned if outcome is not None else None
    answers = abandoned.answers_of(item.id).values() if abandoned is not None and item is not None else ()
    was_awaited = not is_bound(kind) and any(answer.kind.name == kind.name for answer in answers)
    if kind.is_a(START_EVENT) or was_awaited or (code is not None and takes(code, kind)):
        return
    call.forced = kind.name
    if not call.principal.has("admin"):
        raise ApiProblem("forbidden", _refusal(row, kind, item.step if item is not None else None))


def _refuse_own(call: Call, kind: EventKind) -> None:
    if is_own(kind):
        call.forced = kind.name
        raise ApiProblem("forbidden", f"{_label(kind)} is an event of the engine: nobody sends it from outside.")


def _refusal(row: RunRow, kind: EventKind, step: str | None) -> str:
    label = _label(kind)
    if is_bound(kind):
        return f"{label} begins or ends a run: the key lacks the scope 'admin'."
    where = f" at its step {step[:100]!r}" if step is not None else ""
    if row.document is not None:
        how = f"A key with the scope 'event' may send what a waitForEvent of the flow names: add one for {label}"
    else:
        how = f"Declare it in the code of {row.workflow!r} with @step(external_events=[{label}])"
    return (
        f"Run {row.run_id!r} does not wait for {label}{where}, and the type is not declared as one from outside. "
        f"{how}, or use a key with the scope 'admin'."
    )


def _label(kind: EventKind) -> str:
    return (kind.label or kind.name.rpartition(".")[2])[:100]

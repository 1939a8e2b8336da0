"""The streams of runs as readers get them: what ends them, what on them is internal, and entries as JSON.

A reader gets an event even if this process lacks its class: it then has the fields that were stored. Classes of
events take long to import, so `shown` loads them when it first needs them; the command line mostly does without.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.core.records import (
    STOP_EVENT,
    CancelledReport,
    EventRecord,
    FailedReport,
    RefusedReport,
    SupersededReport,
    TimedOutReport,
)
from loom.flows.calls import EVENT, FlowEnd
from loom.runtime.plain import fields_of, iso, plain_stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.api.compatible import Envelope
    from loom.core.records import EventKind, Published
    from loom.effects.stored_codec import StoredEventCodec
    from loom.steps.events import Event

_INTERNAL = "workflows.events.InternalDispatchEvent"


def is_internal(published: Published) -> bool:
    """Whether something on the stream is only for readers that ask for internal events."""
    if isinstance(published, EventRecord):
        return _INTERNAL in published.kind.bases
    # A reader that has shown what a body wrote needs to know that it does not count any more.
    return not is_ending(published) and not isinstance(published, SupersededReport | RefusedReport)


def is_ending(published: Published) -> bool:
    """Whether the stream ends with this."""
    if isinstance(published, EventRecord):
        return published.kind.is_a(STOP_EVENT)
    return isinstance(published, TimedOutReport | CancelledReport | FailedReport)


def is_last(published: Published) -> bool:
    """Whether nothing can follow it on the stream. Something can follow a failure: the run may be retried."""
    if isinstance(published, EventRecord) and isinstance(published.body, FlowEnd):
        return published.body.status in ("Succeeded", "Cancelled")
    return is_ending(published) and not isinstance(published, FailedReport | TimedOutReport)


_OWN = ("workflows.", "loom.")
"""How the names of Loom's own classes begin."""


class Shown(NamedTuple):
    """An event of the stream for readers."""

    type: str
    """The short name of its class."""
    types: list[str]
    """Short names of its event superclasses, nearest first, without `Event`."""
    qualified_name: str
    value: dict[str, Any]

    def is_any(self, names: frozenset[str]) -> bool:
        """Whether the event is of one of these types: short names, of superclasses too, or a qualified name."""
        return self.type in names or self.qualified_name in names or not names.isdisjoint(self.types)


def named(kind: EventKind, value: dict[str, Any]) -> Shown:
    """An event with these fields."""
    types = [base.rpartition(".")[2] for base in kind.bases if base != EVENT]
    return Shown(kind.label or kind.name.rpartition(".")[2], types, kind.name, value)


def stored_fields(record: EventRecord) -> dict[str, Any]:
    """The fields of an event as they are stored; the text itself, where a serializer of its own wrote it."""
    fields = fields_of(record)
    return fields if isinstance(fields, dict) else {"stored": fields}


def plainly_shown(published: Published) -> Shown | None:
    """Show an event of a workflow in Python without its code; None if one of Loom's own classes has to read it."""
    if not isinstance(published, EventRecord):
        return None
    kind = published.kind
    if kind.name == STOP_EVENT:
        fields = plain_stop(published)
        return named(kind, fields) if fields is not None else None
    return None if kind.name.startswith(_OWN) else named(kind, stored_fields(published))


def entry(event: Shown, seq: int, at: float) -> dict[str, Any]:
    """Render an event on the stream of `/v1`: the keys of `loom.api.runs.StreamEvent`."""
    return {"seq": seq, "at": iso(at), "type": event.type, "types": event.types, "value": event.value}


_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Characters at which readers may split lines though JSON lets them stand, and how they are written instead."""


def own_fields(event: Event) -> dict[str, Any]:
    """The fields of an event as JSON has them. Of a flow's end it is what a Run says of it, without its actions."""
    from loom.effects.flow_result import FlowResult
    from loom.steps.events import StopEvent

    if isinstance(event, StopEvent) and isinstance(event.result, FlowResult):
        result = event.result
        return {
            "result": {
                "status": result.status,
                "outputs": result.outputs,
                "response": result.response,
                "error": result.error,
            }
        }
    return event.model_dump(mode="json")


def shown(
    published: Published, codec: StoredEventCodec, fields: Callable[[Event], dict[str, Any]] = own_fields
) -> Shown:
    """An entry of the stream as readers get it."""
    from loom.effects.event_codec import published_event
    from loom.steps.registry import kind_of

    try:
        event = published_event(published, codec)
        value = fields(event)
    except ValueError:
        # The class is missing here, or has changed, or writes what JSON cannot have. Reports never come so far.
        if not isinstance(published, EventRecord):
            raise
        return named(published.kind, stored_fields(published))
    return named(kind_of(type(event)), value)


def envelope(event: Shown, *, qualified_name: bool = True) -> Envelope:
    """An event on the compatible routes: all four keys always."""
    return {
        "value": event.value,
        "type": event.type,
        "types": event.types or None,
        "qualified_name": event.qualified_name if qualified_name else None,
    }


def one_line(value: Envelope | dict[str, Any]) -> bytes:
    """JSON without anything in it that a reader could take for the end of a line."""
    from pydantic_core import to_json

    try:
        line = to_json(value, inf_nan_mode="null")
    except ValueError:
        # Half a character has no form in UTF-8: it stays escaped, as all that is not ASCII is then.
        finite = json.loads(json.dumps(value), parse_constant=lambda _name: None)
        line = json.dumps(finite, separators=(",", ":")).encode()
    for character, written in _LINE_ENDS:
        line = line.replace(character, written)
    return line

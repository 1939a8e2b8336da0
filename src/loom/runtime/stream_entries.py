"""What stands on a run's stream, as readers get it: envelopes, entries of `/v1`, lines of JSON.

A reader gets an event even where its class is not at hand: then its fields are those that were stored. May import
loom.core, loom.effects, loom.steps and loom.runtime.plain.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from loom.core.records import EventRecord
from loom.effects.convert import published_event
from loom.effects.flow_result import FlowResult
from loom.runtime.stream_shown import Shown, entry, named, stored_fields
from loom.steps.events import Event, StopEvent
from loom.steps.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.reports import Published
    from loom.effects.stored import StoredBodies
    from loom.runtime.shapes import Envelope, StreamEntry

__all__ = ["Shown", "entry", "envelope", "one_line", "own_fields", "shown"]

_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""Characters at which readers may split lines though JSON lets them stand, and how they are written instead."""


def own_fields(event: Event) -> dict[str, Any]:
    """The fields of an event as JSON has them. Of a flow's end it is what a Run says of it, without its actions."""
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


def shown(published: Published, convert: StoredBodies, fields: Callable[[Event], dict[str, Any]] = own_fields) -> Shown:
    """An entry of the stream as readers get it."""
    try:
        event = published_event(published, convert)
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


def one_line(value: Envelope | StreamEntry) -> bytes:
    """JSON without anything in it that a reader could take for the end of a line."""
    try:
        line = to_json(value, inf_nan_mode="null")
    except ValueError:
        # Half a character has no form in UTF-8: it stays escaped, as all that is not ASCII is then.
        finite = json.loads(json.dumps(value), parse_constant=lambda _name: None)
        line = json.dumps(finite, separators=(",", ":")).encode()
    for character, written in _LINE_ENDS:
        line = line.replace(character, written)
    return line

"""Events of a stream as readers get them, as far as that takes no class of an event.

May import loom.core, loom.flows.calls and loom.runtime.plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.core.records import STOP_EVENT, EventRecord
from loom.flows.calls import EVENT
from loom.runtime.plain import fields_of, iso, plain_stop

if TYPE_CHECKING:
    from loom.core.records import EventKind
    from loom.core.reports import Published
    from loom.runtime.shapes import StreamEntry

_OWN = ("workflows.", "loom.")
"""How the names of Loom's own classes begin."""


class Shown(NamedTuple):
    """An event of the stream for readers."""

    type: str
    """The short name of its class."""
    types: list[str]
    """Those of its event superclasses, nearest first, without `Event`."""
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
    """An event of a workflow in Python whose code is not at hand; None if one of Loom's own classes has to read it."""
    if not isinstance(published, EventRecord):
        return None
    kind = published.kind
    if kind.name == STOP_EVENT:
        fields = plain_stop(published)
        return named(kind, fields) if fields is not None else None
    return None if kind.name.startswith(_OWN) else named(kind, stored_fields(published))


def entry(event: Shown, seq: int, at: float) -> StreamEntry:
    """An event on the stream of `/v1`."""
    return {"seq": seq, "at": iso(at), "type": event.type, "types": event.types, "value": event.value}

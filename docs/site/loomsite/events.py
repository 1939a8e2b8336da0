"""The reference of events: every event class that Loom itself defines, with its fields and its name on the wire."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

import loom
from loom.steps.events import Event, InternalDispatchEvent
from loom.steps.registry import wire_name
from loomsite.classes import field_table, fields
from loomsite.markdown import code, heading, sentence, slug, table

_HOMES = (
    "loom.steps.events",
    "loom.effects.flow_events",
    "loom.effects.flow_codec",
    "loom.effects.actions.events",
    "loom.runtime.durable.problem_run",
    "loom.runtime.durable.schedules_run",
)
"""The modules that define events."""


def all_events() -> list[type[Event]]:
    """List the classes in the order of their modules."""
    for home in _HOMES:
        import_module(home)
    found = [Event, *dict.fromkeys(_below(Event))]
    return [cls for home in _HOMES for cls in found if cls.__module__ == home]


def _below(cls: type[Event]) -> Iterator[type[Event]]:
    for each in cls.__subclasses__():
        yield each
        yield from _below(each)


def kind(cls: type[Event]) -> str:
    """Say who works with an event: `authors`, readers of `reports`, or only the `engine`."""
    if issubclass(cls, InternalDispatchEvent):
        return "reports"
    return "authors" if cls.__module__ in _HOMES[:2] else "engine"


def events(wanted: str) -> str:
    """Describe the events of one kind."""
    return "\n".join(part for cls in all_events() if kind(cls) == wanted for part in _described(cls))


def _described(cls: type[Event]) -> Iterator[str]:
    yield heading(3, code(cls.__name__), slug(cls.__name__))
    yield sentence(inspect.getdoc(cls) or "") + "\n"
    place = f"`from loom import {cls.__name__}`" if hasattr(loom, cls.__name__) else code(cls.__module__)
    parent = cls.__mro__[1].__name__ if cls is not Event else ""
    rows = [("base class", code(parent)), ("name on the wire", code(wire_name(cls)))]
    yield table(("import", place), (row for row in rows if row[1]))
    found = fields(cls.__module__, cls.__name__)
    if found:
        yield field_table(found)

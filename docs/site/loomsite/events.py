"""The reference of events: every event class that Loom itself defines, with its fields and its name on the wire."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module

import loom
from loom.steps.events import Event, InternalDispatchEvent
from loom.steps.registry import wire_name
from loomsite.classes import classes, field_table, fields, modules
from loomsite.markdown import code, heading, sentence, slug, table

_FOR_AUTHORS = ("loom.steps.events", "loom.effects.flow_events")
"""The modules whose events authors and readers of streams meet."""


def homes() -> list[str]:
    """Name the modules that define events, the ones for authors first. Events of test programs are left out."""
    found = [name for name in modules() if not name.startswith("loom.testing") and _defines_events(name)]
    return [*_FOR_AUTHORS, *(name for name in found if name not in _FOR_AUTHORS)]


def _defines_events(name: str) -> bool:
    """Say whether a module has a class with a base that is called an event, or a start."""
    return any(base.endswith("Event") for cls in classes(name) for base in map(ast.unparse, cls.bases))


def all_events() -> list[type[Event]]:
    """List the classes in the order of their modules."""
    where = homes()
    for home in where:
        import_module(home)
    found = [Event, *dict.fromkeys(_below(Event))]
    return [cls for home in where for cls in found if cls.__module__ == home]


def _below(cls: type[Event]) -> Iterator[type[Event]]:
    for each in cls.__subclasses__():
        yield each
        yield from _below(each)


def kind(cls: type[Event]) -> str:
    """Say who works with an event: `authors`, readers of `reports`, or only the `engine`."""
    if issubclass(cls, InternalDispatchEvent):
        return "reports"
    return "authors" if cls.__module__ in _FOR_AUTHORS else "engine"


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

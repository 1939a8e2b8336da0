"""Pages of definitions and of their versions. May import the server's frame and loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.runtime.durable.definitions_stored import DEFINITIONS, DefinitionUnreadable, can_be_defined, read_definition
from loom.runtime.durable.names import OWN
from loom.runtime.durable.registered import RegisteredFlow
from loom.server.cursors import not_given, read_cursor, write_cursor
from loom.server.v1.definition_views import flow_view, steps_view, version_view

if TYPE_CHECKING:
    from loom.runtime.durable import definitions_stored as stored
    from loom.runtime.durable.working import WorkingRuntime
    from loom.server.routing import Call
    from loom.server.shapes import Page
    from loom.server.shapes_definitions import Definition, DefinitionVersion
    from loom.store.records import Entry

_BY_NAME, _BY_NUMBER = "definitions", "versions"
_BATCH = 200


async def definitions_page(call: Call, limit: int, cursor: str | None) -> Page[Definition]:
    """The workflows that can be started here, by their names."""
    after = _key(cursor, _BY_NAME)
    items: list[Definition] = []
    while len(items) <= limit and (found := await _next(call, after)):
        views = [_view(call.runtime, name, entry) for name, entry in found.items()]
        items += [view for view in views if view is not None]
        after = max(found)
    more = len(items) > limit
    return {"items": items[:limit], "next_cursor": write_cursor(_BY_NAME, items[limit - 1]["name"]) if more else None}


async def _next(call: Call, after: str) -> dict[str, Entry | None]:
    """The next names behind one that the key may see, in order: of code that is at hand, and of what is stored."""
    runtime, allowed = call.runtime, call.principal.workflows
    if allowed is not None:
        names = sorted(name for name in allowed if name > after)[:_BATCH]
        return {name: await runtime.store.entry(DEFINITIONS, name) for name in names if can_be_defined(name)}
    entries = {entry.key: entry for entry in await runtime.store.entries(DEFINITIONS, after, _BATCH)}
    known = {name for name in runtime.codes if name > after}
    return {name: entries.get(name) for name in sorted(known | entries.keys())[:_BATCH]}


def _view(runtime: WorkingRuntime, name: str, entry: Entry | None) -> Definition | None:
    """What can be started here under a name."""
    code = runtime.codes.get(name)
    if name.startswith(OWN):
        return None
    if code is not None and not isinstance(code, RegisteredFlow):
        return steps_view(name)
    if entry is None:
        return flow_view(name, None) if code is not None else None
    if code is None and not runtime.definitions.follow:
        return None
    try:
        definition = read_definition(entry)
    except DefinitionUnreadable:
        return flow_view(name, None)  # whoever asks for it by name is told why
    return flow_view(name, definition) if definition.deleted_at is None else None


def versions_page(definition: stored.Definition | None, limit: int, cursor: str | None) -> Page[DefinitionVersion]:
    """The versions of a flow, newest first."""
    before = int(_key(cursor, _BY_NUMBER) or 0)
    newest_first = reversed(definition.versions) if definition is not None else ()
    found = [each for each in newest_first if not before or each.number < before]
    items = [version_view(each, definition.current if definition is not None else 0) for each in found[:limit]]
    more = len(found) > limit
    return {"items": items, "next_cursor": write_cursor(_BY_NUMBER, str(found[limit - 1].number)) if more else None}


def _key(cursor: str | None, kind: str) -> str:
    """The last key of the page before; empty for the first page."""
    if cursor is None:
        return ""
    found, key = read_cursor(cursor, tuple[str, str])
    if found != kind or not can_be_defined(key) or (kind == _BY_NUMBER and not (key.isascii() and key.isdecimal())):
        raise not_given()
    return key

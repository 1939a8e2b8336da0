"""The catalog: what a store tells of workflows in Python to processes without their code.

A process that works for a workflow writes an entry with its graph and its JSON Schemas, whenever they have changed. So
a server, a client or a page can draw the graph of a run, and show a form for what the run waits for. A flow needs no
entry: its document is in the store.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.runtime.durable.names import OWN
from loom.runtime.durable.stored_definitions import keep
from loom.runtime.run_head import waiter_kind
from loom.store.errors import StoreError
from loom.store.records import check_entry_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from loom.runtime.durable.registration import Registration
    from loom.steps.events import Event
    from loom.store.ports import Store
    from loom.store.records import Entry

_log = logging.getLogger("loom.durable")

CATALOG: Final = "catalog"
"""The kind of the store's entries that describe workflows in Python."""
_KNOWN = 1000
"""How many entries of other processes are kept in mind."""
_FRESH_S = 5.0
"""Seconds in which an entry is not read again."""


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workflow in Python without its code: its events by wire name, its graph."""

    name: str
    """What its author calls it; it may be registered under another name."""
    start: str
    stop: str
    known: tuple[str, ...] = ()
    """All events that its steps take and return."""
    events: tuple[str, ...] = ()
    """The events that callers may send: what a step takes from outside at any time, and what a body waits for."""
    schemas: dict[str, dict[str, Any]] = {}
    """The JSON Schema of each of these."""
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    mermaid: str = ""
    """The graph as text for Mermaid."""

    def with_event(self, name: str, schema: dict[str, Any]) -> CatalogEntry:
        """Return the entry with one more event that a run waits for."""
        return msgspec.structs.replace(self, events=(*self.events, name), schemas={**self.schemas, name: schema})


class Catalog:
    """The catalog of a store, for one process."""

    def __init__(self, store: Store, now: Callable[[], float], codes: Mapping[str, Registration]) -> None:
        self._store = store
        self._now = now
        self._codes = codes
        self._own: dict[str, tuple[Registration, CatalogEntry]] = {}
        """What is known of the code of this process."""
        self._read: dict[str, tuple[float, CatalogEntry | None]] = {}
        """What other processes have written, and when it was read."""
        self._writing: asyncio.Task[None] | None = None

    async def entry(self, name: str) -> CatalogEntry | None:
        """Return what is known of a workflow in Python: from its code if that is here, else from the store."""
        code = self._codes.get(name)
        if code is not None:
            return self._of_code(code) if code.document is None else None
        now = self._now()
        read_at, known = self._read.get(name, (float("-inf"), None))
        if not 0 <= now - read_at < _FRESH_S:
            found = await self._store.entry(CATALOG, name) if can_be_listed(name) else None
            known = _decoded(found) if found is not None else None
            keep(self._read, name, (now, known), _KNOWN)
        return known

    async def names(self, after: str, limit: int) -> list[str]:
        """Return the names that processes have written entries for, in order."""
        return [each.key for each in await self._store.entries(CATALOG, after, limit)]

    async def shown(self, workflow: str, waiters: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return waiters as rows have them, each with its kind, its prompt and the schema of its answer."""
        return [
            {**waiter, "kind": waiter_kind(waiter), "schema": await self._schema(workflow, waiter)}
            | {"prompt": waiter.get("prompt")}
            for waiter in waiters
        ]

    async def _schema(self, workflow: str, waiter: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the JSON Schema of an answer. A flow has it in the row; None if nothing is known."""
        if "schema" in waiter or waiter_kind(waiter) not in ("event", "input"):
            return waiter.get("schema")
        entry = await self.entry(workflow)
        if entry is None:
            return None
        name: str = waiter["event_type"]
        if name not in entry.schemas and (code := self._codes.get(workflow)) is not None:
            entry = self._learn(code, entry, name)
        return entry.schemas.get(name)

    def _of_code(self, code: Registration) -> CatalogEntry:
        known = self._own.get(code.name)
        if known is None or known[0] is not code:
            known = self._own[code.name] = (code, entry_of(code))
        return known[1]

    def _learn(self, code: Registration, entry: CatalogEntry, name: str) -> CatalogEntry:
        """Add a type that a run waits for and that no source tells of, if its class is in this process."""
        from loom.steps.registry import AmbiguousTypeError, UnknownTypeError, resolve

        try:
            cls = resolve(name, code.definition.instance.events)
        except (UnknownTypeError, AmbiguousTypeError):
            return entry
        entry = entry.with_event(name, _schema_of(cls))
        self._own[code.name] = (code, entry)
        return entry

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, names: Iterable[str]) -> None:
        """Begin to write the entries of these workflows, so far as they have changed. Nothing waits for it."""
        codes = [self._codes[name] for name in names if can_be_listed(name) and self._codes[name].document is None]
        if codes:
            before = self._writing
            task = self._write(before, codes)
            self._writing = asyncio.get_running_loop().create_task(task, name="loom catalog")

    async def _write(self, before: asyncio.Task[None] | None, codes: list[Registration]) -> None:
        if before is not None:
            await asyncio.wait([before])
        for code in codes:
            try:
                data = msgspec.json.encode(self._of_code(code))
                there = await self._store.entry(CATALOG, code.name)
                if there is None or there.data != data:
                    await self._store.put_entry(CATALOG, code.name, data)
            except StoreError as error:
                # Runs go on without it. The next process that works for the workflow tries again.
                _log.warning("The catalog has no new entry for %r: %s", code.name, error)

    async def close(self) -> None:
        """Stop writing."""
        task, self._writing = self._writing, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def can_be_listed(name: str) -> bool:
    """Tell whether the catalog can have an entry under this name: the engine's own workflows have none."""
    try:
        check_entry_names(CATALOG, name)
    except ValueError:
        return False
    return not name.startswith(OWN)


def _decoded(entry: Entry) -> CatalogEntry | None:
    try:
        return msgspec.json.decode(entry.data, type=CatalogEntry)
    except msgspec.DecodeError as error:
        _log.warning("The catalog entry of %r cannot be read, so its schemas are not known: %s", entry.key, error)
        return None


# -- entries made from code -------------------------------------------------------------------------------------------

_PRIVATE = {"nodes": {"__all__": {"source_file", "source_line", "config_file", "config_value"}}}
"""What a graph of steps tells of the machine that it was made on, and of what files hold there."""


def entry_of(code: Registration) -> CatalogEntry:
    """Describe a workflow in Python by its code."""
    from loom.steps.awaited import awaited_types
    from loom.steps.graph import external_types
    from loom.steps.registry import wire_name
    from loom.steps.representation import get_workflow_representation, to_mermaid

    definition, workflow = code.definition, code.workflow
    start, stop = workflow.start_event_class, workflow.stop_event_class
    functions = workflow._get_steps().values()
    events = dict.fromkeys([*external_types(definition.steps), *awaited_types(functions, type(workflow))])
    taken = (cls for config in definition.steps.values() for cls in config.accepted_events if isinstance(cls, type))
    known = {wire_name(cls): cls for cls in (start, stop, *workflow.events, *events, *taken)}
    graph = get_workflow_representation(workflow)
    drawn = graph.model_dump(mode="json", exclude=_PRIVATE)
    return CatalogEntry(
        name=workflow.workflow_name,
        start=wire_name(start),
        stop=wire_name(stop),
        known=tuple(map(wire_name, workflow.events)),
        events=tuple(map(wire_name, events)),
        schemas={name: _schema_of(cls) for name, cls in known.items()},
        nodes=drawn["nodes"],
        edges=drawn["edges"],
        mermaid=to_mermaid(graph),
    )


def _schema_of(cls: type[Event]) -> dict[str, Any]:
    """Return the JSON Schema of an event; a bare one if a field of it has no form in JSON."""
    from pydantic.errors import PydanticUserError

    try:
        return cls.model_json_schema()
    except PydanticUserError:
        return {"title": cls.__name__, "type": "object"}

"""The versions of definitions: their numbers, their texts, and the flows that they are.

May import loom.flows, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from loom.flows.diagnostics import DefinitionError
from loom.flows.document import digest_of
from loom.runtime.planners import flow_planner
from loom.runtime.durable.definitions_stored import DefinitionUnreadable, StoredDefinitions
from loom.runtime.load import flow_of

if TYPE_CHECKING:
    from loom.runtime.durable.definitions_stored import Version
    from loom.runtime.durable.runtime import DurableRuntime
    from loom.runtime.flow import Flow

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_KNOWN = 10_000
"""How many numbers of versions are kept in mind."""
_MISSING_S = 5.0
"""How long a version that has no number is not looked for again."""


class DefinitionVersions:
    """The versions of the definitions in a runtime's store."""

    def __init__(self, runtime: DurableRuntime) -> None:
        self._runtime = runtime
        self.stored = StoredDefinitions(runtime.store, runtime.now)
        self._numbers: dict[tuple[str, str], int] = {}
        """By name and digest."""
        self._missing: dict[tuple[str, str], float] = {}

    async def number_of(self, name: str, digest: str | None) -> int | None:
        """The number of a flow's version; None of what has none."""
        if digest is None:
            return None
        key, now = (name, digest), self._runtime.now()
        if key not in self._numbers and not 0 <= now - self._missing.get(key, float("-inf")) < _MISSING_S:
            found = await self._find(name, digest)
            if found is not None:
                self.learn(name, found)
            else:
                keep(self._missing, key, now, _KNOWN)
        return self._numbers.get(key)

    async def _find(self, name: str, digest: str) -> Version | None:
        try:
            definition = await self.stored.get(name)
        except DefinitionUnreadable:
            return None  # its runs can be looked at nevertheless; whoever asks for the definition is told
        return definition.of_digest(digest) if definition is not None else None

    async def text_of(self, name: str, version: Version) -> str:
        """The text that a version is stored as; `DefinitionUnreadable` if it is not there as it was put."""
        text = ((await self._runtime.store.document(version.digest)) or b"").decode(errors="replace")
        if digest_of(text) != version.digest:
            raise DefinitionUnreadable(name, version.number, "its text is missing or damaged")
        return text

    async def load(self, name: str, version: Version) -> Flow:
        """A stored version as a flow; `DefinitionUnreadable` if it cannot be one here."""
        text = await self.text_of(name, version)
        try:
            # In a thread, for a large document takes its time.
            return await asyncio.to_thread(_ready_flow, text)
        except (DefinitionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DefinitionUnreadable(name, version.number, " ".join(str(error).split())) from error

    def learn(self, name: str, version: Version) -> None:
        """Keep the number of a version in mind."""
        keep(self._numbers, (name, version.digest), version.number, _KNOWN)


def _ready_flow(text: str) -> Flow:
    """A flow whose planner is made too, for those who will work for it."""
    flow = flow_of(text)
    flow_planner(flow.document.encode())
    return flow


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    """Keep something in mind, and forget what was kept first if it is too much."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]

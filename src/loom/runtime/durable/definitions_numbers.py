"""The numbers of definitions' versions, for those who only look at runs. May import loom.store."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from loom.runtime.durable.definitions_stored import DefinitionUnreadable, StoredDefinitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.definitions_stored import Version
    from loom.store.ports import Store

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_KNOWN = 10_000
"""How many numbers of versions are kept in mind."""
_MISSING_S = 5.0
"""How long a version that has no number is not looked for again."""


class DefinitionNumbers:
    """Which version of a definition a run has, by number."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self.stored = StoredDefinitions(store, now)
        self._now = now
        self._numbers: dict[tuple[str, str], int] = {}
        """By name and digest."""
        self._missing: dict[tuple[str, str], float] = {}

    async def number_of(self, name: str, digest: str | None) -> int | None:
        """The number of a flow's version; None of what has none."""
        if digest is None:
            return None
        key, now = (name, digest), self._now()
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

    def learn(self, name: str, version: Version) -> None:
        """Keep the number of a version in mind."""
        keep(self._numbers, (name, version.digest), version.number, _KNOWN)


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    """Keep something in mind, and forget what was kept first if it is too much."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]

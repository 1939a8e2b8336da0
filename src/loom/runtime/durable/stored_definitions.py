"""Definitions of flows in a store: which versions a name has, and which of them new runs begin with.

One entry per name lists the versions by number; the texts are documents of the store, by digest. Processes that only
look at runs need the numbers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from loom.store.records import ABSENT, check_entry_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.store.ports import Store
    from loom.store.records import Entry


DEFINITIONS = "definition"
"""The kind of the store's entries that hold definitions."""

_MAX_VERSIONS = 1000
"""How many versions of a name are kept in mind. A number is never given again, also if its version is forgotten."""


class DefinitionNotFound(LookupError):
    """No flow of this name, or no such version of it, can be started."""

    def __init__(self, name: str, why: str = "is not known", hint: str = "") -> None:
        super().__init__(f"The workflow {name!r} {why}.{hint}")
        self.name = name


class NameTaken(Exception):
    """The name belongs to something that is no definition."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"The name {name!r} belongs to {owner}: choose another one.")
        self.name = name


class DefinitionUnreadable(Exception):
    """What is stored cannot be loaded here: it is missing or damaged, or was written by a newer Loom."""

    def __init__(self, name: str, number: int | None, reason: str) -> None:
        what = f"Version {number} of the flow" if number is not None else "The list of versions of the flow"
        super().__init__(f"{what} {name!r} cannot be loaded here: {reason}.")
        self.name = name


class Version(msgspec.Struct, frozen=True):
    """One content that a name has had."""

    number: int
    digest: str
    created_at: float


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a name: its versions, oldest first, and which of them is current."""

    versions: tuple[Version, ...]
    current: int
    updated_at: float
    deleted_at: float | None = None
    """Since when nothing new starts under the name."""
    disabled_at: float | None = None
    """Since when its triggers do not fire; None: they do."""
    address_key: int = 1
    """The number that signed addresses of its trigger have. Addresses with another number open nothing."""

    @property
    def is_disabled(self) -> bool:
        """Whether its triggers do not fire."""
        return self.disabled_at is not None

    @property
    def latest(self) -> Version:
        """The version that new runs begin with."""
        found = self.numbered(self.current)
        assert found is not None
        return found

    def numbered(self, number: int) -> Version | None:
        """A version by its number."""
        return next((version for version in self.versions if version.number == number), None)

    def of_digest(self, digest: str) -> Version | None:
        """A version by its content."""
        return next((version for version in self.versions if version.digest == digest), None)

    def with_current(self, digest: str, now: float) -> StoredDefinition:
        """The same with this content as the current version: an earlier one again, or a new one."""
        found = self.of_digest(digest)
        versions = self.versions
        if found is None:
            found = Version(versions[-1].number + 1, digest, now)
            versions = (*versions[-_MAX_VERSIONS + 1 :], found)
        changed = msgspec.structs.replace(self, versions=versions, current=found.number, updated_at=now)
        if self.deleted_at is None:
            return changed
        # What comes after a deletion is another flow: neither its state nor the addresses of the old one are its own.
        return msgspec.structs.replace(changed, deleted_at=None, disabled_at=None, address_key=self.address_key + 1)


def can_be_defined(name: str) -> bool:
    """Whether a store can keep a definition under this name."""
    try:
        check_entry_names(DEFINITIONS, name)
    except ValueError:
        return False
    return True


def read_definition(entry: Entry) -> StoredDefinition:
    """The definition in an entry; `DefinitionUnreadable` if there is none in it."""
    try:
        definition = msgspec.json.decode(entry.data, type=StoredDefinition)
    except msgspec.DecodeError as error:
        raise DefinitionUnreadable(entry.key, None, str(error)) from error
    if definition.numbered(definition.current) is None:
        raise DefinitionUnreadable(entry.key, None, f"its current version {definition.current} is missing")
    return definition


class StoredDefinitions:
    """The definitions of a store. Every change is made by compare and swap, so that none of two at once is lost."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._now = clock

    async def get(self, name: str) -> StoredDefinition | None:
        """What is stored of a name, deleted or not."""
        entry = await self._store.entry(DEFINITIONS, name) if can_be_defined(name) else None
        return read_definition(entry) if entry is not None else None

    async def put(
        self, name: str, digest: str, text: bytes, check: Callable[[StoredDefinition | None], None] | None = None
    ) -> tuple[StoredDefinition | None, StoredDefinition]:
        """Make a content the current version of a name. What was stored before, and what is now.

        `check` may refuse what is there by an exception: then nothing changes.
        """
        while True:
            entry = await self._store.entry(DEFINITIONS, name)
            before = read_definition(entry) if entry is not None else None
            if check is not None:
                check(before)
            if before is not None and before.deleted_at is None and before.latest.digest == digest:
                return before, before
            # Before the entry that names it: what is listed can be loaded.
            await self._store.save_document(digest, text)
            after = _after(before, digest, self._now())
            if await self._is_stored(name, entry, after):
                return before, after

    async def delete(
        self, name: str, check: Callable[[StoredDefinition | None], None] | None = None
    ) -> StoredDefinition:
        """Let nothing new start under a name; its versions stay for the runs that have them."""
        now = self._now()
        return await self._change(name, lambda _: {"deleted_at": now, "updated_at": now}, check)

    async def enable(self, name: str) -> StoredDefinition:
        """Let the triggers of a flow fire again."""
        return await self._change(name, lambda _: {"disabled_at": None})

    async def disable(self, name: str) -> StoredDefinition:
        """Let the triggers of a flow fire no more. Since when they do not stays as it is."""
        now = self._now()
        return await self._change(name, lambda found: {"disabled_at": found.disabled_at or now})

    async def rotate_address(self, name: str) -> StoredDefinition:
        """End all signed addresses of a flow's trigger that were given out."""
        return await self._change(name, lambda found: {"address_key": found.address_key + 1})

    async def _change(
        self,
        name: str,
        changes: Callable[[StoredDefinition], dict[str, Any]],
        check: Callable[[StoredDefinition | None], None] | None = None,
    ) -> StoredDefinition:
        """Change what is stored of a name; `DefinitionNotFound` if nothing is, or it was deleted."""
        while True:
            entry = await self._store.entry(DEFINITIONS, name) if can_be_defined(name) else None
            before = read_definition(entry) if entry is not None else None
            if check is not None:
                check(before)
            if before is None or before.deleted_at is not None:
                raise DefinitionNotFound(name)
            after = msgspec.structs.replace(before, **changes(before))
            if after == before or await self._is_stored(name, entry, after):
                return after

    async def _is_stored(self, name: str, before: Entry | None, after: StoredDefinition) -> bool:
        expected = before.version if before is not None else ABSENT
        stored = await self._store.put_entry(DEFINITIONS, name, msgspec.json.encode(after), expect=expected)
        return stored is not None


def _after(before: StoredDefinition | None, digest: str, now: float) -> StoredDefinition:
    if before is not None:
        return before.with_current(digest, now)
    return StoredDefinition(versions=(Version(1, digest, now),), current=1, updated_at=now)


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
            return None  # its runs can be looked at nevertheless; a caller that asks for the definition is told
        return definition.of_digest(digest) if definition is not None else None

    def learn(self, name: str, version: Version) -> None:
        """Keep the number of a version in mind."""
        keep(self._numbers, (name, version.digest), version.number, _KNOWN)


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, most: int) -> None:
    """Keep something in mind, and forget what was kept first if it is too much."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]

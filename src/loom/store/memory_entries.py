"""The entries of a store in memory. Pure. May import the records and the rules of entries beside it."""

from __future__ import annotations

from loom.store.entries import ABSENT
from loom.store.records import Entry


class MemoryEntries:
    """Entries by kind and key. Every call is a transaction of its own."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._last_version = 0

    def get(self, kind: str, key: str, now: float) -> Entry | None:
        """An entry that has not expired."""
        entry = self._entries.get((kind, key))
        return entry if entry is not None and _is_alive(entry, now) else None

    def put(self, entry: Entry, expect: int | None, now: float) -> int | None:
        """Keep an entry under a new version, which is the result, unless another one is there than expected."""
        if not self._is_expected(entry.kind, entry.key, expect, now):
            return None
        self._last_version += 1
        kept = Entry(entry.kind, entry.key, self._last_version, entry.data, entry.expires_at)
        self._entries[entry.kind, entry.key] = kept
        return self._last_version

    def page(self, kind: str, after: str, limit: int, now: float) -> list[Entry]:
        """Entries of a kind whose keys are behind one, in the order of keys."""
        found = [entry for entry in self._entries.values() if entry.kind == kind and entry.key > after]
        return sorted((entry for entry in found if _is_alive(entry, now)), key=lambda entry: entry.key)[:limit]

    def drop(self, kind: str, key: str, expect: int | None, now: float) -> bool:
        """Delete an entry; False if there is none, or another one than expected."""
        if self.get(kind, key, now) is None or not self._is_expected(kind, key, expect, now):
            return False
        del self._entries[kind, key]
        return True

    def drop_expired(self, now: float, limit: int) -> int:
        """Delete the first that expired, and say how many."""
        expired = [entry for entry in self._entries.values() if not _is_alive(entry, now)]
        expired.sort(key=lambda entry: entry.expires_at or 0.0)
        for entry in expired[:limit]:
            del self._entries[entry.kind, entry.key]
        return len(expired[:limit])

    def _is_expected(self, kind: str, key: str, expect: int | None, now: float) -> bool:
        if expect is None:
            return True
        entry = self.get(kind, key, now)
        return (ABSENT if entry is None else entry.version) == expect


def _is_alive(entry: Entry, now: float) -> bool:
    return entry.expires_at is None or entry.expires_at > now

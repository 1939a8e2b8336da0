"""What goes over the wire between the workflows that keep entries and their clients. May import the store's records."""

from __future__ import annotations

import msgspec

from loom.store.records import Entry

UPDATE_PUT = "put"
"""A `PutEntry`; answered with `Written`."""
UPDATE_DROP = "drop"
"""A `DropEntry`; answered with `Written`: its version is 1 if there was an entry."""
QUERY_GET = "get"
"""An `EntryQuery` by key; answered with `Found`."""
QUERY_LIST = "list"
"""An `EntryQuery` by what is before; answered with `Found`."""


class EntriesOpening(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one argument of a workflow that keeps entries: those that it begins with."""

    kind: str
    entries: tuple[Entry, ...] = ()
    last_version: int = 0


class PutEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keep an entry, if the one that is there has the expected version."""

    key: str
    data: bytes
    expires_at: float | None = None
    expect: int | None = None


class DropEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Delete an entry, if it has the expected version."""

    key: str
    expect: int | None = None


class EntryQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry by its key, or those behind a key; none that has expired by `now`."""

    now: float
    key: str = ""
    after: str = ""
    limit: int = 100


class Found(msgspec.Struct, frozen=True, omit_defaults=True):
    """The entries that were asked for, in the order of their keys."""

    entries: tuple[Entry, ...] = ()


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The new version; 0 if nothing was written, because something else is there than expected."""

    version: int = 0

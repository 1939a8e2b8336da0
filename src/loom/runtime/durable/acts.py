"""What operators did, as entries of the store that are added and never changed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import msgspec

from loom.store.records import ABSENT

if TYPE_CHECKING:
    from loom.store.ports import EntryStore

AUDIT = "audit"
"""The kind of the store's entries that hold the record."""
RETENTION_S = 365 * 86400.0
"""How long an entry is kept if nothing else is said."""
OPERATOR = "local"
"""The actor of an act by the command line, and by a caller on the server's machine while no key exists."""

_LAST = 10**17
"""Microseconds until the year 5138: keys count down, so that the newest entry is the first."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an operator did."""

    at: float
    actor: str
    """The id of a key; `local` for a caller on the server's machine while no key existed, or for the command line."""
    actor_name: str = ""
    """What the key was called then."""
    action: str
    target: str
    made: str | None = None
    """What came of it that has a name: a fork, a schedule, the type of an event that only an administrator may send."""
    request_id: str | None = None
    outcome: int | str = "done"
    """The status of the answer."""


async def record(store: EntryStore, act: Act, retention: float | None) -> None:
    """Add an act to the record."""
    key = f"{_LAST - int(act.at * 1_000_000):018d}-{secrets.token_hex(8)}"
    expires_at = act.at + retention if retention is not None else None
    await store.put_entry(AUDIT, key, msgspec.json.encode(act), expires_at=expires_at, expect=ABSENT)

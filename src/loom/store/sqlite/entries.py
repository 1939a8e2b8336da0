"""Small things beside the runs, by kind and key. May import the records and the rules of entries.

A version is the number of a row, which SQLite never gives twice: a put replaces the row by a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.entries import ABSENT
from loom.store.records import Entry

if TYPE_CHECKING:
    from loom.store.sqlite.connection import Connection
    from loom.store.sqlite.session import Session

_VERSION = "SELECT version FROM entries WHERE kind = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"
_GET = """SELECT kind, key, version, data, expires_at FROM entries
WHERE kind = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"""
_PAGE = """SELECT kind, key, version, data, expires_at FROM entries
WHERE kind = ? AND key > ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY key LIMIT ?"""
_PUT = "INSERT OR REPLACE INTO entries (kind, key, data, expires_at) VALUES (?, ?, ?, ?) RETURNING version"
_DROP = "DELETE FROM entries WHERE version = ?"
_DROP_EXPIRED = """DELETE FROM entries WHERE version IN (
    SELECT version FROM entries INDEXED BY entries_by_expiry WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)"""


def get(connection: Connection, kind: str, key: str, now: float) -> Entry | None:
    """An entry that has not expired."""
    rows = connection.query(_GET, (kind, key, now))
    return Entry(*rows[0]) if rows else None


def page(connection: Connection, kind: str, after: str, limit: int, now: float) -> list[Entry]:
    """Entries of a kind whose keys are behind one, in the order of keys."""
    return [Entry(*row) for row in connection.query(_PAGE, (kind, after, now, limit))]


def put(session: Session, entry: Entry, expect: int | None, now: float) -> int | None:
    """Keep an entry under a new version, which is the result, unless another one is there than expected."""
    connection = session.connection
    if expect is not None and _version(connection, entry.kind, entry.key, now) != expect:
        return None
    version: int = connection.query(_PUT, (entry.kind, entry.key, entry.data, entry.expires_at))[0][0]
    return version


def drop(session: Session, kind: str, key: str, expect: int | None, now: float) -> bool:
    """Delete an entry; False if there is none, or another one than expected."""
    version = _version(session.connection, kind, key, now)
    if version == ABSENT or expect not in (None, version):
        return False
    return session.connection.execute(_DROP, (version,)) == 1


def drop_expired(session: Session, now: float, limit: int) -> int:
    """Delete the first that expired, and say how many."""
    return session.connection.execute(_DROP_EXPIRED, (now, limit))


def _version(connection: Connection, kind: str, key: str, now: float) -> int:
    rows = connection.query(_VERSION, (kind, key, now))
    return rows[0][0] if rows else ABSENT

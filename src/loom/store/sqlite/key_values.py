"""Two tables beside the runs: documents by digest, and entries by kind and key.

Runs keep their document for life; a document goes with the last run that has it, unless it was saved. The version of an
entry is the number of its row, which SQLite never gives twice: a put replaces the row by a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.records import ABSENT, Entry
from loom.store.sqlite.connection import BulkStatement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.store.sqlite.connection import Connection, WriteSession

_KEEP_DOCUMENT = (
    "INSERT INTO documents (digest, created_at, pinned, data) VALUES (?, ?, 0, ?) ON CONFLICT (digest) DO NOTHING"
)
_SAVE_DOCUMENT = """INSERT INTO documents (digest, created_at, pinned, data) VALUES (?, ?, 1, ?)
ON CONFLICT (digest) DO UPDATE SET pinned = 1"""
_DOCUMENT = "SELECT data FROM documents WHERE digest = ?"
_DROP_UNUSED_DOCUMENTS = BulkStatement(
    """DELETE FROM documents WHERE digest IN (VALUES {rows}) AND pinned = 0 AND NOT EXISTS
    (SELECT 1 FROM runs INDEXED BY runs_by_document WHERE runs.document = documents.digest)""",
    1,
)


def keep_document(connection: Connection, digest: str, data: bytes, at: float) -> None:
    """Store a document for as long as a run has it."""
    connection.execute(_KEEP_DOCUMENT, (digest, at, data))


def save_document(session: WriteSession, digest: str, data: bytes, at: float) -> None:
    """Store a document for good."""
    session.connection.execute(_SAVE_DOCUMENT, (digest, at, data))


def drop_unused_documents(connection: Connection, digests: Iterable[str]) -> None:
    """Delete documents that no run has any more, unless they were saved."""
    _DROP_UNUSED_DOCUMENTS.execute(connection, [(digest,) for digest in digests])


def document(connection: Connection, digest: str) -> bytes | None:
    """Return the text of a document; None if there is none."""
    rows = connection.query(_DOCUMENT, (digest,))
    return rows[0][0] if rows else None


_ENTRY_VERSION = "SELECT version FROM entries WHERE kind = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"
_ENTRY = """SELECT kind, key, version, data, expires_at FROM entries
WHERE kind = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"""
_ENTRIES = """SELECT kind, key, version, data, expires_at FROM entries
WHERE kind = ? AND key > ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY key LIMIT ?"""
_PUT_ENTRY = "INSERT OR REPLACE INTO entries (kind, key, data, expires_at) VALUES (?, ?, ?, ?) RETURNING version"
_DROP_ENTRY = "DELETE FROM entries WHERE version = ?"
_DROP_EXPIRED = """DELETE FROM entries WHERE version IN (
    SELECT version FROM entries INDEXED BY entries_by_expiry WHERE expires_at <= ? ORDER BY expires_at LIMIT ?
)"""


def entry(connection: Connection, kind: str, key: str, now: float) -> Entry | None:
    """Return an entry that has not expired; None if there is none."""
    rows = connection.query(_ENTRY, (kind, key, now))
    return Entry(*rows[0]) if rows else None


def entries(connection: Connection, kind: str, after: str, limit: int, now: float) -> list[Entry]:
    """Return entries of a kind whose keys come after `after`, in the order of keys."""
    return [Entry(*row) for row in connection.query(_ENTRIES, (kind, after, now, limit))]


def put_entry(session: WriteSession, entry: Entry, expect: int | None, now: float) -> int | None:
    """Store an entry and return its new version; None if the stored one is not the expected one."""
    connection = session.connection
    if expect is not None and _entry_version(connection, entry.kind, entry.key, now) != expect:
        return None
    version: int = connection.query(_PUT_ENTRY, (entry.kind, entry.key, entry.data, entry.expires_at))[0][0]
    return version


def drop_entry(session: WriteSession, kind: str, key: str, expect: int | None, now: float) -> bool:
    """Delete an entry; False if there is none, or it is not the expected one."""
    version = _entry_version(session.connection, kind, key, now)
    if version == ABSENT or expect not in (None, version):
        return False
    return session.connection.execute(_DROP_ENTRY, (version,)) == 1


def drop_expired(session: WriteSession, now: float, limit: int) -> int:
    """Delete expired entries, oldest first. Return how many."""
    return session.connection.execute(_DROP_EXPIRED, (now, limit))


def _entry_version(connection: Connection, kind: str, key: str, now: float) -> int:
    rows = connection.query(_ENTRY_VERSION, (kind, key, now))
    return rows[0][0] if rows else ABSENT

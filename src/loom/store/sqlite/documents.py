"""The definitions that runs keep for life, by digest. May import this folder's helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.sqlite.blocks import Many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.store.sqlite.connection import Connection
    from loom.store.sqlite.session import Session

_KEEP = "INSERT INTO documents (digest, created_at, pinned, data) VALUES (?, ?, 0, ?) ON CONFLICT (digest) DO NOTHING"
_SAVE = """INSERT INTO documents (digest, created_at, pinned, data) VALUES (?, ?, 1, ?)
ON CONFLICT (digest) DO UPDATE SET pinned = 1"""
_TEXT = "SELECT data FROM documents WHERE digest = ?"
_DROP_UNUSED = Many(
    """DELETE FROM documents WHERE digest IN (VALUES {rows}) AND pinned = 0 AND NOT EXISTS
    (SELECT 1 FROM runs INDEXED BY runs_by_document WHERE runs.document = documents.digest)""",
    1,
)


def keep(connection: Connection, digest: str, data: bytes, at: float) -> None:
    """Store a document for as long as a run has it."""
    connection.execute(_KEEP, (digest, at, data))


def save(session: Session, digest: str, data: bytes, at: float) -> None:
    """Store a document for good."""
    session.connection.execute(_SAVE, (digest, at, data))


def drop_unused(connection: Connection, digests: Iterable[str]) -> None:
    """Delete those that no run has any more, and nobody saved."""
    _DROP_UNUSED.execute(connection, [(digest,) for digest in digests])


def text(connection: Connection, digest: str) -> bytes | None:
    """The text of a document."""
    rows = connection.query(_TEXT, (digest,))
    return rows[0][0] if rows else None

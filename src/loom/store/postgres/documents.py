"""The definitions that runs keep for life, by digest. May import the connections beside it.

A run that gets a document and the deletion of the last other run with the same one may meet. So a start or a commit
holds its document until it is durable, or stores it; a deletion locks the documents first and then looks, anew, for
runs that have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.postgres.connections import ChangedMeanwhileError, columns

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from loom.store.postgres.driver import Connection

_HOLD = "SELECT digest FROM documents WHERE digest = ANY ($1::text[]) ORDER BY digest FOR KEY SHARE"
_ADD = """
INSERT INTO documents (digest, data, created_at) SELECT * FROM unnest($1::text[], $2::bytea[], $3::float8[])
ON CONFLICT (digest) DO NOTHING RETURNING digest
"""
_SAVE = """
INSERT INTO documents (digest, data, created_at, pinned)
VALUES ($1, $2, extract(epoch FROM clock_timestamp())::float8, true)
ON CONFLICT (digest) DO UPDATE SET pinned = true
"""
_LOCK = "SELECT FROM documents WHERE digest = ANY ($1::text[]) AND NOT pinned ORDER BY digest FOR UPDATE"
_DROP_UNUSED = """
DELETE FROM documents d WHERE d.digest = ANY ($1::text[]) AND NOT d.pinned
AND NOT EXISTS (SELECT FROM runs r WHERE r.document = d.digest)
"""
_TEXT = "SELECT data FROM documents WHERE digest = $1"


async def keep(connection: Connection, documents: Mapping[str, tuple[bytes, float]]) -> None:
    """Within a transaction, see to it that documents stay for as long as a run has them: text and time by digest.

    Most are there already, and their text is not even sent.
    """
    held = {row[0] for row in await connection.fetch(_HOLD, list(documents))}
    missing = [(digest, *documents[digest]) for digest in sorted(documents) if digest not in held]
    if missing and len(await connection.fetch(_ADD, *columns(missing))) < len(missing):
        raise ChangedMeanwhileError


async def save(connection: Connection, digest: str, data: bytes) -> None:
    """Store a document for good."""
    await connection.execute(_SAVE, digest, data)


async def drop_unused(connection: Connection, digests: Collection[str]) -> None:
    """Within a transaction, delete those that no run has any more, and nobody saved."""
    if digests:
        await connection.execute(_LOCK, list(digests))
        await connection.execute(_DROP_UNUSED, list(digests))


async def text(connection: Connection, digest: str) -> bytes | None:
    """The text of a document."""
    data: bytes | None = await connection.fetchval(_TEXT, digest)
    return data

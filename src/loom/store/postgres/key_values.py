"""Two tables beside the runs: documents by digest, and entries by kind and key.

A run that gets a document and the deletion of the last other run with the same one may meet. So a start or a commit
holds its document until it is durable, or stores it; a deletion locks the documents first and then looks, anew, for
runs that have them.

Every call on entries is one statement: of several that meet at an entry, each sees it as the one before left it.
Entries expire by the database's clock, which all processes share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.postgres.connections import ChangedSinceError, columns
from loom.store.records import ABSENT, Entry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from loom.store.postgres.driver import Connection

_HOLD_DOCUMENTS = "SELECT digest FROM documents WHERE digest = ANY ($1::text[]) ORDER BY digest FOR KEY SHARE"
_ADD_DOCUMENTS = """
INSERT INTO documents (digest, data, created_at) SELECT * FROM unnest($1::text[], $2::bytea[], $3::float8[])
ON CONFLICT (digest) DO NOTHING RETURNING digest
"""
_SAVE_DOCUMENT = """
INSERT INTO documents (digest, data, created_at, pinned)
VALUES ($1, $2, extract(epoch FROM clock_timestamp())::float8, true)
ON CONFLICT (digest) DO UPDATE SET pinned = true
"""
_LOCK_DOCUMENTS = "SELECT FROM documents WHERE digest = ANY ($1::text[]) AND NOT pinned ORDER BY digest FOR UPDATE"
_DROP_UNUSED_DOCUMENTS = """
DELETE FROM documents d WHERE d.digest = ANY ($1::text[]) AND NOT d.pinned
AND NOT EXISTS (SELECT FROM runs r WHERE r.document = d.digest)
"""
_DOCUMENT = "SELECT data FROM documents WHERE digest = $1"


async def keep_documents(connection: Connection, documents: Mapping[str, tuple[bytes, float]]) -> None:
    """Within a transaction, keep documents for as long as a run has them. They are text and time by digest.

    Most are there already, and their text is not even sent.
    """
    held = {row[0] for row in await connection.fetch(_HOLD_DOCUMENTS, list(documents))}
    missing = [(digest, *documents[digest]) for digest in sorted(documents) if digest not in held]
    if missing and len(await connection.fetch(_ADD_DOCUMENTS, *columns(missing))) < len(missing):
        raise ChangedSinceError


async def save_document(connection: Connection, digest: str, data: bytes) -> None:
    """Store a document for good."""
    await connection.execute(_SAVE_DOCUMENT, digest, data)


async def drop_unused_documents(connection: Connection, digests: Collection[str]) -> None:
    """Within a transaction, delete documents that no run has any more, unless they were saved."""
    if digests:
        await connection.execute(_LOCK_DOCUMENTS, list(digests))
        await connection.execute(_DROP_UNUSED_DOCUMENTS, list(digests))


async def document(connection: Connection, digest: str) -> bytes | None:
    """Return the text of a document; None if there is none."""
    data: bytes | None = await connection.fetchval(_DOCUMENT, digest)
    return data


_ENTRY = """
SELECT kind, key, version, data, expires_at FROM entries WHERE kind = $1 AND key = $2
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8)
"""
_ENTRIES = """
SELECT kind, key, version, data, expires_at FROM entries WHERE kind = $1 AND key > $2
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8) ORDER BY key LIMIT $3
"""
_SET_ENTRY = """
INSERT INTO entries (kind, key, data, expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, key) DO UPDATE
SET version = nextval('entry_versions'), data = excluded.data, expires_at = excluded.expires_at RETURNING version
"""
_ADD_ENTRY = """
INSERT INTO entries AS e (kind, key, data, expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, key) DO UPDATE
SET version = nextval('entry_versions'), data = excluded.data, expires_at = excluded.expires_at
WHERE e.expires_at <= extract(epoch FROM clock_timestamp())::float8 RETURNING version
"""
_REPLACE_ENTRY = """
UPDATE entries SET version = nextval('entry_versions'), data = $3, expires_at = $4
WHERE kind = $1 AND key = $2 AND version = $5
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8) RETURNING version
"""
_DROP_ENTRY = """
DELETE FROM entries WHERE kind = $1 AND key = $2 AND version = coalesce($3, version)
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8) RETURNING version
"""
# What others hold at this moment, they replace or delete: it need not be waited for.
_DROP_EXPIRED = """
DELETE FROM entries WHERE (kind, key) IN (
    SELECT kind, key FROM entries WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING version
"""


async def entry(connection: Connection, kind: str, key: str) -> Entry | None:
    """Return an entry that has not expired; None if there is none."""
    row = await connection.fetchrow(_ENTRY, kind, key)
    return Entry(*row) if row is not None else None


async def entries(connection: Connection, kind: str, after: str, limit: int) -> list[Entry]:
    """Return entries of a kind whose keys come after `after`, in the order of keys."""
    return [Entry(*row) for row in await connection.fetch(_ENTRIES, kind, after, limit)]


async def put_entry(connection: Connection, entry: Entry, expect: int | None) -> int | None:
    """Store an entry and return its new version; None if the stored one is not the expected one."""
    values = (entry.kind, entry.key, entry.data, entry.expires_at)
    version: int | None
    if expect is None or expect == ABSENT:
        version = await connection.fetchval(_SET_ENTRY if expect is None else _ADD_ENTRY, *values)
    else:
        version = await connection.fetchval(_REPLACE_ENTRY, *values, expect)
    return version


async def drop_entry(connection: Connection, kind: str, key: str, expect: int | None) -> bool:
    """Delete an entry; False if there is none, or it is not the expected one."""
    return await connection.fetchval(_DROP_ENTRY, kind, key, expect) is not None


async def drop_expired(connection: Connection, now: float, limit: int) -> int:
    """Delete expired entries, oldest first. Return how many."""
    return len(await connection.fetch(_DROP_EXPIRED, now, limit))

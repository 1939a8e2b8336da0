"""Small things beside the runs, by kind and key. May import the records and the rules of entries.

Every call is one statement: of several that meet at an entry, one after the other sees it as the one before left it.
Entries expire by the database's clock, which all processes share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.entries import ABSENT
from loom.store.records import Entry

if TYPE_CHECKING:
    from loom.store.postgres.driver import Connection

_GET = """
SELECT kind, key, version, data, expires_at FROM entries WHERE kind = $1 AND key = $2
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8)
"""
_PAGE = """
SELECT kind, key, version, data, expires_at FROM entries WHERE kind = $1 AND key > $2
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8) ORDER BY key LIMIT $3
"""
_SET = """
INSERT INTO entries (kind, key, data, expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, key) DO UPDATE
SET version = nextval('entry_versions'), data = excluded.data, expires_at = excluded.expires_at RETURNING version
"""
_ADD = """
INSERT INTO entries AS e (kind, key, data, expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT (kind, key) DO UPDATE
SET version = nextval('entry_versions'), data = excluded.data, expires_at = excluded.expires_at
WHERE e.expires_at <= extract(epoch FROM clock_timestamp())::float8 RETURNING version
"""
_REPLACE = """
UPDATE entries SET version = nextval('entry_versions'), data = $3, expires_at = $4
WHERE kind = $1 AND key = $2 AND version = $5
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8) RETURNING version
"""
_DROP = """
DELETE FROM entries WHERE kind = $1 AND key = $2 AND version = coalesce($3, version)
AND (expires_at IS NULL OR expires_at > extract(epoch FROM clock_timestamp())::float8) RETURNING version
"""
# What others hold at this moment, they replace or delete: it need not be waited for.
_DROP_EXPIRED = """
DELETE FROM entries WHERE (kind, key) IN (
    SELECT kind, key FROM entries WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED
) RETURNING version
"""


async def get(connection: Connection, kind: str, key: str) -> Entry | None:
    """An entry that has not expired."""
    row = await connection.fetchrow(_GET, kind, key)
    return Entry(*row) if row is not None else None


async def page(connection: Connection, kind: str, after: str, limit: int) -> list[Entry]:
    """Entries of a kind whose keys are behind one, in the order of keys."""
    return [Entry(*row) for row in await connection.fetch(_PAGE, kind, after, limit)]


async def put(connection: Connection, entry: Entry, expect: int | None) -> int | None:
    """Keep an entry under a new version, which is the result, unless another one is there than expected."""
    values = (entry.kind, entry.key, entry.data, entry.expires_at)
    version: int | None
    if expect is None or expect == ABSENT:
        version = await connection.fetchval(_SET if expect is None else _ADD, *values)
    else:
        version = await connection.fetchval(_REPLACE, *values, expect)
    return version


async def drop(connection: Connection, kind: str, key: str, expect: int | None) -> bool:
    """Delete an entry; False if there is none, or another one than expected."""
    return await connection.fetchval(_DROP, kind, key, expect) is not None


async def drop_expired(connection: Connection, now: float, limit: int) -> int:
    """Delete the first that expired, and say how many."""
    return len(await connection.fetch(_DROP_EXPIRED, now, limit))

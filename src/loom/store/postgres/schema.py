"""Bring a schema up to date, and say what that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.errors import StoreOutdated
from loom.store.migrations import available, pending
from loom.store.postgres.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.migrations import Migration
    from loom.store.postgres.connections import Address
    from loom.store.postgres.driver import Connection

MIGRATIONS = "loom.store.postgres.migrations"

_HAS_TABLE = "SELECT to_regclass($1) IS NOT NULL"
_HAS_SCHEMA = "SELECT to_regnamespace($1) IS NOT NULL"
_APPLIED = "SELECT version, checksum FROM loom_schema"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_CREATE = """
CREATE TABLE IF NOT EXISTS loom_schema (
    version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""
_NOTE = "INSERT INTO loom_schema (version, name, checksum) VALUES ($1, $2, $3)"
_NOTE_TEXT = """INSERT INTO loom_schema (version, name, checksum)
VALUES ({0.number}, '{0.name}', '{0.checksum}');"""


async def upgrade(connection: Connection, address: Address, *, allowed: bool) -> None:
    """Apply what is pending, in one transaction; several processes may do so at once, and one of them does it."""
    known = available(MIGRATIONS)
    missing = pending(await _applied(connection, address), known)
    if not missing:
        return
    if not allowed:
        raise StoreOutdated(
            f"{address.place}: schema {address.schema} has version {missing[0].number - 1}, and this version of Loom "
            f"needs {known[-1].number}. Run `loom db upgrade`."
        )
    async with connection.transaction():
        await connection.execute(_LOCK, address.channel)
        if not await connection.fetchval(_HAS_SCHEMA, address.quoted_schema):
            await connection.execute(f"CREATE SCHEMA {address.quoted_schema}")
        await connection.execute(_CREATE)
        # Another process may have been faster.
        for migration in pending(await _applied(connection, address), known):
            await connection.execute(migration.sql)
            await connection.execute(_NOTE, migration.number, migration.name, migration.checksum)


async def missing(address: Address) -> list[Migration]:
    """Return the migrations that `upgrade` would apply to a schema; all of them, if there is no schema."""
    connections = Connections(address)
    try:
        async with connections.reader() as connection:
            return pending(await _applied(connection, address), available(MIGRATIONS))
    finally:
        await connections.close()


def script(migrations: Sequence[Migration], address: Address) -> str:
    """Return what `upgrade` does for these migrations, as SQL that a person can apply."""
    place = f"CREATE SCHEMA IF NOT EXISTS {address.quoted_schema};\nSET LOCAL search_path = {address.quoted_schema};"
    parts = [f"-- {note.number:04}_{note.name}\n{note.sql.strip()}\n{_NOTE_TEXT.format(note)}" for note in migrations]
    return "\n\n".join(["BEGIN;", place, f"{_CREATE.strip()};", *parts, "COMMIT;"]) + "\n"


async def _applied(connection: Connection, address: Address) -> dict[int, str]:
    if not await connection.fetchval(_HAS_TABLE, f"{address.quoted_schema}.loom_schema"):
        return {}
    return dict(await connection.fetch(_APPLIED))

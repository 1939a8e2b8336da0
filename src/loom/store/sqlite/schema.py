"""Bring a database file up to date, say what that would do, and check the file for damage."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from loom.store.errors import StoreOutdated
from loom.store.migrations import Migration, available, pending
from loom.store.sqlite.connection import explained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.store.sqlite.connection import Connection

MIGRATIONS = "loom.store.sqlite.migrations"

_HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'loom_schema'"
_APPLIED = "SELECT version, checksum FROM loom_schema"
_CREATE = """CREATE TABLE IF NOT EXISTS loom_schema (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at REAL NOT NULL
)"""
_NOTE = "INSERT INTO loom_schema (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)"
_NOTE_TEXT = """INSERT INTO loom_schema (version, name, checksum, applied_at)
VALUES ({0.number}, '{0.name}', '{0.checksum}', (julianday('now') - 2440587.5) * 86400.0);"""


def check_exists(path: str) -> None:
    """Refuse to make a new file, where an upgrade is not allowed."""
    if not os.path.exists(path):
        raise StoreOutdated(f"There is no database at {path}. `loom db upgrade` makes one.")


def upgrade(connection: Connection, path: str, *, allowed: bool) -> None:
    """Apply what is pending, each migration in a transaction of its own; several processes may do so at once.

    A database that is up to date is only read, so that no process waits for the engine.
    """
    known = available(MIGRATIONS)
    missing = pending(_applied(connection), known)
    if missing and not allowed:
        have = missing[0].number - 1
        raise StoreOutdated(
            f"The database {path} has schema version {have}, and this version of Loom needs {known[-1].number}. "
            "Run `loom db upgrade`."
        )
    for _ in missing:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_CREATE)
            # Another process may have been faster.
            still_missing = pending(_applied(connection), known)
            if still_missing:
                _apply(connection, still_missing[0])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def missing(path: str) -> list[Migration]:
    """Return the migrations that `upgrade` would apply to a file; all of them, if there is no file."""
    known = available(MIGRATIONS)
    if not os.path.exists(path):
        return known
    try:
        with closing(_read_only(path)) as connection:
            has_table = connection.execute(_HAS_TABLE).fetchone()
            applied = dict(connection.execute(_APPLIED).fetchall()) if has_table else {}
    except sqlite3.Error as error:
        raise explained(error, path) from error
    return pending(applied, known)


_PROBLEMS = 100
"""The most places of a damaged file that are named."""


def damage(path: str) -> list[str]:
    """Return what SQLite's own check finds wrong with a file; an empty list if it is sound."""
    try:
        with closing(_read_only(path)) as connection:
            found = connection.execute(f"PRAGMA integrity_check({_PROBLEMS})").fetchall()
    except sqlite3.DatabaseError as error:
        return [str(explained(error, path))]
    return [text for (text,) in found if text != "ok"]


def _read_only(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)


def script(migrations: Sequence[Migration]) -> str:
    """Return what `upgrade` does for these migrations, as SQL that a person can apply."""
    parts = [f"-- {note.number:04}_{note.name}\n{note.sql.strip()}\n{_NOTE_TEXT.format(note)}" for note in migrations]
    return "\n\n".join(["BEGIN IMMEDIATE;", f"{_CREATE};", *parts, "COMMIT;"]) + "\n"


def _applied(connection: Connection) -> dict[int, str]:
    if not connection.query(_HAS_TABLE):
        return {}
    return dict(connection.query(_APPLIED))


def _apply(connection: Connection, migration: Migration) -> None:
    for statement in statements(migration.sql):
        connection.execute(statement)
    connection.execute(_NOTE, (migration.number, migration.name, migration.checksum, time.time()))


def statements(sql: str) -> Iterator[str]:
    """Yield the statements of a file: `executescript` would end the transaction that they share."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

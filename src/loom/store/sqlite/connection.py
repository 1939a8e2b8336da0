"""Connections to SQLite: what the store needs of one, the one over the standard `sqlite3`, and what errors mean."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from loom.store.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Connect = Callable[[str], "Connection"]

T = TypeVar("T")

_PAUSE = 0.002
"""Seconds between two tries. In most cases SQLite itself has waited before."""


_WRITER = (
    # Short, since `patiently` tries again.
    "PRAGMA busy_timeout = 200",
    "PRAGMA temp_store = memory",
    "PRAGMA journal_mode = wal",
    "PRAGMA synchronous = full",
    "PRAGMA wal_autocheckpoint = 1000",
    "PRAGMA journal_size_limit = 67108864",
)
_READER = ("PRAGMA busy_timeout = 5000", "PRAGMA temp_store = memory", "PRAGMA query_only = 1")

_MEANINGS = {
    sqlite3.SQLITE_BUSY: "another process has kept it locked for too long",
    sqlite3.SQLITE_LOCKED: "another process has kept it locked for too long",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_READONLY: "it may not be written",
    sqlite3.SQLITE_PERM: "it may not be opened",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
}
_REFUSALS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    UnicodeError,
    OverflowError,
)
"""The value to store is at fault, not the database."""
_UNREAD = "Could not decode to UTF-8"
"""What the standard library says when it refuses a text."""
_STILL_GOOD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT}


class Connection(Protocol):
    """An open database, used by one thread. Its errors are `sqlite3.Error`, with their `sqlite_errorcode`.

    It opens no transaction by itself. Prepared statements are cached by their text.
    """

    @property
    def in_transaction(self) -> bool:
        """Tell whether a BEGIN has been neither committed nor rolled back."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> int:
        """Run a statement without rows. Return how many rows an INSERT, UPDATE or DELETE has changed."""
        ...

    def query(self, sql: str, parameters: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Sqlite3Connection:
    """A `Connection` over the standard library."""

    __slots__ = ("_connection", "_cursor")

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, timeout=0.2, isolation_level=None, cached_statements=256)
        self._cursor = self._connection.cursor()

    @property
    def in_transaction(self) -> bool:
        """Tell whether a BEGIN has been neither committed nor rolled back."""
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> int:
        """Run a statement without rows. Return how many rows an INSERT, UPDATE or DELETE has changed."""
        return self._cursor.execute(sql, parameters).rowcount

    def query(self, sql: str, parameters: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """Return all rows of a statement. In a text that is no UTF-8, U+FFFD replaces what cannot be read."""
        try:
            return self._cursor.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if _UNREAD not in str(error) or not sql.lstrip().startswith("SELECT"):
                raise
        # One damaged text does not hide the other rows.
        self._connection.text_factory = _lenient_text
        try:
            return self._cursor.execute(sql, parameters).fetchall()
        finally:
            self._connection.text_factory = str

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _lenient_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def open_writer(connect: Connect, path: str) -> Connection:
    """Open a connection that writes, with every commit on the disk before it is answered."""
    return _prepared(connect(path), _WRITER)


def open_reader(connect: Connect, path: str) -> Connection:
    """Open a connection that only reads."""
    return _prepared(connect(path), _READER)


def _prepared(connection: Connection, pragmas: tuple[str, ...]) -> Connection:
    try:
        for pragma in pragmas:
            connection.query(pragma)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def patiently(action: Callable[[], T], seconds: float) -> T:
    """Do an action, and repeat it for `seconds` while another process has locked the database."""
    deadline: float | None = None
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            now = time.monotonic()
            deadline = now + seconds if deadline is None else deadline
            if primary_code(error) != sqlite3.SQLITE_BUSY or now >= deadline:
                raise
            time.sleep(_PAUSE)


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's number of an error without its details; 0 if the error has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_refusal(error: sqlite3.Error) -> bool:
    """Tell whether a trigger of the schema has refused a row."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER


def is_still_good(error: Exception) -> bool:
    """Tell whether the connection may be used further; after a failed disk it must be opened again."""
    return not isinstance(error, sqlite3.Error) or primary_code(error) in _STILL_GOOD


def explained(error: Exception, path: str, *, outcome_unknown: bool = False) -> Exception:
    """Return the error for the caller. Errors that are not of SQLite stay as they are."""
    result: StoreError
    if isinstance(error, _REFUSALS):
        result = StoreError(f"This cannot be stored in {path}: {error}. Nothing was written.")
    elif isinstance(error, sqlite3.Error):
        meaning = _MEANINGS.get(primary_code(error), "it failed")
        outcome = "Whether it was written is not known." if outcome_unknown else "Nothing was written."
        message = f"The database {path} cannot be used: {meaning} ({error}). {outcome}"
        result = StoreUnavailable(message, outcome_unknown=outcome_unknown)
    else:
        return error
    result.__cause__ = error
    return result

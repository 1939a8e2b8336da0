"""What the store needs of a connection, the one over the standard `sqlite3`, and what its errors mean.

May import sqlite3 and the errors of the store.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from loom.store.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Connect = Callable[[str], "Connection"]

T = TypeVar("T")

_PAUSE = 0.002
"""Seconds between two tries; SQLite itself has waited by then, except where it does not."""

OLDEST = (3, 35, 0)
"""The first SQLite with all that the statements use: UPDATE ... FROM and RETURNING."""

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
"""Nothing is wrong with the database, but with what it was asked to keep."""
_UNREAD = "Could not decode to UTF-8"
"""How the standard library begins its refusal of a text."""
_STILL_GOOD = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT}


class Connection(Protocol):
    """An open database, used by one thread. Its errors are `sqlite3.Error`, with their `sqlite_errorcode`.

    It opens no transaction by itself. What sits in memory of a statement is kept by its text.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has been neither committed nor rolled back."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> int:
        """Run a statement that gives no rows; how many rows an INSERT, UPDATE or DELETE has changed."""
        ...

    def query(self, sql: str, parameters: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """All rows that a statement gives."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class Sqlite3Connection:
    """A `Connection` over the standard library."""

    __slots__ = ("_connection", "_cursor")

    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, timeout=0.2, isolation_level=None, cached_statements=256)
        self._cursor = self._connection.cursor()

    @property
    def in_transaction(self) -> bool:
        """Whether a BEGIN has been neither committed nor rolled back."""
        return self._connection.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> int:
        """Run a statement that gives no rows; how many rows an INSERT, UPDATE or DELETE has changed."""
        return self._cursor.execute(sql, parameters).rowcount

    def query(self, sql: str, parameters: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """All rows that a statement gives. In a text that is no UTF-8, U+FFFD stands for what cannot be read."""
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
        """Let go of the file."""
        self._connection.close()


def _lenient_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def open_writer(connect: Connect, path: str) -> Connection:
    """A connection that writes, with every commit on the disk before it is answered."""
    return _prepared(connect(path), _WRITER)


def open_reader(connect: Connect, path: str) -> Connection:
    """A connection that only reads."""
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
    """Do something, again and again for so long, if another process has locked the database."""
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


def check_place(path: str) -> None:
    """Refuse a path where no database can be, with a reason that SQLite would not give."""
    if path == ":memory:" or not path:
        raise StoreError("SQLite keeps runs in a file, and this names none. For runs in memory use memory://.")
    if sqlite3.sqlite_version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise StoreError(f"SQLite {wanted} or newer is needed; this Python has {sqlite3.sqlite_version}.")
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise StoreUnavailable(f"The database {path} cannot be used: it is a folder.")
    if not os.path.isdir(folder):
        raise StoreUnavailable(f"The database {path} cannot be used: the folder {folder} does not exist.")
    check_file_names(path)


def check_file_names(path: str) -> None:
    """Refuse a file with several names (hard links): each would have a lock and a write-ahead log of its own."""
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return  # it is not there yet, or SQLite will say why it cannot be opened
    if names > 1:
        raise StoreUnavailable(
            f"The database {path} cannot be used: the file has {names} names (hard links), and processes that open it "
            "by different ones would damage it. Remove the other names, or copy the file."
        )


def make_private(path: str) -> None:
    """Make an empty file that only its owner may read, if there is none. SQLite gives its other files the same mode."""
    with suppress(OSError):  # it is there, or SQLite will say why it cannot be
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))


def check_present(path: str) -> None:
    """Refuse to open a file that is not there, instead of making an empty one."""
    if not os.path.exists(path):
        error = sqlite3.OperationalError("the file is gone")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error


class Place:
    """Notes which file a connection has opened. SQLite would go on writing to one that was deleted or replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._now()

    def is_left(self) -> bool:
        """Whether the path is that of another file now, or of none."""
        return self._now() != self._file

    def check(self) -> None:
        """Fail if the place is left."""
        if self.is_left():
            error = sqlite3.OperationalError("the file was deleted or replaced")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
            raise error

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def primary_code(error: sqlite3.Error) -> int:
    """What went wrong, in SQLite's numbers without their details; 0 if SQLite did not say it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_refusal(error: sqlite3.Error) -> bool:
    """Whether a trigger of the schema has refused a row."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CONSTRAINT_TRIGGER


def is_still_good(error: Exception) -> bool:
    """Whether the connection may be used further; after a failed disk it must be opened again."""
    return not isinstance(error, sqlite3.Error) or primary_code(error) in _STILL_GOOD


def explained(error: Exception, path: str, *, outcome_unknown: bool = False) -> Exception:
    """The error that a caller shall see; errors that are not of SQLite are that already."""
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

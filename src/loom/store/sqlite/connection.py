"""Connections to SQLite: opening one, what errors mean, statements over many rows, and the session of the writer.

`sqlite3` lets other threads go on around every statement. With a busy event loop each return costs up to a switch
interval of 5 ms. So a group of commits is a handful of bulk statements, however many runs it has.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.sqlite.rows import types_of

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
_DRIVE_TOO = ("PRAGMA fullfsync = 1", "PRAGMA checkpoint_fullfsync = 1")
"""For macOS, where a plain fsync returns while the data is in the cache of the drive."""
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
    return _prepared(connect(path), (*_WRITER, *_DRIVE_TOO) if sys.platform == "darwin" else _WRITER)


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


TOO_LARGE = "Large texts can be kept beside the database: see `payloads` of loom.connect, or LOOM_PAYLOADS."


def explained(error: Exception, path: str, *, outcome_unknown: bool = False) -> Exception:
    """Return the error for the caller. Errors that are not of SQLite stay as they are."""
    result: StoreError
    if isinstance(error, _REFUSALS):
        hint = f" {TOO_LARGE}" if "too big" in str(error) else ""
        result = StoreError(f"This cannot be stored in {path}: {error}. Nothing was written.{hint}")
    elif isinstance(error, sqlite3.Error):
        meaning = _folder_fault(error, path) or _MEANINGS.get(primary_code(error), "it failed")
        outcome = "Whether it was written is not known." if outcome_unknown else "Nothing was written."
        message = f"The database {path} cannot be used: {meaning} ({error}). {outcome}"
        result = StoreUnavailable(message, outcome_unknown=outcome_unknown)
    else:
        return error
    result.__cause__ = error
    return result


def _folder_fault(error: sqlite3.Error, path: str) -> str:
    """Say that the folder is at fault, if it is: SQLite names the file alone, and keeps its log beside it."""
    # Not made absolute: the working directory may be gone, and this runs in a thread that must go on.
    folder = os.path.dirname(path) or os.curdir
    is_about_files = primary_code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    if not is_about_files or not os.path.isdir(folder) or os.access(folder, os.W_OK):
        return ""
    return f"this process may not write to the folder {folder}"


# -- the file ---------------------------------------------------------------------------------------------------------


OLDEST = (3, 35, 0)
"""The first SQLite with all that the statements use: UPDATE ... FROM and RETURNING."""


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


class OpenedFile:
    """Notes which file a connection has opened. SQLite would go on writing to one that was deleted or replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = self._now()

    def is_replaced(self) -> bool:
        """Tell whether the path is that of another file now, or of none."""
        return self._now() != self._file

    def check(self) -> None:
        """Raise an error of SQLite if the file was replaced or deleted."""
        if self.is_replaced():
            error = sqlite3.OperationalError("the file was deleted or replaced")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
            raise error

    def _now(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


# -- the writer's session ---------------------------------------------------------------------------------------------


MAX_ROWS = 256
"""Rows per statement: the widest has 16 columns, far below SQLite's limit of parameters."""


class BulkStatement:
    """A statement over `(VALUES {rows})`, whose columns are column1, column2, ...

    The number of rows is filled up to a power of two with rows of NULL, so that few texts are prepared and kept. The
    statement must do nothing for a row of NULL. `single` is a cheaper text for exactly one row.
    """

    def __init__(self, text: str, width: int, *, single: str | None = None) -> None:
        self._text = text
        self._width = width
        self._row = "(" + ", ".join("?" * width) + ")"
        self._texts: dict[int, str] = {} if single is None else {1: single}

    def execute(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> int:
        """Run the statement for all rows. Return how many rows of the table it has changed."""
        changed = 0
        for first in range(0, len(rows), MAX_ROWS):
            block = rows[first : first + MAX_ROWS]
            size = 1 << (len(block) - 1).bit_length()
            parameters = [value for row in block for value in row]
            parameters.extend([None] * (self._width * (size - len(block))))
            changed += connection.execute(self._sized(size), parameters)
        return changed

    def _sized(self, size: int) -> str:
        text = self._texts.get(size)
        if text is None:
            text = self._texts[size] = self._text.replace("{rows}", ", ".join([self._row] * size))
        return text


_OWNED = """SELECT id, created_at, idle_since, needs_worker, paused, parked, error, waiters, waiting_for, document
FROM runs WHERE run_id = ? AND owner = ? AND status = 'running'"""
_ADD_NOTIFICATIONS = BulkStatement(
    "INSERT INTO news (run, source) SELECT column1, column2 FROM (VALUES {rows}) WHERE column1 NOTNULL", 2
)
_KEPT_NOTIFICATIONS = 10_000
_FORGET_NOTIFICATIONS = "DELETE FROM news WHERE id <= (SELECT MAX(id) FROM news) - ?"
_MAX_OWNED = 100_000


class Owned(NamedTuple):
    """What is stored of a run that this process owns; no other process changes it."""

    key: int
    created_at: float
    marks: tuple[Any, ...]
    """The fields of its head that are in indexes and seldom change: see `transactions`."""
    waits: tuple[bytes, tuple[str, ...]]
    document: str | None


class WriteSession:
    """One connection for writing, used by the writer's thread only.

    `owned` remembers what the commits of this process have stored last, so that a commit writes only what has changed.
    `source` is a random number: the watcher leaves out notifications that carry it.
    """

    def __init__(self, connection: Connection, path: str, source: int, patience: float) -> None:
        self.connection = connection
        self.file = OpenedFile(path)
        self.notified: dict[str, int] = {}
        """The runs that the transaction under way notifies of, with their keys."""
        self.owned: dict[str, Owned] = {}
        self.outcome_unknown = False
        """Whether the last transaction failed, but may be stored nevertheless."""
        self.is_swollen = False
        """Whether statements hold large values: a connection keeps each statement with its last parameters."""
        self._source = source
        self.patience = patience
        """The seconds that a write waits for other processes."""
        self._notifications_written = 0

    def write_notifications(self) -> None:
        """Store the notifications of this transaction for other processes; old ones are deleted from time to time."""
        _ADD_NOTIFICATIONS.execute(self.connection, [(key, self._source) for key in self.notified.values()])
        self._notifications_written += len(self.notified)
        if self._notifications_written > _KEPT_NOTIFICATIONS // 10:
            self._notifications_written = 0
            self.connection.execute(_FORGET_NOTIFICATIONS, (_KEPT_NOTIFICATIONS,))

    def owned_run(self, run_id: str, fence: int) -> Owned | None:
        """Return what is stored of a run, from memory if it is known there; None if `fence` does not own the run."""
        known = self.owned.get(run_id)
        if known is None:
            rows = self.connection.query(_OWNED, (run_id, fence))
            if rows:
                key, created_at, *marks, waiters, waiting_for, document = rows[0]
                known = Owned(key, created_at, tuple(marks), (waiters, types_of(waiting_for)), document)
                self.remember(run_id, known)
        return known

    def remember(self, run_id: str, known: Owned) -> None:
        """Note what is stored of an owned run."""
        if len(self.owned) >= _MAX_OWNED:
            self.owned.clear()
        self.owned[run_id] = known

    def forget(self, run_id: str) -> None:
        """Drop what is known of a run that this process does not own any more."""
        self.owned.pop(run_id, None)

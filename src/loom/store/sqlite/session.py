"""The writer's session: its connection, what it remembers between statements, and statements over many rows.

`sqlite3` lets other threads go on around every statement. With a busy event loop each return costs up to a switch
interval of 5 ms. So a group of commits is a handful of bulk statements, however many runs it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.store.sqlite.database_file import OpenedFile
from loom.store.sqlite.rows import types_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.sqlite.connection import Connection

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


ADD_CHUNKS = BulkStatement(
    """INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data, previous)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8 FROM (VALUES {rows})
    WHERE column1 NOTNULL""",
    8,
)
SET_SNAPSHOTS = BulkStatement(
    """INSERT OR REPLACE INTO snapshots (run, ticks, checksum, data, link)
    SELECT column1, column2, column3, column4, column5 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    5,
)
SET_TIMERS = BulkStatement(
    """INSERT OR REPLACE INTO timers (run, seq, due, purpose)
    SELECT column1, column2, column3, column4 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    4,
)
ADD_WAITING = BulkStatement(
    """INSERT OR IGNORE INTO waiting (run, event_type, created_at)
    SELECT column1, column2, column3 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    3,
)
DELETE_WAITING = BulkStatement("DELETE FROM waiting WHERE run IN (VALUES {rows})", 1)
DELETE_TIMERS = BulkStatement("DELETE FROM timers WHERE run IN (VALUES {rows})", 1)
DELETE_MESSAGES = BulkStatement("DELETE FROM inbox WHERE run IN (VALUES {rows})", 1)


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
    """The fields of its head that are in indexes and seldom change: see `writes`."""
    waits: tuple[bytes, tuple[str, ...]]
    document: str | None


class Session:
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

"""The writer's connection, and what it remembers between statements. May import the rest of this folder's helpers."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.store.sqlite.blocks import Many
from loom.store.sqlite.connection import patiently, primary_code
from loom.store.sqlite.rows import types_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.sqlite.connection import Connection

_OWNED = """SELECT id, created_at, idle_since, needs_worker, paused, parked, error, waiters, waiting_for FROM runs
WHERE run_id = ? AND owner = ? AND status = 'running'"""
_NEWS = Many("INSERT INTO news (run, source) SELECT column1, column2 FROM (VALUES {rows}) WHERE column1 NOTNULL", 2)
_KEPT_NEWS = 10_000
_FORGET_NEWS = "DELETE FROM news WHERE id <= (SELECT MAX(id) FROM news) - ?"
_MOST_OWNED = 100_000


class NotAllOwned(Exception):
    """Some of the commits that were written together are not allowed: they must be tried one by one."""


class Owned(NamedTuple):
    """What is stored of a run that a member owns; nobody else changes it."""

    key: int
    created_at: float
    marks: tuple[Any, ...]
    """Those fields of its head that are in indexes and seldom change: see `commits`."""
    waits: tuple[bytes, tuple[str, ...]]


class Session:
    """One connection for writing.

    `owned` remembers what the commits of this process have stored last, so that what has not changed is not written
    again. `source` marks the news of this process.
    """

    def __init__(self, connection: Connection, source: int, patience: float) -> None:
        self.connection = connection
        self.careful = False
        """Whether commits go one by one."""
        self.news: dict[str, int] = {}
        """The runs of which the transaction under way has news, with their keys."""
        self.owned: dict[str, Owned] = {}
        self.outcome_unknown = False
        """Whether the last transaction failed in such a way that it may be stored nevertheless."""
        self._source = source
        self._patience = patience
        self._news_written = 0

    def transact(self, works: Sequence[Callable[[Session], object]]) -> tuple[list[object], list[str]]:
        """Do all of it in one transaction: the results, and the runs of which there are news."""
        try:
            return self._transact(works)
        except NotAllOwned:
            self.careful = True
            try:
                return self._transact(works)
            finally:
                self.careful = False

    def _transact(self, works: Sequence[Callable[[Session], object]]) -> tuple[list[object], list[str]]:
        self.news = {}
        self.outcome_unknown = False
        connection = self.connection
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"), self._patience)
        try:
            results = [work(self) for work in works]
            if self.news:
                self._write_news()
            self._commit()
        except BaseException:
            # What was remembered in this transaction has not happened.
            self.owned.clear()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results, list(self.news)

    def _commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            # The record may be in the file, though the disk did not say so.
            self.outcome_unknown = primary_code(error) == sqlite3.SQLITE_IOERR
            raise

    def _write_news(self) -> None:
        _NEWS.execute(self.connection, [(key, self._source) for key in self.news.values()])
        self._news_written += len(self.news)
        if self._news_written > _KEPT_NEWS // 10:
            self._news_written = 0
            self.connection.execute(_FORGET_NEWS, (_KEPT_NEWS,))

    def owned_run(self, run_id: str, fence: int) -> Owned | None:
        """A run that this member owns, as it is stored."""
        known = self.owned.get(run_id)
        if known is None:
            rows = self.connection.query(_OWNED, (run_id, fence))
            if rows:
                key, created_at, *marks, waiters, waiting_for = rows[0]
                known = Owned(key, created_at, tuple(marks), (waiters, types_of(waiting_for)))
                self.remember(run_id, known)
        return known

    def remember(self, run_id: str, known: Owned) -> None:
        """Keep what is stored of an owned run."""
        if len(self.owned) >= _MOST_OWNED:
            self.owned.clear()
        self.owned[run_id] = known

    def forget(self, run_id: str) -> None:
        """The run is not owned any more."""
        self.owned.pop(run_id, None)

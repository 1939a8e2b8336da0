"""The writer's connection, and what it remembers between statements. May import the rest of this folder's helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.store.sqlite.blocks import Many
from loom.store.sqlite.connection import Place
from loom.store.sqlite.rows import types_of

if TYPE_CHECKING:
    from loom.store.sqlite.connection import Connection

_OWNED = """SELECT id, created_at, idle_since, needs_worker, paused, parked, error, waiters, waiting_for, document
FROM runs WHERE run_id = ? AND owner = ? AND status = 'running'"""
_NEWS = Many("INSERT INTO news (run, source) SELECT column1, column2 FROM (VALUES {rows}) WHERE column1 NOTNULL", 2)
_KEPT_NEWS = 10_000
_FORGET_NEWS = "DELETE FROM news WHERE id <= (SELECT MAX(id) FROM news) - ?"
_MOST_OWNED = 100_000


class Owned(NamedTuple):
    """What is stored of a run that a member owns; nobody else changes it."""

    key: int
    created_at: float
    marks: tuple[Any, ...]
    """Those fields of its head that are in indexes and seldom change: see `commits`."""
    waits: tuple[bytes, tuple[str, ...]]
    document: str | None


class Session:
    """One connection for writing.

    `owned` remembers what the commits of this process have stored last, so that what has not changed is not written
    again. `source` marks the news of this process.
    """

    def __init__(self, connection: Connection, path: str, source: int, patience: float) -> None:
        self.connection = connection
        self.place = Place(path)
        self.news: dict[str, int] = {}
        """The runs of which the transaction under way has news, with their keys."""
        self.owned: dict[str, Owned] = {}
        self.outcome_unknown = False
        """Whether the last transaction failed in such a way that it may be stored nevertheless."""
        self.is_swollen = False
        """Whether statements hold large values: a connection keeps a statement with what was bound to it last."""
        self._source = source
        self.patience = patience
        """How many seconds to wait for other processes."""
        self._news_written = 0

    def write_news(self) -> None:
        """Leave the news of this transaction for other processes."""
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
                key, created_at, *marks, waiters, waiting_for, document = rows[0]
                known = Owned(key, created_at, tuple(marks), (waiters, types_of(waiting_for)), document)
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

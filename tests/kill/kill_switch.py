"""Where a process kills itself: at the n-th time that it comes to a place. Nothing is flushed, closed or told.

Places that every store has: `before` and `after` a transaction is applied. Within SQLite also: `inside`, right before
the COMMIT; `committed`, right after it, on the writer's thread; `statement`, before any statement of the writer. `time`
is not here: the parent kills the process after so many seconds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loom.store.operations import Operation, Result
from loom.store.ports import Store
from loom.store.sqlite import SqliteStore
from loom.store.sqlite.connection import Sqlite3Connection

PLACES = ("before", "after")
SQLITE_PLACES = ("before", "inside", "committed", "after", "statement")


class Kill(NamedTuple):
    """When to die: at a place for the n-th time, or after so many seconds."""

    place: str
    number: float

    def __str__(self) -> str:
        return f"{self.place}:{self.number:g}"

    @classmethod
    def parse(cls, text: str) -> Kill:
        """The other way round."""
        place, _, number = text.partition(":")
        return cls(place, float(number))


class Switch:
    """Counts how often a process has come to its place."""

    def __init__(self, kill: Kill | None) -> None:
        self._kill = kill
        self._count = 0

    def reached(self, place: str) -> None:
        """The process is at this place. It may end here."""
        if self._kill is None or place != self._kill.place:
            return
        self._count += 1
        if self._count >= self._kill.number:
            os.kill(os.getpid(), signal.SIGKILL)


class _KillingConnection(Sqlite3Connection):
    """A connection that comes to places."""

    __slots__ = ("_switch", "_writes")

    def __init__(self, path: str, switch: Switch) -> None:
        super().__init__(path)
        self._switch = switch
        self._writes = False

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> int:
        self._come_to(sql)
        count = super().execute(sql, parameters)
        if self._writes and sql == "COMMIT":
            self._switch.reached("committed")
        return count

    def query(self, sql: str, parameters: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        self._come_to(sql)
        return super().query(sql, parameters)

    def _come_to(self, sql: str) -> None:
        self._writes = self._writes or sql == "PRAGMA synchronous = full"
        if self._writes:
            self._switch.reached("statement")
            if sql == "COMMIT":
                self._switch.reached("inside")


def killing_store(url: str, kill: Kill | None) -> Store:
    """A store whose process dies at a place."""
    switch = Switch(kill)
    store: Any
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        store = SqliteStore(path, connect=lambda place: _KillingConnection(place, switch))
    else:
        from loom.store.postgres import PostgresStore

        store = PostgresStore(url)
    apply = store.apply

    async def dangerous_apply(group: Sequence[Operation]) -> list[Result]:
        switch.reached("before")
        results: list[Result] = await apply(group)
        switch.reached("after")
        return results

    store.apply = dangerous_apply
    return store  # type: ignore[no-any-return]

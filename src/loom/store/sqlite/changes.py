"""Looks for changed runs in an SQLite file. Only one process writes at a time, so the log's ids follow the commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from loom.store.changes import MOST_CHANGES, ChangedRun, Look
from loom.store.sqlite.reads import moment
from loom.store.sqlite.rows import RUN_COLUMNS, listed_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.sqlite.connection import Connection

_FILE_VERSION = "PRAGMA data_version"
_KEPT = "SELECT COALESCE(MIN(id), 1), COALESCE(MAX(id), 0) FROM changes"
_LOGGED = "SELECT DISTINCT run_id, workflow FROM changes WHERE id > ? LIMIT ?"
_OWNED = """SELECT run_id, ticks, events, updated_at, kept, owner, idle_since, needs_worker, paused, parked
FROM runs INDEXED BY runs_owned WHERE owner IS NOT NULL"""
"""What tells apart the states of a run that has an owner: every commit writes some of it."""
_ROWS = f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id IN (SELECT value FROM json_each(?))"  # noqa: S608 - fixed text
_CONNECTIONS = 4
"""The readers of a store have at most as many connections."""


class _Seen(NamedTuple):
    """What the last look has seen."""

    logged: int
    """The last id of the log."""
    owned: frozenset[tuple[Any, ...]]


class SqliteChanges:
    """See `ChangeReader`. A look at a file that nobody has written reads one number in memory."""

    pause = 0.0

    def __init__(self, read: Callable[[Callable[[Connection], Look]], Any], after: str | None) -> None:
        self._read = read
        self._seen: _Seen | None = None
        self._after = after
        self._versions: dict[Connection, int] = {}
        """The version of the file that each connection has seen in its last look."""

    async def look(self) -> Look:
        """See `ChangeReader`."""
        look: Look = await self._read(self._look)
        return look

    def _look(self, connection: Connection) -> Look:
        with moment(connection):
            version: int = connection.query(_FILE_VERSION)[0][0]
            if self._seen is not None and self._versions.get(connection) == version:
                return Look(str(self._seen.logged), [])
            look, seen = self._found(connection)
        if len(self._versions) >= _CONNECTIONS:
            self._versions.clear()  # some were closed
        self._versions[connection], self._seen = version, seen
        return look

    def _found(self, connection: Connection) -> tuple[Look, _Seen]:
        [(first, last)] = connection.query(_KEPT)
        owned = frozenset(connection.query(_OWNED))
        seen, position = _Seen(last, owned), str(last)
        if self._seen is None and self._after is None:
            return Look(position, []), seen
        after = self._seen.logged if self._seen is not None else _number(self._after or "")
        if after is None or not first - 1 <= after <= last:
            return Look(position, [], is_whole=False), seen
        logged = connection.query(_LOGGED, (after, MOST_CHANGES + 1))
        others = owned - self._seen.owned if self._seen is not None else owned
        run_ids = {*(run_id for run_id, _ in logged), *(each[0] for each in others)}
        if len(run_ids) > MOST_CHANGES:
            return Look(position, [], is_whole=False), seen
        return Look(position, _changed(connection, run_ids, logged)), seen


def _number(position: str) -> int | None:
    return int(position) if position.isdecimal() and len(position) < 19 else None  # noqa: PLR2004 - SQLite's integers


def _changed(connection: Connection, run_ids: set[str], logged: Sequence[tuple[Any, ...]]) -> list[ChangedRun]:
    """Return the runs as they are now, in the order of their last changes; deleted ones first."""
    if not run_ids:
        return []
    rows = [listed_row(values) for values in connection.query(_ROWS, (msgspec.json.encode(sorted(run_ids)).decode(),))]
    rows.sort(key=lambda row: (row.head.updated_at, row.run_id))
    there = {(row.run_id, row.workflow) for row in rows}
    return [
        *(ChangedRun(run_id, workflow, None) for run_id, workflow in logged if (run_id, workflow) not in there),
        *(ChangedRun(row.run_id, row.workflow, row) for row in rows),
    ]

"""Looks for changed runs in PostgreSQL.

A position is a snapshot: the transactions whose writes a look could see. The next look finds what it sees and that one
could not, in whatever order transactions end and whatever the clocks of processes say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loom.store.changes import MOST_CHANGES, ChangedRun, Look, whole_or_not
from loom.store.postgres.rows import listed_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_NUMBER = r"[1-9][0-9]{0,17}"
_POSITION = re.compile(rf"({_NUMBER}:{_NUMBER}:(?:{_NUMBER}(?:,{_NUMBER})*)?)@([0-9]{{1,15}}\.[0-9]{{1,6}})", re.ASCII)

# The date of a look, and how old a position may be. The log is kept a little longer: see TRIM.
_NOW = "SELECT pg_current_snapshot()::text, extract(epoch FROM clock_timestamp())::float8"
_KEPT_S = 540.0
TRIM = """
DELETE FROM changes WHERE ctid IN (SELECT ctid FROM changes ORDER BY xid LIMIT 50000)
AND at < clock_timestamp() - interval '10 minutes'
"""

# A row knows only the lower half of the number of the transaction that wrote it. All that a snapshot tells apart are
# near its end, so the upper half follows from that.
LOOK = f"""
WITH look AS MATERIALIZED (
    SELECT s AS now, pg_snapshot_xmax(s)::text::bigint AS last, pg_snapshot_xmin($1::text::pg_snapshot) AS first,
        extract(epoch FROM clock_timestamp())::float8 AS at
    FROM pg_current_snapshot() s
), found AS MATERIALIZED (
    SELECT run_id, workflow FROM changes
    WHERE xid >= pg_snapshot_xmin($1::text::pg_snapshot)
    AND NOT pg_visible_in_snapshot(xid, $1::text::pg_snapshot)
    UNION
    SELECT run_id, workflow FROM (
        SELECT r.run_id, r.workflow, look.first, look.last - ((look.last - r.xmin::text::bigint) & 4294967295) AS writer
        FROM look, runs r WHERE r.owner IS NOT NULL
        OFFSET 0
    ) owned
    WHERE writer >= first::text::bigint AND NOT pg_visible_in_snapshot(writer::text::xid8, $1::text::pg_snapshot)
    LIMIT {MOST_CHANGES + 1}
)
SELECT look.now::text AS snapshot, look.at, found.run_id AS found_id, found.workflow AS found_workflow, r.*
FROM look LEFT JOIN found ON true LEFT JOIN runs r ON r.run_id = found.run_id
ORDER BY r.updated_at NULLS FIRST, found.run_id
"""  # noqa: S608 - fixed text


class PostgresChanges:
    """See `ChangeReader`. A look is one statement, which reads the runs that have owners and the end of the log."""

    pause = 0.0

    def __init__(self, fetch: Callable[..., Awaitable[Any]], after: str | None) -> None:
        self._fetch = fetch
        self._position = after

    async def look(self) -> Look:
        """See `ChangeReader`."""
        place = _POSITION.fullmatch(self._position or "")
        if place is None or not _is_snapshot(place[1]):
            [(snapshot, at)] = await self._fetch(_NOW)
            is_first, self._position = self._position is None, _written(snapshot, at)
            return Look(self._position, [], is_whole=is_first)
        rows = await self._fetch(LOOK, place[1])
        snapshot, at = rows[0]["snapshot"], rows[0]["at"]
        self._position = _written(snapshot, at)
        if at - float(place[2]) > _KEPT_S or _end(place[1]) > _end(snapshot):
            return Look(self._position, [], is_whole=False)
        changed = [_changed(row) for row in rows if row["found_id"] is not None]
        changed.sort(key=lambda each: each.row is not None)  # a run that is gone may have begun again
        return whole_or_not(self._position, changed)


def _is_snapshot(text: str) -> bool:
    """Tell whether PostgreSQL takes a text for a snapshot: those under way lie between the first and the last."""
    first, last, others = text.split(":")
    numbers = [int(first), *(int(each) for each in others.split(",") if each)]
    return int(first) <= int(last) and numbers[1:] == sorted(set(numbers[1:])) and max(numbers) <= int(last)


def _written(snapshot: str, at: float) -> str:
    return f"{snapshot}@{at:.3f}"


def _end(snapshot: str) -> int:
    """Return the first transaction that a snapshot knows nothing of. A restored database has fewer."""
    return int(snapshot.split(":")[1])


def _changed(row: Any) -> ChangedRun:
    run_id, workflow = row["found_id"], row["found_workflow"]
    return ChangedRun(run_id, workflow, listed_row(row) if row["workflow"] == workflow else None)

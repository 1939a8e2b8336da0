"""Reading runs. May import the records and this folder's helpers."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from loom.store.records import HeldRuns, Holder, StoredRun
from loom.store.sqlite import documents, suspects
from loom.store.sqlite.rows import (
    RUN_COLUMNS,
    chunks_of,
    mail_of,
    run_row,
    snapshot_of,
    timers_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.store.records import Chunk, Mail, RunRow
    from loom.store.sqlite.connection import Connection

_RUN = "SELECT {columns}, runs.id FROM runs WHERE run_id = ?".replace("{columns}", RUN_COLUMNS)
_KEY = "SELECT id FROM runs WHERE run_id = ?"
_START = "SELECT data FROM starts WHERE run = ?"
_SNAPSHOT = "SELECT ticks, checksum, data, link FROM snapshots WHERE run = ?"
_TIMERS = "SELECT seq, due, purpose FROM timers WHERE run = ? ORDER BY seq"
_EVENT_IDS = "SELECT event_id FROM event_ids WHERE run = ? ORDER BY event_id"
_MAIL = "SELECT id, data FROM inbox WHERE run = ? AND id > ? ORDER BY id"

# The chunk that holds a place is the last one that begins at it or before; the index finds that at once.
_CHUNKS = """SELECT first_tick, ticks, first_cursor, events, checksum, data, previous FROM chunks
WHERE run = ? AND first_tick + ticks > ? AND first_tick >=
COALESCE((SELECT MAX(first_tick) FROM chunks WHERE run = ? AND first_tick <= ?), 0)
ORDER BY first_tick, id LIMIT ?"""
_STREAM = """SELECT first_tick, ticks, first_cursor, events, checksum, data, previous FROM chunks
WHERE run = ? AND events > 0 AND first_cursor + events > ? AND first_tick >=
COALESCE((SELECT first_tick FROM chunks INDEXED BY chunks_by_cursor
    WHERE run = ? AND first_cursor <= ? AND (first_cursor + events) / 64 > first_cursor / 64
    ORDER BY first_cursor DESC LIMIT 1), 0)
ORDER BY first_tick, id LIMIT ?"""
_NO_LIMIT = -1
_ALL = -1
"""Behind this tick is every chunk, also a first one that has no tick."""

_TIMERS_DUE = """SELECT runs.run_id, timers.due FROM timers INDEXED BY timers_by_due
CROSS JOIN runs ON runs.id = timers.run
WHERE timers.due < ? AND runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND runs.workflow IN (SELECT value FROM json_each(?))
AND NOT EXISTS (SELECT 1 FROM timers AS other WHERE other.run = timers.run
    AND (other.due < timers.due OR (other.due = timers.due AND other.seq < timers.seq)))
ORDER BY timers.due, runs.run_id LIMIT ?"""

_BY_STATUS = "SELECT status, COUNT(*) FROM runs GROUP BY status"
_ENGINE = "SELECT fence, name, last_alive FROM engine"
_SILENT_S = 30.0
"""An engine notes every few seconds that it lives."""
_IDLE = "SELECT COUNT(*) FROM runs INDEXED BY runs_idle WHERE idle_since IS NOT NULL AND status = 'running'"
_IDLE_BY_WORKFLOW = """SELECT workflow, COUNT(*) FROM runs INDEXED BY runs_idle_by_workflow
WHERE idle_since IS NOT NULL AND status = 'running' GROUP BY workflow"""
_PARKED_BY_WORKFLOW = """SELECT workflow, COUNT(*), COUNT(idle_since) FROM runs INDEXED BY runs_parked
WHERE parked IS NOT NULL AND status = 'running' GROUP BY workflow"""
STUCK = "runs.status = 'running' AND runs.idle_since IS NOT NULL AND runs.waiting_for = '[]' AND runs.paused = 0 \
AND runs.parked IS NULL"
"""As `is_stuck` has it, in the words of the index of such runs."""
_STUCK_BY_WORKFLOW = f"SELECT workflow, COUNT(*) FROM runs INDEXED BY runs_stuck WHERE {STUCK} GROUP BY workflow"  # noqa: S608 - fixed text
_OWNED_BY = "SELECT run_id FROM runs INDEXED BY runs_owned WHERE owner = ?"
_OWNED_WITH_MAIL = """SELECT runs.run_id FROM (SELECT DISTINCT run FROM inbox) AS asking
CROSS JOIN runs ON runs.id = asking.run WHERE runs.owner = ?"""
_OWNED = "SELECT COUNT(*) FROM runs INDEXED BY runs_owned WHERE owner IS NOT NULL"


@contextmanager
def moment(connection: Connection) -> Iterator[None]:
    """All that is read within belongs to one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def get(connection: Connection, run_id: str) -> RunRow | None:
    """The row of a run."""
    rows = connection.query(_RUN, (run_id,))
    return run_row(rows[0]) if rows else None


def stored(connection: Connection, run_id: str, *, whole: bool) -> StoredRun | None:
    """Everything of a run, or what is needed to take it up."""
    with moment(connection):
        rows = connection.query(_RUN, (run_id,))
        if not rows:
            return None
        row, key = run_row(rows[0]), rows[0][-1]
        [(start,)] = connection.query(_START, (key,))
        snapshots = [snapshot_of(run_id, *row) for row in connection.query(_SNAPSHOT, (key,))]
        snapshot = snapshots[0] if snapshots else None
        behind = _ALL if whole or snapshot is None else snapshot.ticks
        return StoredRun(
            row,
            start,
            snapshot,
            tuple(chunks_of(run_id, connection.query(_CHUNKS, (key, behind, key, behind, _NO_LIMIT)))),
            tuple(mail_of(connection.query(_MAIL, (key, 0)))),
            tuple(timers_of(connection.query(_TIMERS, (key,)))),
            tuple(event_id for (event_id,) in connection.query(_EVENT_IDS, (key,))) if whole else (),
            documents.text(connection, row.document) if row.document is not None else None,
            msgspec.UNSET if whole else suspects.deaths_of(connection, key),
        )


def _key_of(connection: Connection, run_id: str) -> int | None:
    rows = connection.query(_KEY, (run_id,))
    return rows[0][0] if rows else None


def mail(connection: Connection, run_id: str, after: int) -> list[Mail]:
    """The mail of a run behind an id."""
    with moment(connection):
        return mail_of(connection.query(_MAIL, (_key_of(connection, run_id), after)))


def chunks(connection: Connection, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
    """Chunks, beginning with the one that holds this tick."""
    with moment(connection):
        key = _key_of(connection, run_id)
        return chunks_of(run_id, connection.query(_CHUNKS, (key, first_tick, key, first_tick, limit)))


def stream(connection: Connection, run_id: str, cursor: int, limit: int) -> list[Chunk]:
    """Chunks with events, beginning with the one that holds this cursor."""
    with moment(connection):
        key = _key_of(connection, run_id)
        return chunks_of(run_id, connection.query(_STREAM, (key, cursor, key, cursor, limit)))


def timers_due(
    connection: Connection, workflows: tuple[str, ...], before: float, limit: int
) -> list[tuple[str, float]]:
    """Runs that could be claimed for a timer, with the due time of their first one; earliest first."""
    names = msgspec.json.encode(workflows).decode()
    return [(run_id, due) for run_id, due in connection.query(_TIMERS_DUE, (before, names, limit))]


def holder(connection: Connection, fence: int, now: float) -> Holder:
    """The engine of a fence."""
    [(current, name, last_alive)] = connection.query(_ENGINE, ())
    alive = current == fence and last_alive is not None and now - last_alive <= _SILENT_S
    return Holder(name if current == fence else f"engine {fence}", alive=alive, seen=last_alive)


def counts(connection: Connection) -> dict[str, int]:
    """How many runs there are by status, plus `idle` and `owned`."""
    found = dict.fromkeys(("running", "completed", "failed", "cancelled"), 0)
    with moment(connection):
        found.update(connection.query(_BY_STATUS))
        [(found["idle"],)] = connection.query(_IDLE)
        [(found["owned"],)] = connection.query(_OWNED)
    return found


def held_counts(connection: Connection) -> dict[str, HeldRuns]:
    """Give the runs by workflow that wait for input, are parked or are stuck."""
    with moment(connection):
        idle = dict(connection.query(_IDLE_BY_WORKFLOW))
        parked = {name: (count, idle) for name, count, idle in connection.query(_PARKED_BY_WORKFLOW)}
        stuck = dict(connection.query(_STUCK_BY_WORKFLOW))
    found = {}
    for name in {**idle, **parked}:
        count, idle_too = parked.get(name, (0, 0))
        found[name] = HeldRuns(idle.get(name, 0) - idle_too - stuck.get(name, 0), count, stuck.get(name, 0))
    return found


def owned(connection: Connection, fence: int, with_mail: bool) -> list[str]:
    """The runs that a member owns."""
    return [run_id for (run_id,) in connection.query(_OWNED_WITH_MAIL if with_mail else _OWNED_BY, (fence,))]

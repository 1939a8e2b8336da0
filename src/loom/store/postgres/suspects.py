"""Marking the runs that died with members, and recovering those that are suspected. See `loom.store.deaths`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.store.deaths import TIMER_SLACK_S, Deaths, after_death
from loom.store.postgres.connections import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.operations import AcquitRun, ForgetDeaths, TryRun
    from loom.store.postgres.driver import Connection

# As all writers do, it locks rows of `runs` in the order of their keys, and only then those of `deaths`.
_AT_WORK = """
SELECT r.id, dead.fence, dead.died_at, d.marks, d.own, d.at, d.suspect, d.trial
FROM unnest($1::bigint[], $2::float8[]) AS dead (fence, died_at)
JOIN runs r ON r.owner = dead.fence LEFT JOIN deaths d ON d.run = r.id
WHERE r.status = 'running' AND r.parked IS NULL AND (
    r.needs_worker OR EXISTS (SELECT FROM inbox WHERE inbox.run = r.id)
    OR EXISTS (SELECT FROM timers WHERE timers.run = r.id AND timers.due <= dead.died_at + $3::float8)
) ORDER BY r.id FOR UPDATE OF r
"""
_MARK = """
INSERT INTO deaths (run, marks, own, at, suspect, fence)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::float8[], $5::boolean[], $6::bigint[])
ON CONFLICT (run) DO UPDATE SET marks = excluded.marks, own = excluded.own, at = excluded.at,
    suspect = excluded.suspect, trial = NULL, fence = excluded.fence
"""
_TRY = """
WITH next AS (
    SELECT r.id, r.run_id FROM deaths d JOIN runs r ON r.id = d.run
    WHERE d.suspect AND r.owner IS NULL AND r.status = 'running' AND r.parked IS NULL
    AND r.workflow = ANY ($2::text[]) AND (
        r.needs_worker OR EXISTS (SELECT FROM inbox WHERE inbox.run = r.id)
        OR EXISTS (SELECT FROM timers WHERE timers.run = r.id AND timers.due <= $3::float8)
    ) AND NOT EXISTS (
        SELECT FROM deaths o JOIN runs tried ON tried.id = o.run WHERE o.trial = $1::bigint AND tried.owner = $1::bigint
    ) ORDER BY d.own DESC, r.updated_at DESC, r.run_id LIMIT 1 FOR UPDATE OF r SKIP LOCKED
), owned AS (
    UPDATE runs SET owner = $1::bigint FROM next WHERE runs.id = next.id
), tried AS (
    UPDATE deaths SET trial = $1::bigint, at = $3::float8 FROM next WHERE deaths.run = next.id
)
SELECT run_id FROM next
"""
_ACQUIT = """
UPDATE deaths SET suspect = false, trial = NULL, at = $3::float8
WHERE run = (SELECT id FROM runs WHERE run_id = $1) AND trial = $2::bigint RETURNING true
"""
_FORGET = "DELETE FROM deaths WHERE run = (SELECT id FROM runs WHERE run_id = $1) RETURNING run"
_FORGET_MEMBER = "DELETE FROM deaths WHERE fence = $1::bigint RETURNING run"
_UNPARK = "UPDATE runs SET parked = NULL, needs_worker = true WHERE run_id = $1 AND owner = $2::bigint"
_POISON = "UPDATE deaths SET suspect = false, trial = NULL WHERE run = ANY ($1::bigint[])"
_EXPLAINED = "DELETE FROM deaths WHERE own = 0"


async def mark(connection: Connection, dead: Sequence[tuple[int, float]]) -> None:
    """Members have died, each after a last sign of life: mark what they were at work on."""
    rows: list[tuple[Any, ...]] = []
    for run, fence, died_at, *known in await connection.fetch(_AT_WORK, *columns(list(dead)), TIMER_SLACK_S):
        deaths = after_death(Deaths(*known) if known[0] is not None else None, died_at)
        rows.append((run, deaths.marks, deaths.own, deaths.at, deaths.suspect, fence))
    if rows:
        await connection.execute(_MARK, *columns(rows))


async def try_one(connection: Connection, asked: TryRun) -> list[str]:
    """Take up the next suspect, unless this member has one on probation."""
    return [row[0] for row in await connection.fetch(_TRY, asked.fence, list(asked.workflows), asked.now)]


async def acquit(connection: Connection, asked: AcquitRun) -> bool:
    """End a probation."""
    return bool(await connection.fetchval(_ACQUIT, asked.run_id, asked.fence, asked.now))


async def forget(connection: Connection, asked: ForgetDeaths) -> int:
    """Forget the deaths of a run, or of a member that lives."""
    if asked.run_id is None:
        return len(await connection.fetch(_FORGET_MEMBER, asked.fence))
    if asked.unparks:
        await connection.execute(_UNPARK, asked.run_id, asked.fence)
    return len(await connection.fetch(_FORGET, asked.run_id))


async def are_poison(connection: Connection, keys: Sequence[int]) -> None:
    """Runs are parked for the deaths that count for them, which explain those of others."""
    await connection.execute(_POISON, list(keys))
    await connection.execute(_EXPLAINED)

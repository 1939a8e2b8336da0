"""Members, with fences and leases by the database's clock, and the runs that died with them.

A member whose lease is over is deleted by the next member that beats or joins, and every run whose owner is no member
is freed. So a run cannot stay with a fence that is gone, whenever and however it got there. See `loom.store.deaths` for
the rules of unclean deaths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.store.deaths import TIMER_SLACK_S, Deaths, after_death
from loom.store.postgres.changes import TRIM
from loom.store.postgres.connections import columns
from loom.store.records import Holder, Member, MemberState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.operations import AcquitRun, ForgetDeaths, TryRun
    from loom.store.postgres.driver import Connection

_LOCK = "SELECT FROM liveness FOR UPDATE"

_EXPEL = """
WITH gone AS (
    DELETE FROM members WHERE fence IN (
        SELECT fence FROM members WHERE lease_until <= clock_timestamp() ORDER BY fence FOR UPDATE SKIP LOCKED
    ) RETURNING fence, seen_at
), noted AS (
    UPDATE liveness SET last_alive = greatest(last_alive, (SELECT max(seen_at) FROM gone))
    WHERE EXISTS (SELECT FROM gone)
)
SELECT fence, extract(epoch FROM seen_at)::float8 FROM gone
"""

_COUNT_DOWNTIME = """
UPDATE liveness SET downtime = downtime + greatest(0, extract(epoch FROM clock_timestamp() - last_alive)::float8)
WHERE last_alive IS NOT NULL AND NOT EXISTS (SELECT FROM members)
"""

_JOIN = """
INSERT INTO members (fence, name, seen_at, lease_until)
VALUES (nextval('fences'), $1, clock_timestamp(), clock_timestamp() + make_interval(secs => $2::float8))
RETURNING fence, (SELECT downtime FROM liveness)
"""

_BEAT = """
UPDATE members SET seen_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2::float8)
WHERE fence = $1 AND lease_until > clock_timestamp() RETURNING true
"""

# The owners are few, the runs many: it goes from one owner to the next through the index.
_FREE = """
WITH RECURSIVE owners AS (
    (SELECT owner FROM runs WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT r.owner FROM runs r WHERE r.owner > o.owner ORDER BY r.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL
), dead AS (
    SELECT owner FROM owners
    WHERE owner IS NOT NULL AND NOT EXISTS (SELECT FROM members WHERE members.fence = owners.owner)
), locked AS MATERIALIZED (
    SELECT r.id FROM runs r JOIN dead ON r.owner = dead.owner ORDER BY r.id FOR UPDATE OF r
)
UPDATE runs SET owner = NULL, free_since = updated_at FROM locked WHERE runs.id = locked.id
"""

_HOLDER = """
SELECT name, lease_until > clock_timestamp(), extract(epoch FROM seen_at)::float8,
    extract(epoch FROM lease_until)::float8
FROM members WHERE fence = $1
"""

_MEMBERS = """
SELECT m.name, m.lease_until > clock_timestamp(), m.fence, extract(epoch FROM m.seen_at)::float8,
    extract(epoch FROM m.lease_until)::float8, (SELECT count(*) FROM runs r WHERE r.owner = m.fence)
FROM members m ORDER BY m.name COLLATE "C", m.fence
"""

_LEAVE = """
WITH gone AS (DELETE FROM members WHERE fence = ANY ($1::bigint[]) RETURNING fence)
UPDATE liveness SET last_alive = clock_timestamp() WHERE EXISTS (SELECT FROM gone)
"""


async def join(connection: Connection, name: str, lease_s: float) -> Member:
    """Become a member. Any number may be, also of the same name."""
    async with connection.transaction():
        await connection.execute(_LOCK)
        await _expel(connection)
        await connection.execute(_COUNT_DOWNTIME)
        row = await connection.fetchrow(_JOIN, name, lease_s)
        await connection.execute(_FREE)
    assert row is not None
    return Member(*row)


async def beat(connection: Connection, fence: int, lease_s: float) -> bool:
    """Prolong a lease, if it is not over, and expel members whose lease is."""
    # By itself: a process that is stopped amid a transaction keeps its locks, and no member could expel it.
    alive = await connection.fetchval(_BEAT, fence, lease_s)
    async with connection.transaction():
        await _expel(connection)
        await connection.execute(_FREE)
    await connection.execute(TRIM)
    return bool(alive)


async def _expel(connection: Connection) -> None:
    """Delete the members whose lease is over, and mark the runs that died with them."""
    dead = await connection.fetch(_EXPEL)
    if dead:
        await _mark_deaths(connection, [(fence, seen_at) for fence, seen_at in dead])


async def holder(connection: Connection, fence: int) -> Holder:
    """Return a member by its fence. Of one that was expelled only the fence is known."""
    row = await connection.fetchrow(_HOLDER, fence)
    return Holder(*row) if row is not None else Holder(f"member {fence}", alive=False)


async def members(connection: Connection) -> list[MemberState]:
    """Return the members, by their names."""
    return [MemberState(*row) for row in await connection.fetch(_MEMBERS)]


async def leave(connection: Connection, fences: Sequence[int]) -> None:
    """Leave: the runs of these fences are free at once."""
    async with connection.transaction():
        await connection.execute(_LEAVE, list(fences))
        await connection.execute(_FREE)


# As all writers do, it locks rows of `runs` in the order of their keys, and only then rows of `deaths`.
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


async def _mark_deaths(connection: Connection, dead: Sequence[tuple[int, float]]) -> None:
    """Mark the runs that members were at work on when they died. `dead` has fences and last signs of life."""
    rows: list[tuple[Any, ...]] = []
    for run, fence, died_at, *known in await connection.fetch(_AT_WORK, *columns(list(dead)), TIMER_SLACK_S):
        deaths = after_death(Deaths(*known) if known[0] is not None else None, died_at)
        rows.append((run, deaths.marks, deaths.own, deaths.at, deaths.suspect, fence))
    if rows:
        await connection.execute(_MARK, *columns(rows))


async def try_one(connection: Connection, asked: TryRun) -> list[str]:
    """Claim the next suspect on probation, unless the member has one on probation already."""
    return [row[0] for row in await connection.fetch(_TRY, asked.fence, list(asked.workflows), asked.now)]


async def acquit(connection: Connection, asked: AcquitRun) -> bool:
    """End a probation."""
    return bool(await connection.fetchval(_ACQUIT, asked.run_id, asked.fence, asked.now))


async def forget_deaths(connection: Connection, asked: ForgetDeaths) -> int:
    """Forget the deaths of a run, or of a member that lives."""
    if asked.run_id is None:
        return len(await connection.fetch(_FORGET_MEMBER, asked.fence))
    if asked.unparks:
        await connection.execute(_UNPARK, asked.run_id, asked.fence)
    return len(await connection.fetch(_FORGET, asked.run_id))


async def mark_poison(connection: Connection, keys: Sequence[int]) -> None:
    """Clear parked runs of suspicion, and forget deaths of other runs: these runs explain them."""
    await connection.execute(_POISON, list(keys))
    await connection.execute(_EXPLAINED)

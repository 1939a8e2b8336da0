"""The processes that take runs up: fences and leases, by the database's clock. May import the records of loom.store.

A member whose lease is over is deleted by whoever beats or joins next, and every run whose owner is no member is freed.
Seen so, a run cannot stay with a fence that is gone, whenever and however it got there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.postgres import suspects
from loom.store.records import Holder, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Prolong a lease, if it is not over, and expel those whose lease is."""
    # By itself: a process that is stopped amid a transaction keeps its locks, and nobody could expel it.
    alive = await connection.fetchval(_BEAT, fence, lease_s)
    async with connection.transaction():
        await _expel(connection)
        await connection.execute(_FREE)
    return bool(alive)


async def _expel(connection: Connection) -> None:
    """Delete the members whose lease is over. They have died, and so has what they were at work on."""
    dead = await connection.fetch(_EXPEL)
    if dead:
        await suspects.mark(connection, [(fence, seen_at) for fence, seen_at in dead])


async def holder(connection: Connection, fence: int) -> Holder:
    """A member by its fence; one that was expelled is known by that alone."""
    row = await connection.fetchrow(_HOLDER, fence)
    return Holder(*row) if row is not None else Holder(f"member {fence}", alive=False)


async def leave(connection: Connection, fences: Sequence[int]) -> None:
    """Be a member no more: what these fences own is free at once."""
    async with connection.transaction():
        await connection.execute(_LEAVE, list(fences))
        await connection.execute(_FREE)

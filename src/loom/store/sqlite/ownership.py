"""Who owns which run: claims, releases, the place of the one engine; and the deletion of runs that have ended.

May import the operations and records of the store, and this folder's helpers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from loom.store.records import Member
from loom.store.sqlite import documents, suspects
from loom.store.sqlite.blocks import Many
from loom.store.sqlite.statements import DELETE_MAIL, DELETE_TIMERS, DELETE_WAITING

if TYPE_CHECKING:
    from loom.store.operations import ClaimRun, ClaimRuns, ParkRun, PurgeRuns, ReleaseRun
    from loom.store.sqlite.session import Session

_CLAIM_ANY = "UPDATE runs SET owner = ? WHERE run_id = ? AND owner ISNULL AND status = 'running'"
_CLAIM = f"{_CLAIM_ANY} AND {suspects.NOT_SUSPECTED}"
_IS_OWNER = "SELECT 1 FROM runs WHERE run_id = ? AND owner = ?"
_RELEASE = """UPDATE runs SET owner = NULL WHERE run_id = ? AND owner = ?
AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id)"""
_PARK = "UPDATE runs SET parked = ?, owner = NULL WHERE run_id = ? AND owner = ?"

# Three ways in which a run asks to be taken up. `CROSS JOIN` keeps the order in which the tables are visited.
_UNATTENDED = f"""SELECT updated_at, run_id, id FROM runs INDEXED BY runs_unattended
WHERE workflow = ? AND owner IS NULL AND status = 'running' AND needs_worker = 1 AND parked IS NULL
AND {suspects.NOT_SUSPECTED} ORDER BY updated_at, run_id LIMIT ?"""  # noqa: S608 - fixed text
_WITH_MAIL = f"""SELECT runs.updated_at, runs.run_id, runs.id
FROM (SELECT DISTINCT run FROM inbox) AS asking CROSS JOIN runs ON runs.id = asking.run
WHERE runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND {suspects.NOT_SUSPECTED}
AND runs.workflow IN (SELECT value FROM json_each(?)) ORDER BY runs.updated_at, runs.run_id LIMIT ?"""  # noqa: S608 - as above
_WITH_TIMER = f"""SELECT runs.updated_at, runs.run_id, runs.id
FROM (SELECT DISTINCT run FROM timers WHERE due <= ?) AS asking CROSS JOIN runs ON runs.id = asking.run
WHERE runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND {suspects.NOT_SUSPECTED}
AND runs.workflow IN (SELECT value FROM json_each(?)) ORDER BY runs.updated_at, runs.run_id LIMIT ?"""  # noqa: S608 - as above
_TAKE = Many("UPDATE runs SET owner = v.column2 FROM (VALUES {rows}) AS v WHERE runs.id = v.column1", 2)

_ENDED_BEFORE = """SELECT id, document FROM runs INDEXED BY runs_ended WHERE ended_at IS NOT NULL AND ended_at < ?
ORDER BY ended_at, run_id LIMIT ?"""
_ENDED = """SELECT id, document FROM runs
WHERE run_id = ? AND ended_at IS NOT NULL AND (? ISNULL OR ended_at < ?) LIMIT ?"""
_DELETE = (
    DELETE_MAIL,
    DELETE_TIMERS,
    DELETE_WAITING,
    Many("DELETE FROM tags WHERE run IN (VALUES {rows})", 1),
    Many("DELETE FROM event_ids WHERE run IN (VALUES {rows})", 1),
    Many("DELETE FROM snapshots WHERE run IN (VALUES {rows})", 1),
    Many("DELETE FROM chunks WHERE run IN (VALUES {rows})", 1),
    Many("DELETE FROM starts WHERE run IN (VALUES {rows})", 1),
    Many("DELETE FROM deaths WHERE run IN (VALUES {rows})", 1),
    Many("DELETE FROM runs WHERE id IN (VALUES {rows})", 1),
)

_ENGINE = "SELECT fence, last_alive, downtime FROM engine"
_JOIN = "UPDATE engine SET fence = ?, name = ?, last_alive = ?, downtime = ?"
_FREE_ALL = "UPDATE runs SET owner = NULL WHERE owner IS NOT NULL"
_STRETCH = (
    "SAVEPOINT stretch",
    "INSERT INTO starts (run, data) VALUES (-1, zeroblob(6500000))",
    "ROLLBACK TO stretch",
    "RELEASE stretch",
)
_BEAT = "UPDATE engine SET last_alive = ? WHERE fence = ?"


def claim(session: Session, asked: ClaimRun) -> bool:
    """Take one run up."""
    if session.connection.execute(_CLAIM_ANY if asked.suspected else _CLAIM, (asked.fence, asked.run_id)):
        return True
    return bool(session.connection.query(_IS_OWNER, (asked.run_id, asked.fence)))


def claim_many(session: Session, asked: ClaimRuns) -> list[str]:
    """Take up those that ask for it, longest waiting first."""
    connection, limit = session.connection, asked.limit
    workflows = msgspec.json.encode(asked.workflows).decode()
    asking = {row for name in asked.workflows for row in connection.query(_UNATTENDED, (name, limit))}
    asking.update(connection.query(_WITH_MAIL, (workflows, limit)))
    asking.update(connection.query(_WITH_TIMER, (asked.now, workflows, limit)))
    taken = sorted(asking)[:limit]
    _TAKE.execute(connection, [(key, asked.fence) for _, _, key in taken])
    return [run_id for _, run_id, _ in taken]


def release(session: Session, asked: ReleaseRun) -> bool:
    """Give a run up, unless it has mail."""
    if session.connection.execute(_RELEASE, (asked.run_id, asked.fence)):
        session.forget(asked.run_id)
        return True
    return not session.connection.query(_IS_OWNER, (asked.run_id, asked.fence))


def park(session: Session, asked: ParkRun) -> bool:
    """Note why a run cannot go on, and give it up."""
    session.forget(asked.run_id)
    if session.connection.execute(_PARK, (asked.reason, asked.run_id, asked.fence)) != 1:
        return False
    if asked.is_poison:
        suspects.is_poison(session, asked.run_id)
    return True


def purge(session: Session, asked: PurgeRuns) -> int:
    """Delete ended runs with everything that belongs to them."""
    if asked.run_id is not None:
        gone = session.connection.query(_ENDED, (asked.run_id, asked.ended_before, asked.ended_before, asked.limit))
    elif asked.ended_before is not None:
        gone = session.connection.query(_ENDED_BEFORE, (asked.ended_before, asked.limit))
    else:
        return 0
    keys = [(key,) for key, _ in gone]
    for statement in _DELETE:
        statement.execute(session.connection, keys)
    documents.drop_unused(session.connection, {digest for _, digest in gone if digest is not None})
    return len(keys)


def join(session: Session, name: str, now: float) -> Member:
    """Become the engine of this file. The one before owns nothing any more; if it did still, it has died."""
    [(fence, last_alive, downtime)] = session.connection.query(_ENGINE)
    suspects.mark(session, now if last_alive is None else last_alive)
    if last_alive is not None:
        downtime += max(0.0, now - last_alive)
    session.connection.execute(_JOIN, (fence + 1, name, now, downtime))
    session.connection.execute(_FREE_ALL)
    session.owned.clear()
    return Member(fence + 1, downtime)


def stretch(session: Session) -> None:
    """Make the write-ahead log as long as it will be, by writing to it what is undone at once.

    A commit that lengthens the file costs the file system a second write, half as much time again.
    """
    for statement in _STRETCH:
        session.connection.execute(statement)


def beat(session: Session, fence: int, now: float) -> bool:
    """Note that the engine lives; False if this fence is not that of the engine any more."""
    return session.connection.execute(_BEAT, (now, fence)) == 1


def leave(session: Session, fence: int, now: float) -> None:
    """Stop being the engine, and own nothing."""
    if beat(session, fence, now):
        session.connection.execute(_FREE_ALL)
        session.owned.clear()

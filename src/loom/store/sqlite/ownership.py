"""Who owns which run: the one engine and its lock, claims and releases, deaths and probation, and the deletion of runs.

See `loom.store.deaths` for the rules of unclean deaths.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from loom.store.deaths import TIMER_SLACK_S, Deaths, after_death
from loom.store.errors import StoreLocked, StoreUnavailable
from loom.store.records import Member
from loom.store.sqlite.connection import BulkStatement
from loom.store.sqlite.key_values import drop_unused_documents

if TYPE_CHECKING:
    from loom.store.operations import (
        AcquitRun,
        ClaimRun,
        ClaimRuns,
        ForgetDeaths,
        ParkRun,
        PurgeRuns,
        ReleaseRun,
        TryRun,
    )
    from loom.store.sqlite.connection import Connection, WriteSession


DELETE_WAITING = BulkStatement("DELETE FROM waiting WHERE run IN (VALUES {rows})", 1)
DELETE_TIMERS = BulkStatement("DELETE FROM timers WHERE run IN (VALUES {rows})", 1)
DELETE_TAGS = BulkStatement("DELETE FROM tags WHERE run IN (VALUES {rows})", 1)
DELETE_MESSAGES = BulkStatement("DELETE FROM inbox WHERE run IN (VALUES {rows})", 1)

_NOT_SUSPECTED = "runs.id NOT IN (SELECT run FROM deaths WHERE suspect = 1)"
"""The condition of a run that may be claimed without probation."""

_CLAIM_ANY = "UPDATE runs SET owner = ? WHERE run_id = ? AND owner ISNULL AND status = 'running'"
_CLAIM = f"{_CLAIM_ANY} AND {_NOT_SUSPECTED}"
_IS_OWNER = "SELECT 1 FROM runs WHERE run_id = ? AND owner = ?"
_RELEASE = """UPDATE runs SET owner = NULL WHERE run_id = ? AND owner = ?
AND NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id)"""
_PARK = "UPDATE runs SET parked = ?, owner = NULL WHERE run_id = ? AND owner = ?"

# Three ways in which a run needs an owner. `CROSS JOIN` keeps the order in which the tables are visited.
_UNATTENDED = f"""SELECT updated_at, run_id, id FROM runs INDEXED BY runs_unattended
WHERE workflow = ? AND owner IS NULL AND status = 'running' AND needs_worker = 1 AND parked IS NULL
AND {_NOT_SUSPECTED} ORDER BY updated_at, run_id LIMIT ?"""  # noqa: S608 - fixed text
_WITH_MESSAGES = f"""SELECT runs.updated_at, runs.run_id, runs.id
FROM (SELECT DISTINCT run FROM inbox) AS asking CROSS JOIN runs ON runs.id = asking.run
WHERE runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND {_NOT_SUSPECTED}
AND runs.workflow IN (SELECT value FROM json_each(?)) ORDER BY runs.updated_at, runs.run_id LIMIT ?"""  # noqa: S608 - as above
_WITH_TIMER = f"""SELECT runs.updated_at, runs.run_id, runs.id
FROM (SELECT DISTINCT run FROM timers WHERE due <= ?) AS asking CROSS JOIN runs ON runs.id = asking.run
WHERE runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND {_NOT_SUSPECTED}
AND runs.workflow IN (SELECT value FROM json_each(?)) ORDER BY runs.updated_at, runs.run_id LIMIT ?"""  # noqa: S608 - as above
_SET_OWNERS = BulkStatement("UPDATE runs SET owner = v.column2 FROM (VALUES {rows}) AS v WHERE runs.id = v.column1", 2)

_ENDED_BEFORE = """SELECT id, document FROM runs INDEXED BY runs_ended WHERE ended_at IS NOT NULL AND ended_at < ?
ORDER BY ended_at, run_id LIMIT ?"""
_ENDED = """SELECT id, document FROM runs
WHERE run_id = ? AND ended_at IS NOT NULL AND (? ISNULL OR ended_at < ?) LIMIT ?"""
_DELETE = (
    DELETE_MESSAGES,
    DELETE_TIMERS,
    DELETE_WAITING,
    DELETE_TAGS,
    BulkStatement("DELETE FROM event_ids WHERE run IN (VALUES {rows})", 1),
    BulkStatement("DELETE FROM snapshots WHERE run IN (VALUES {rows})", 1),
    BulkStatement("DELETE FROM chunks WHERE run IN (VALUES {rows})", 1),
    BulkStatement("DELETE FROM starts WHERE run IN (VALUES {rows})", 1),
    BulkStatement("DELETE FROM deaths WHERE run IN (VALUES {rows})", 1),
    BulkStatement("DELETE FROM runs WHERE id IN (VALUES {rows})", 1),
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


def claim(session: WriteSession, asked: ClaimRun) -> bool:
    """Claim one run."""
    if session.connection.execute(_CLAIM_ANY if asked.suspected else _CLAIM, (asked.fence, asked.run_id)):
        return True
    return bool(session.connection.query(_IS_OWNER, (asked.run_id, asked.fence)))


def claim_many(session: WriteSession, asked: ClaimRuns) -> list[str]:
    """Claim runs that need an owner, longest waiting first."""
    connection, limit = session.connection, asked.limit
    workflows = msgspec.json.encode(asked.workflows).decode()
    asking = {row for name in asked.workflows for row in connection.query(_UNATTENDED, (name, limit))}
    asking.update(connection.query(_WITH_MESSAGES, (workflows, limit)))
    asking.update(connection.query(_WITH_TIMER, (asked.now, workflows, limit)))
    taken = sorted(asking)[:limit]
    _SET_OWNERS.execute(connection, [(key, asked.fence) for _, _, key in taken])
    return [run_id for _, run_id, _ in taken]


def release(session: WriteSession, asked: ReleaseRun) -> bool:
    """Release a run, unless its inbox has messages."""
    if session.connection.execute(_RELEASE, (asked.run_id, asked.fence)):
        session.forget(asked.run_id)
        return True
    return not session.connection.query(_IS_OWNER, (asked.run_id, asked.fence))


def park(session: WriteSession, asked: ParkRun) -> bool:
    """Note why a run cannot go on, and release it."""
    session.forget(asked.run_id)
    if session.connection.execute(_PARK, (asked.reason, asked.run_id, asked.fence)) != 1:
        return False
    if asked.is_poison:
        _mark_poison(session, asked.run_id)
    return True


def purge(session: WriteSession, asked: PurgeRuns) -> int:
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
    drop_unused_documents(session.connection, {digest for _, digest in gone if digest is not None})
    return len(keys)


def join(session: WriteSession, name: str, now: float) -> Member:
    """Become the engine of this file. Runs that the engine before still owned died with it, and are freed."""
    [(fence, last_alive, downtime)] = session.connection.query(_ENGINE)
    _mark_deaths(session, now if last_alive is None else last_alive)
    if last_alive is not None:
        downtime += max(0.0, now - last_alive)
    session.connection.execute(_JOIN, (fence + 1, name, now, downtime))
    session.connection.execute(_FREE_ALL)
    session.owned.clear()
    return Member(fence + 1, downtime)


def stretch(session: WriteSession) -> None:
    """Make the write-ahead log as long as it will be, by writing to it what is undone at once.

    A commit that lengthens the file costs the file system a second write, half as much time again.
    """
    for statement in _STRETCH:
        session.connection.execute(statement)


def beat(session: WriteSession, fence: int, now: float) -> bool:
    """Note that the engine lives; False if another engine has joined since."""
    return session.connection.execute(_BEAT, (now, fence)) == 1


def leave(session: WriteSession, fence: int, now: float) -> None:
    """Stop being the engine, and own nothing."""
    if beat(session, fence, now):
        session.connection.execute(_FREE_ALL)
        session.owned.clear()


_AT_WORK = """SELECT runs.id, runs.owner, deaths.marks, deaths.own, deaths.at, deaths.suspect, deaths.trial
FROM runs INDEXED BY runs_owned LEFT JOIN deaths ON deaths.run = runs.id
WHERE runs.owner IS NOT NULL AND runs.status = 'running' AND runs.parked IS NULL
AND (runs.needs_worker = 1 OR EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id)
    OR EXISTS (SELECT 1 FROM timers WHERE timers.run = runs.id AND timers.due <= ?))"""
_MARK = BulkStatement(
    """INSERT OR REPLACE INTO deaths (run, marks, own, at, suspect, trial, fence)
    SELECT column1, column2, column3, column4, column5, NULL, column6 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    6,
)
_ON_TRIAL = "SELECT 1 FROM deaths JOIN runs ON runs.id = deaths.run WHERE deaths.trial = ? AND runs.owner = ?"
_NEXT = """SELECT runs.id, runs.run_id FROM deaths CROSS JOIN runs ON runs.id = deaths.run
WHERE deaths.suspect = 1 AND runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND runs.workflow IN (SELECT value FROM json_each(?))
AND (runs.needs_worker = 1 OR EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id)
    OR EXISTS (SELECT 1 FROM timers WHERE timers.run = runs.id AND timers.due <= ?))
ORDER BY deaths.own DESC, runs.updated_at DESC, runs.run_id LIMIT 1"""
_SET_OWNER = "UPDATE runs SET owner = ? WHERE id = ?"
_TRY = "UPDATE deaths SET trial = ?, at = ? WHERE run = ?"
_ACQUIT = """UPDATE deaths SET suspect = 0, trial = NULL, at = ? WHERE trial = ?
AND run = (SELECT id FROM runs WHERE run_id = ?)"""
_FORGET = "DELETE FROM deaths WHERE run = (SELECT id FROM runs WHERE run_id = ?)"
_FORGET_MEMBER = "DELETE FROM deaths WHERE fence = ?"
_UNPARK = "UPDATE runs SET parked = NULL, needs_worker = 1 WHERE run_id = ? AND owner = ?"
_POISON = """UPDATE deaths SET suspect = 0, trial = NULL WHERE run = (SELECT id FROM runs WHERE run_id = ?)"""
_EXPLAINED = "DELETE FROM deaths WHERE own = 0"
_DEATHS = "SELECT marks, own, at, suspect, trial FROM deaths WHERE run = ?"


def _mark_deaths(session: WriteSession, died_at: float) -> None:
    """Mark the runs that an engine was at work on when it died."""
    connection = session.connection
    rows = []
    for key, owner, *known in connection.query(_AT_WORK, (died_at + TIMER_SLACK_S,)):
        deaths = after_death(_deaths(known) if known[0] is not None else None, died_at)
        rows.append((key, deaths.marks, deaths.own, deaths.at, deaths.suspect, owner))
    _MARK.execute(connection, rows)


def try_one(session: WriteSession, asked: TryRun) -> list[str]:
    """Claim the next suspect on probation, unless the engine has one on probation already."""
    connection = session.connection
    if connection.query(_ON_TRIAL, (asked.fence, asked.fence)):
        return []
    found = connection.query(_NEXT, (msgspec.json.encode(asked.workflows).decode(), asked.now))
    for key, _ in found:
        connection.execute(_SET_OWNER, (asked.fence, key))
        connection.execute(_TRY, (asked.fence, asked.now, key))
    return [run_id for _, run_id in found]


def acquit(session: WriteSession, asked: AcquitRun) -> bool:
    """End a probation."""
    return session.connection.execute(_ACQUIT, (asked.now, asked.fence, asked.run_id)) == 1


def forget_deaths(session: WriteSession, asked: ForgetDeaths) -> int:
    """Forget the deaths of a run, or of an engine that lives."""
    if asked.run_id is None:
        return session.connection.execute(_FORGET_MEMBER, (asked.fence,))
    if asked.unparks:
        session.forget(asked.run_id)
        session.connection.execute(_UNPARK, (asked.run_id, asked.fence))
    return session.connection.execute(_FORGET, (asked.run_id,))


def _mark_poison(session: WriteSession, run_id: str) -> None:
    """Clear a parked run of suspicion, and forget deaths of other runs: this run explains them."""
    session.connection.execute(_POISON, (run_id,))
    session.connection.execute(_EXPLAINED)


def deaths_of(connection: Connection, key: int) -> Deaths | msgspec.UnsetType:
    """Return the deaths that count for a run."""
    rows = connection.query(_DEATHS, (key,))
    return _deaths(rows[0]) if rows else msgspec.UNSET


def _deaths(known: tuple[int, ...] | list[int]) -> Deaths:
    marks, own, at, suspect, trial = known
    return Deaths(marks, own, at, bool(suspect), trial)


_FAR_BYTE = 1 << 30
"""Windows locks bytes against reading too, so a byte is locked that the text never reaches."""


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


class EngineLock:
    """Lets one engine at a time work on a database file. The system frees it when the process ends."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._descriptor: int | None = None

    def take(self, name: str) -> None:
        """Take the lock; `StoreLocked` names the holder. An engine that has it already keeps it."""
        if self._descriptor is not None:
            return
        # Beside the file itself: whatever symbolic links lead to it, there is one lock.
        path = f"{os.path.realpath(self._database)}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise StoreUnavailable(f"The lock file {path} cannot be opened: {error.strerror}.") from error
        try:
            if not _try_lock(descriptor):
                os.lseek(descriptor, 0, os.SEEK_SET)
                raise self._refusal(os.read(descriptor, 1000))
            since = datetime.now().astimezone().isoformat(timespec="seconds")
            note = f"{name}, process {os.getpid()} on {socket.gethostname()}, since {since}"
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, note.encode("utf-8", "replace"))
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _taken.add(self)

    def release(self) -> None:
        """Free the lock. The file stays: removing it could take it away from the next engine."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            _taken.discard(self)
            os.close(descriptor)

    def _refusal(self, note: bytes) -> StoreLocked:
        holder = note.decode("utf-8", "replace") or "another process"
        return StoreLocked(
            f"Another engine works on the database {self._database}: {holder}. Only one may run its workflows; "
            "other processes may read it, start runs and send events. Stop that engine first, let this process be a "
            "client or a standby (when_locked), or use PostgreSQL for several.",
            holder=holder,
        )


_taken: WeakSet[EngineLock] = WeakSet()
"""The locks that this process has."""


def _forget_locks_of_parent() -> None:
    """Close the descriptors that a forked process has inherited.

    The system frees a lock when its last descriptor is closed. A child that outlives its parent would keep the lock.
    """
    for lock in list(_taken):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks_of_parent)

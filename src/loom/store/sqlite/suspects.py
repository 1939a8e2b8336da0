"""Marking the runs that died with an engine, and recovering those that are suspected. See `loom.store.deaths`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from loom.store.deaths import TIMER_SLACK_S, Deaths, after_death
from loom.store.sqlite.blocks import Many

if TYPE_CHECKING:
    from loom.store.operations import AcquitRun, ForgetDeaths, TryRun
    from loom.store.sqlite.connection import Connection
    from loom.store.sqlite.session import Session

NOT_SUSPECTED = "runs.id NOT IN (SELECT run FROM deaths WHERE suspect = 1)"
"""What must hold of a run that is claimed as usual."""

_AT_WORK = """SELECT runs.id, runs.owner, deaths.marks, deaths.own, deaths.at, deaths.suspect, deaths.trial
FROM runs INDEXED BY runs_owned LEFT JOIN deaths ON deaths.run = runs.id
WHERE runs.owner IS NOT NULL AND runs.status = 'running' AND runs.parked IS NULL
AND (runs.needs_worker = 1 OR EXISTS (SELECT 1 FROM inbox WHERE inbox.run = runs.id)
    OR EXISTS (SELECT 1 FROM timers WHERE timers.run = runs.id AND timers.due <= ?))"""
_MARK = Many(
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
_OWN = "UPDATE runs SET owner = ? WHERE id = ?"
_TRY = "UPDATE deaths SET trial = ?, at = ? WHERE run = ?"
_ACQUIT = """UPDATE deaths SET suspect = 0, trial = NULL, at = ? WHERE trial = ?
AND run = (SELECT id FROM runs WHERE run_id = ?)"""
_FORGET = "DELETE FROM deaths WHERE run = (SELECT id FROM runs WHERE run_id = ?)"
_FORGET_MEMBER = "DELETE FROM deaths WHERE fence = ?"
_UNPARK = "UPDATE runs SET parked = NULL, needs_worker = 1 WHERE run_id = ? AND owner = ?"
_POISON = """UPDATE deaths SET suspect = 0, trial = NULL WHERE run = (SELECT id FROM runs WHERE run_id = ?)"""
_EXPLAINED = "DELETE FROM deaths WHERE own = 0"
_DEATHS = "SELECT marks, own, at, suspect, trial FROM deaths WHERE run = ?"


def mark(session: Session, died_at: float) -> None:
    """The engine has died: mark what it was at work on."""
    connection = session.connection
    rows = []
    for key, owner, *known in connection.query(_AT_WORK, (died_at + TIMER_SLACK_S,)):
        deaths = after_death(_deaths(known) if known[0] is not None else None, died_at)
        rows.append((key, deaths.marks, deaths.own, deaths.at, deaths.suspect, owner))
    _MARK.execute(connection, rows)


def try_one(session: Session, asked: TryRun) -> list[str]:
    """Take up the next suspect, unless one is on probation."""
    connection = session.connection
    if connection.query(_ON_TRIAL, (asked.fence, asked.fence)):
        return []
    found = connection.query(_NEXT, (msgspec.json.encode(asked.workflows).decode(), asked.now))
    for key, _ in found:
        connection.execute(_OWN, (asked.fence, key))
        connection.execute(_TRY, (asked.fence, asked.now, key))
    return [run_id for _, run_id in found]


def acquit(session: Session, asked: AcquitRun) -> bool:
    """End a probation."""
    return session.connection.execute(_ACQUIT, (asked.now, asked.fence, asked.run_id)) == 1


def forget(session: Session, asked: ForgetDeaths) -> int:
    """Forget the deaths of a run, or of an engine that lives."""
    if asked.run_id is None:
        return session.connection.execute(_FORGET_MEMBER, (asked.fence,))
    if asked.unparks:
        session.forget(asked.run_id)
        session.connection.execute(_UNPARK, (asked.run_id, asked.fence))
    return session.connection.execute(_FORGET, (asked.run_id,))


def is_poison(session: Session, run_id: str) -> None:
    """A run is parked for the deaths that count for it, which explain those of others."""
    session.connection.execute(_POISON, (run_id,))
    session.connection.execute(_EXPLAINED)


def deaths_of(connection: Connection, key: int) -> Deaths | msgspec.UnsetType:
    """The deaths that a run was at work in."""
    rows = connection.query(_DEATHS, (key,))
    return _deaths(rows[0]) if rows else msgspec.UNSET


def _deaths(known: tuple[int, ...] | list[int]) -> Deaths:
    marks, own, at, suspect, trial = known
    return Deaths(marks, own, at, bool(suspect), trial)

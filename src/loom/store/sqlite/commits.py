"""Writing the commits of many runs at once. May import the records and the rest of this folder's helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.store.errors import StoreError
from loom.store.sqlite.blocks import Many
from loom.store.sqlite.rows import chunk_values, snapshot_values, text_of
from loom.store.sqlite.session import NotAllOwned, Owned
from loom.store.sqlite.statements import (
    ADD_CHUNKS,
    ADD_WAITING,
    DELETE_MAIL,
    DELETE_TIMERS,
    DELETE_WAITING,
    SET_SNAPSHOTS,
    SET_TIMERS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.operations import CommitRun
    from loom.store.sqlite.session import Session

# A chunk must follow on what is stored: if nobody knew whether a commit was written, it is not written twice.
# The plus keeps the index of owners out of it: a run is found by its key.
_HEADS = Many(
    """UPDATE runs SET ticks = v.column5, events = v.column6, updated_at = v.column7, kept = v.column8,
    downtime = v.column9 FROM (VALUES {rows}) AS v
    WHERE runs.id = v.column1 AND +runs.owner = v.column2
    AND (v.column3 ISNULL OR (runs.ticks = v.column3 AND runs.events = v.column4))""",
    9,
    single="""UPDATE runs SET ticks = ?5, events = ?6, updated_at = ?7, kept = ?8, downtime = ?9
    WHERE id = ?1 AND +owner = ?2 AND (?3 ISNULL OR (ticks = ?3 AND events = ?4))""",
)
_MARKS = Many(
    """UPDATE runs SET idle_since = v.column2, needs_worker = v.column3, paused = v.column4, parked = v.column5,
    error = v.column6 FROM (VALUES {rows}) AS v WHERE runs.id = v.column1""",
    6,
)
_WAITS = Many(
    """UPDATE runs SET waiters = v.column2, waiting_for = v.column3 FROM (VALUES {rows}) AS v
    WHERE runs.id = v.column1""",
    3,
)
_ENDS = Many(
    """UPDATE runs SET status = v.column2, owner = NULL, ended_at = updated_at, waiters = x'5b5d', waiting_for = '[]'
    FROM (VALUES {rows}) AS v WHERE runs.id = v.column1""",
    2,
)
_TIMERS_GONE = Many("DELETE FROM timers WHERE (run, seq) IN (VALUES {rows})", 2)
_MAIL_TAKEN = Many(
    """DELETE FROM inbox WHERE id IN
    (SELECT i.id FROM (VALUES {rows}) AS v CROSS JOIN inbox AS i ON i.id = v.column2 AND +i.run = v.column1)""",
    2,
)

_STATE = "SELECT owner, ticks, events FROM runs WHERE run_id = ?"
_COVERED = """SELECT MAX(first_tick + ticks) FROM chunks
WHERE run = ?1 AND first_tick <= ?2 AND first_tick + ticks <= ?2"""
_PRUNE = "DELETE FROM chunks WHERE run = ?1 AND first_tick <= ?2 AND first_tick + ticks <= ?2"
_FIRST_TICK = "UPDATE runs SET first_tick = ? WHERE id = ?"


def commit(session: Session, operations: Sequence[CommitRun]) -> list[bool]:
    """Write commits of different runs together: which of them were allowed.

    `NotAllOwned` if only some were; then nobody knows which, and the transaction must be rolled back.
    """
    found = [session.owned_run(operation.run_id, operation.fence) for operation in operations]
    allowed = [(operation, known) for operation, known in zip(operations, found, strict=True) if known is not None]
    if not _write_heads(session, allowed):
        allowed = []
    _write_rest(session, allowed)
    written = {operation.run_id for operation, _ in allowed}
    return [operation.run_id in written for operation in operations]


def _write_heads(session: Session, allowed: Sequence[tuple[CommitRun, Owned]]) -> bool:
    rows = []
    for operation, known in allowed:
        head, chunk = operation.head, operation.chunk
        follows = (None, None) if chunk is None else (chunk.first_tick, chunk.first_cursor)
        counted = (head.ticks, head.events, head.updated_at, head.kept, head.downtime)
        rows.append((known.key, operation.fence, *follows, *counted))
    if not rows or _HEADS.execute(session.connection, rows) == len(rows):
        return True
    if len(rows) > 1:
        raise NotAllOwned
    return _refused(session, allowed[0][0])


def _refused(session: Session, operation: CommitRun) -> bool:
    """False, because another member owns the run now; or an error, if it is the chunk that has no place."""
    session.forget(operation.run_id)
    chunk = operation.chunk
    [(owner, ticks, events)] = session.connection.query(_STATE, (operation.run_id,))
    if owner == operation.fence and chunk is not None:
        raise StoreError(
            f"Run {operation.run_id!r}: a chunk from tick {chunk.first_tick} and cursor {chunk.first_cursor} does not "
            f"follow its journal of {ticks} ticks and {events} events. Nothing was written."
        )
    return False


class _Changes:
    """The rows to write, by statement, in the order in which the statements run."""

    def __init__(self) -> None:
        self.chunks: list[tuple[Any, ...]] = []
        self.marks: list[tuple[Any, ...]] = []
        self.waits: list[tuple[Any, ...]] = []
        self.waiting_gone: list[tuple[int]] = []
        self.waiting_set: list[tuple[Any, ...]] = []
        self.timers_set: list[tuple[Any, ...]] = []
        self.timers_gone: list[tuple[int, int]] = []
        self.mail_taken: list[tuple[int, int]] = []
        self.snapshots: list[tuple[Any, ...]] = []
        self.ends: list[tuple[int, str]] = []
        self.ended: list[tuple[int]] = []

    def in_order(self) -> tuple[tuple[Many, Sequence[tuple[Any, ...]]], ...]:
        return (
            (ADD_CHUNKS, self.chunks),
            (_MARKS, self.marks),
            (_WAITS, self.waits),
            (DELETE_WAITING, self.waiting_gone),
            (ADD_WAITING, self.waiting_set),
            (SET_TIMERS, self.timers_set),
            (_TIMERS_GONE, self.timers_gone),
            (_MAIL_TAKEN, self.mail_taken),
            (SET_SNAPSHOTS, self.snapshots),
            (_ENDS, self.ends),
            (DELETE_TIMERS, self.ended),
            (DELETE_MAIL, self.ended),
        )


def _write_rest(session: Session, allowed: Sequence[tuple[CommitRun, Owned]]) -> None:
    changes = _Changes()
    for operation, known in allowed:
        if operation.chunk is not None:
            changes.chunks.append(chunk_values(known.key, operation.chunk))
        _compare_heads(session, operation, known, changes)
        _gather_rows(operation, known.key, changes)
        if operation.head.status != "running":
            _gather_end(session, operation, known.key, changes)
    for statement, rows in changes.in_order():
        if rows:
            statement.execute(session.connection, rows)
    for operation, known in allowed:
        if operation.prune and operation.snapshot is not None:
            _prune(session, known.key, operation.snapshot.ticks)


def _compare_heads(session: Session, operation: CommitRun, known: Owned, changes: _Changes) -> None:
    """Only what differs from what is stored is written: most of it is in indexes."""
    head = operation.head
    marks = (head.idle_since, head.needs_worker, head.paused, head.parked, head.error)
    waits = (head.waiters, head.waiting_for) if operation.waiting_changed else known.waits
    if marks == known.marks and waits == known.waits:
        return
    if marks != known.marks:
        changes.marks.append((known.key, *marks))
    if waits != known.waits and head.status == "running":
        changes.waits.append((known.key, waits[0], text_of(waits[1])))
        if waits[1] != known.waits[1]:
            changes.waiting_gone.append((known.key,))
            changes.waiting_set.extend((known.key, event_type, known.created_at) for event_type in waits[1])
    session.remember(operation.run_id, Owned(known.key, known.created_at, marks, waits))


def _gather_rows(operation: CommitRun, key: int, changes: _Changes) -> None:
    if operation.timers_set:
        changes.timers_set.extend((key, timer.seq, timer.due, timer.purpose) for timer in operation.timers_set)
    if operation.timers_gone:
        changes.timers_gone.extend((key, seq) for seq in operation.timers_gone)
    if operation.mail_taken:
        changes.mail_taken.extend((key, number) for number in operation.mail_taken)
    if operation.snapshot is not None:
        changes.snapshots.append(snapshot_values(key, operation.snapshot))


def _gather_end(session: Session, operation: CommitRun, key: int, changes: _Changes) -> None:
    changes.ends.append((key, operation.head.status))
    changes.ended.append((key,))
    changes.waiting_gone.append((key,))
    session.forget(operation.run_id)
    session.news[operation.run_id] = key


def _prune(session: Session, key: int, ticks: int) -> None:
    """Delete the chunks that a snapshot covers wholly."""
    [(first_tick,)] = session.connection.query(_COVERED, (key, ticks))
    if first_tick is not None:
        session.connection.execute(_PRUNE, (key, ticks))
        session.connection.execute(_FIRST_TICK, (first_tick, key))

"""Writing the commits of many runs at once. May import the records and the rest of this folder's helpers."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any
from zlib import crc32

from loom.store.errors import StoreError
from loom.store.sqlite import documents
from loom.store.sqlite.blocks import MOST, Many
from loom.store.sqlite.connection import is_refusal
from loom.store.sqlite.rows import snapshot_values, text_of
from loom.store.sqlite.session import Owned
from loom.store.sqlite.statements import (
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

_ADD = Many(
    """INSERT INTO commits (run, fence, ticks, events, updated_at, kept, downtime, link, mac,
    first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data, previous)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11,
    column12, column13, column14, column15, column16 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    16,
    single="""INSERT INTO commits (run, fence, ticks, events, updated_at, kept, downtime, link, mac,
    first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data, previous)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
)
"""The view does what it says in the schema."""
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
_DOCUMENTS = Many("UPDATE runs SET document = v.column2 FROM (VALUES {rows}) AS v WHERE runs.id = v.column1", 2)
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
WHERE run = ? AND first_tick <= ? AND first_tick + ticks <= ?"""
_PRUNE = "DELETE FROM chunks WHERE run = ? AND first_tick <= ? AND first_tick + ticks <= ?"
_FIRST_TICK = "UPDATE runs SET first_tick = ? WHERE id = ?"


def commit(session: Session, operations: Sequence[CommitRun]) -> list[bool]:
    """Write commits of different runs together: which of them were allowed."""
    found = ((operation, session.owned_run(operation.run_id, operation.fence)) for operation in operations)
    owned = [(operation, known) for operation, known in found if known is not None]
    written: list[tuple[CommitRun, Owned]] = []
    for first in range(0, len(owned), MOST):
        written.extend(_add(session, owned[first : first + MOST]))
    _write_rest(session, written)
    run_ids = {operation.run_id for operation, _ in written}
    return [operation.run_id in run_ids for operation in operations]


def commit_at_once(session: Session, operation: CommitRun) -> bool:
    """Write a commit that only goes on in one statement, which is a transaction by itself.

    False if it must go the usual way: it changes more, or is refused there.
    """
    known = session.owned.get(operation.run_id)
    if known is None or not _only_goes_on(operation, known):
        return False
    try:
        _ADD.execute(session.connection, [_row(operation, known.key)])
    except sqlite3.IntegrityError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def _only_goes_on(operation: CommitRun, known: Owned) -> bool:
    return (
        operation.head.status == "running"
        and not (operation.timers_set or operation.timers_gone or operation.mail_taken or operation.sent)
        and operation.snapshot is None
        and not operation.prune
        and (operation.document is None or known.document is not None)
        and _marks(operation) == known.marks
        and _waits(operation, known) == known.waits
    )


def _add(session: Session, owned: Sequence[tuple[CommitRun, Owned]]) -> Sequence[tuple[CommitRun, Owned]]:
    """Write heads and chunks: those that were allowed. A statement that is refused has changed nothing."""
    try:
        _ADD.execute(session.connection, [_row(operation, known.key) for operation, known in owned])
    except sqlite3.IntegrityError as error:
        if not is_refusal(error):
            raise
        if len(owned) > 1:
            return [pair for one in owned for pair in _add(session, [one])]
        _check_owner_gone(session, owned[0][0])
        return []
    return owned


def _row(operation: CommitRun, key: int) -> tuple[Any, ...]:
    head, chunk = operation.head, operation.chunk
    fields = (key, operation.fence, head.ticks, head.events, head.updated_at, head.kept, head.downtime)
    if chunk is None:
        return (*fields, head.link, head.mac, None, None, None, None, None, None, None)
    data = chunk.data
    place = chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events
    return (*fields, head.link, head.mac, *place, crc32(data), data, chunk.previous)


def _check_owner_gone(session: Session, operation: CommitRun) -> None:
    """A commit was refused because another member owns its run, unless it is the chunk that has no place."""
    session.forget(operation.run_id)
    chunk = operation.chunk
    for owner, ticks, events in session.connection.query(_STATE, (operation.run_id,)):
        if owner == operation.fence and chunk is not None:
            raise StoreError(
                f"Run {operation.run_id!r}: a chunk from tick {chunk.first_tick} and cursor {chunk.first_cursor} does "
                f"not follow its journal of {ticks} ticks and {events} events. Nothing was written."
            )


class _Changes:
    """The rows to write, by statement, in the order in which the statements run."""

    def __init__(self) -> None:
        self.marks: list[tuple[Any, ...]] = []
        self.waits: list[tuple[Any, ...]] = []
        self.documents: list[tuple[int, str]] = []
        self.texts: dict[str, tuple[bytes, float]] = {}
        """Of those documents, by digest: text and time."""
        self.waiting_gone: list[tuple[int]] = []
        self.waiting_set: list[tuple[Any, ...]] = []
        self.timers_set: list[tuple[Any, ...]] = []
        self.timers_gone: list[tuple[int, int]] = []
        self.mail_taken: list[tuple[int, int]] = []
        self.snapshots: list[tuple[Any, ...]] = []
        self.ends: list[tuple[int, str]] = []
        self.ended: list[tuple[int]] = []
        self.mail_gone: list[tuple[int]] = []
        """Of those, the runs that cannot be retried: nobody takes their mail any more."""

    def in_order(self) -> tuple[tuple[Many, Sequence[tuple[Any, ...]]], ...]:
        return (
            (_MARKS, self.marks),
            (_WAITS, self.waits),
            (_DOCUMENTS, self.documents),
            (DELETE_WAITING, self.waiting_gone),
            (ADD_WAITING, self.waiting_set),
            (SET_TIMERS, self.timers_set),
            (_TIMERS_GONE, self.timers_gone),
            (_MAIL_TAKEN, self.mail_taken),
            (SET_SNAPSHOTS, self.snapshots),
            (_ENDS, self.ends),
            (DELETE_TIMERS, self.ended),
            (DELETE_MAIL, self.mail_gone),
        )


def _write_rest(session: Session, allowed: Sequence[tuple[CommitRun, Owned]]) -> None:
    changes = _Changes()
    for operation, known in allowed:
        _compare_heads(session, operation, known, changes)
        _gather_rows(operation, known.key, changes)
        if operation.head.status != "running":
            _gather_end(session, operation, known.key, changes)
    for statement, rows in changes.in_order():
        if rows:
            statement.execute(session.connection, rows)
    for digest, (data, at) in changes.texts.items():
        documents.keep(session.connection, digest, data, at)
    for operation, known in allowed:
        if operation.prune:
            _prune(session, known.key, operation.prune)


def _compare_heads(session: Session, operation: CommitRun, known: Owned, changes: _Changes) -> None:
    """Only what differs from what is stored is written: most of it is in indexes."""
    marks, waits, document = _marks(operation), _waits(operation, known), known.document
    brought = operation.document if document is None else None
    if marks == known.marks and waits == known.waits and brought is None:
        return
    if marks != known.marks:
        changes.marks.append((known.key, *marks))
    if waits != known.waits and operation.head.status == "running":
        changes.waits.append((known.key, waits[0], text_of(waits[1])))
        if waits[1] != known.waits[1]:
            changes.waiting_gone.append((known.key,))
            changes.waiting_set.extend((known.key, event_type, known.created_at) for event_type in waits[1])
    if brought is not None:
        document, data = brought
        changes.documents.append((known.key, document))
        changes.texts.setdefault(document, (data, operation.head.updated_at))
    session.remember(operation.run_id, Owned(known.key, known.created_at, marks, waits, document))


def _marks(operation: CommitRun) -> tuple[Any, ...]:
    head = operation.head
    return head.idle_since, head.needs_worker, head.paused, head.parked, head.error


def _waits(operation: CommitRun, known: Owned) -> tuple[bytes, tuple[str, ...]]:
    return (operation.head.waiters, operation.head.waiting_for) if operation.waiting_changed else known.waits


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
    if operation.head.status != "failed":
        changes.mail_gone.append((key,))
    changes.waiting_gone.append((key,))
    session.forget(operation.run_id)
    session.news[operation.run_id] = key


def _prune(session: Session, key: int, ticks: int) -> None:
    """Delete the chunks that lie wholly within the first ticks."""
    [(first_tick,)] = session.connection.query(_COVERED, (key, ticks, ticks))
    if first_tick is not None:
        session.connection.execute(_PRUNE, (key, ticks, ticks))
        session.connection.execute(_FIRST_TICK, (first_tick, key))

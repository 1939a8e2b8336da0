"""Transactions of the writer: starts, inbox messages, commits and imports, written together in their order.

A group that is one plain commit takes a fast path: one statement, which is a transaction by itself. Other commits are
written by bulk statements, whatever the number of runs. What the session remembers of an owned run keeps columns that
have not changed from being written again: most of them are in indexes.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from msgspec.structs import replace

from loom.store.operations import (
    AcquitRun,
    ClaimRun,
    ClaimRuns,
    CommitRun,
    ForgetDeaths,
    ImportRun,
    ParkRun,
    Posted,
    PostMessage,
    PurgeRuns,
    ReleaseRun,
    SetTags,
    SignHead,
    Started,
    StartRun,
    TryRun,
)
from loom.store.rules import (
    NO_RUN,
    CommitEffects,
    Receiver,
    does_not_follow,
    effects_of_commit,
    mac_of_reopened,
    refusal_of_full_inbox,
    refusal_of_message,
    replaced_tags,
    row_of_start,
    start_notifies,
)
from loom.store.sqlite import ownership
from loom.store.sqlite.connection import (
    MAX_ROWS,
    BulkStatement,
    Owned,
    is_refusal,
    patiently,
    primary_code,
)
from loom.store.sqlite.key_values import keep_document
from loom.store.sqlite.ownership import DELETE_MESSAGES, DELETE_TAGS, DELETE_TIMERS, DELETE_WAITING
from loom.store.sqlite.rows import INSERT_RUN, chunk_values, run_values, snapshot_values, tags_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.operations import Operation, Result
    from loom.store.records import RunRow, StoredRun
    from loom.store.sqlite.connection import Connection, WriteSession

T = TypeVar("T")

_LARGE = 4 << 20
"""Bytes. A larger value must not stay in memory because it was written once."""


def transact(
    session: WriteSession, works: Sequence[Callable[[WriteSession], object]]
) -> tuple[list[object], list[str]]:
    """Do all works in one transaction. Return their results, and the runs to notify of."""
    session.notified = {}
    session.outcome_unknown = False
    session.file.check()
    plain = works[0].plain_commit(session) if len(works) == 1 and isinstance(works[0], Group) else None
    if plain is not None and patiently(
        partial(_committing, session, partial(_commit_at_once, session, plain)), session.patience
    ):
        return [[True]], []
    connection = session.connection
    patiently(partial(connection.execute, "BEGIN IMMEDIATE"), session.patience)
    try:
        results = [work(session) for work in works]
        if session.notified:
            session.write_notifications()
        _committing(session, partial(connection.execute, "COMMIT"))
    except BaseException:
        # What was remembered in this transaction has not happened.
        session.owned.clear()
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results, list(session.notified)


def _committing(session: WriteSession, action: Callable[[], T]) -> T:
    """Do an action that makes a transaction durable. If the disk fails in it, the outcome is unknown."""
    try:
        return action()
    except sqlite3.Error as error:
        session.outcome_unknown = primary_code(error) == sqlite3.SQLITE_IOERR
        raise


class Group:
    """Operations that share a transaction."""

    __slots__ = ("_operations",)

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations

    def __call__(self, session: WriteSession) -> list[Result]:
        """Do the operations within a transaction. Return their results in their order."""
        applying = _Applying(session, len(self._operations))
        for place, operation in enumerate(self._operations):
            applying.add(place, operation)
        applying.catch_up()
        return applying.results

    def plain_commit(self, session: WriteSession) -> tuple[Any, ...] | None:
        """Return the row of a group that is one plain commit; None if the group must go the usual way."""
        if len(self._operations) != 1 or not isinstance(self._operations[0], CommitRun):
            return None
        operation = self._operations[0]
        known = session.owned.get(operation.run_id)
        if known is None or not _is_plain(operation, known):
            return None
        session.is_swollen |= _is_large(operation)
        return _commit_row(operation, known.key)


class _Applying:
    """Gathers commits, to write them together.

    Operations on different runs may change places, so gathered commits go first and the others follow. Everything
    gathered is written first where an order could be noticed: the same run, operations on many runs, what a run sends,
    and which text of a document is the first.
    """

    def __init__(self, session: WriteSession, count: int) -> None:
        self.results: list[Result] = [False] * count
        self._session = session
        self._commits: dict[str, tuple[int, CommitRun]] = {}
        self._others: list[tuple[int, Operation]] = []
        self._runs_of_others: set[str] = set()

    def add(self, place: int, operation: Operation) -> None:
        """Gather or do the next operation."""
        if isinstance(operation, CommitRun):
            run_id = operation.run_id
            brings_text = operation.document is not None and bool(self._others)
            if brings_text or run_id in self._commits or run_id in self._runs_of_others:
                self.catch_up()
            self._commits[run_id] = (place, operation)
            if operation.sent:
                self.catch_up()
                self._send(place, operation)
        elif type(operation) in _OF_ONE_RUN:
            self._others.append((place, operation))
            self._runs_of_others.add(operation.run_id)  # type: ignore[union-attr, arg-type] # they all have one
        elif type(operation) in _OF_MANY:
            self.catch_up()
            self.results[place] = _OF_MANY[type(operation)](self._session, operation)
        else:
            raise TypeError(f"Not an operation of a store: {operation!r}")

    def catch_up(self) -> None:
        """Do all that was gathered."""
        if self._commits:
            places, operations = zip(*self._commits.values(), strict=True)
            self._commits.clear()
            self._session.is_swollen |= any(map(_is_large, operations))
            for place, result in zip(places, _commit(self._session, operations), strict=True):
                self.results[place] = result
        for place, other in self._others:
            self.results[place] = _OF_ONE_RUN[type(other)](self._session, other)
        self._others.clear()
        self._runs_of_others.clear()

    def _send(self, place: int, operation: CommitRun) -> None:
        if self.results[place]:
            for sent in operation.sent:
                _OF_ONE_RUN[type(sent)](self._session, sent)


def _is_large(operation: CommitRun) -> bool:
    chunk, snapshot = operation.chunk, operation.snapshot
    return (chunk is not None and len(chunk.data) > _LARGE) or (snapshot is not None and len(snapshot.data) > _LARGE)


# -- starts, messages, imports ----------------------------------------------------------------------------------------


_INSERT_START = "INSERT INTO starts (run, data) VALUES (?, ?)"
_STARTED = "SELECT runs.workflow, starts.data FROM runs JOIN starts ON starts.run = runs.id WHERE runs.run_id = ?"

_RECEIVER = """SELECT id, kept, status, ticks, EXISTS (SELECT 1 FROM event_ids WHERE run = runs.id AND event_id = ?)
FROM runs WHERE run_id = ?"""
_COUNT_MESSAGES = "SELECT COUNT(*) FROM inbox WHERE run = ?"
_INSERT_MESSAGE = "INSERT INTO inbox (run, at, data) VALUES (?, ?, ?)"
_REOPEN = "UPDATE runs SET status = 'running', needs_worker = 1, error = NULL, ended_at = NULL, mac = ? WHERE id = ?"
# Only a row that is as it was read: its owner may have gone on since.
_SIGN = """UPDATE runs SET mac = ? WHERE run_id = ? AND workflow = ? AND status = ? AND ticks = ? AND events = ?
AND document IS ? AND mac ISNULL"""
_TAGS = "SELECT id, created_at, tags FROM runs WHERE run_id = ?"
_SET_TAGS = "UPDATE runs SET tags = ? WHERE id = ?"
_INSERT_EVENT_ID = "INSERT INTO event_ids (run, event_id) VALUES (?, ?)"

_ADD_CHUNKS = BulkStatement(
    """INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data, previous)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8 FROM (VALUES {rows})
    WHERE column1 NOTNULL""",
    8,
)
_SET_SNAPSHOTS = BulkStatement(
    """INSERT OR REPLACE INTO snapshots (run, ticks, checksum, data, link)
    SELECT column1, column2, column3, column4, column5 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    5,
)
_SET_TIMERS = BulkStatement(
    """INSERT OR REPLACE INTO timers (run, seq, due, purpose)
    SELECT column1, column2, column3, column4 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    4,
)
_ADD_WAITING = BulkStatement(
    """INSERT OR IGNORE INTO waiting (run, event_type, created_at)
    SELECT column1, column2, column3 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    3,
)
_ADD_TAGS = BulkStatement(
    """INSERT INTO tags (run, name, value, created_at)
    SELECT column1, column2, column3, column4 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    4,
)
_ADD_MESSAGES = BulkStatement(
    """INSERT INTO inbox (run, at, data)
    SELECT column1, column2, column3 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    3,
)
_ADD_EVENT_IDS = BulkStatement(
    """INSERT OR IGNORE INTO event_ids (run, event_id)
    SELECT column1, column2 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    2,
)


def _start(session: WriteSession, asked: StartRun) -> Started:
    """Accept a run, or say which run has its id."""
    if _insert_run(session, row_of_start(asked), asked.start):
        if asked.document is not None:
            keep_document(session.connection, *asked.document, asked.created_at)
        if asked.message is not None:
            _post(session, asked.message)
        return Started(True)
    [(workflow, data)] = session.connection.query(_STARTED, (asked.run_id,))
    return Started(False, workflow, data)


def _insert_run(session: WriteSession, row: RunRow, start: bytes) -> int | None:
    """Insert the row of a run and return its key; None if its id is taken."""
    inserted = session.connection.query(INSERT_RUN, run_values(row))
    if not inserted:
        return None
    key: int = inserted[0][0]
    session.connection.execute(_INSERT_START, (key, start))
    if row.tags:
        tags = [(key, name, value, row.created_at) for name, value in row.tags.items()]
        _ADD_TAGS.execute(session.connection, tags)
    if start_notifies(row.owner):
        session.notified[row.run_id] = key
    return key


def _post(session: WriteSession, asked: PostMessage) -> Posted:
    """Accept a message for a run, or say why not."""
    connection = session.connection
    found = connection.query(_RECEIVER, (asked.event_id, asked.run_id))
    if not found:
        return NO_RUN
    [(key, early, *read)] = found
    refusal = refusal_of_message(asked, Receiver(*read))
    if refusal is None and asked.limit is not None:
        refusal = refusal_of_full_inbox(asked, early + connection.query(_COUNT_MESSAGES, (key,))[0][0])
    if refusal is not None:
        return refusal
    if asked.reopens:
        connection.execute(_REOPEN, (mac_of_reopened(asked), key))
    if asked.event_id is not None:
        connection.execute(_INSERT_EVENT_ID, (key, asked.event_id))
    connection.execute(_INSERT_MESSAGE, (key, asked.at, asked.data))
    session.notified[asked.run_id] = key
    return Posted("posted")


def _sign(session: WriteSession, asked: SignHead) -> bool:
    """Sign a row that has no signature, if it is as it was read."""
    row, head = asked.row, asked.row.head
    values = (head.mac, row.run_id, row.workflow, head.status, head.ticks, head.events, row.document)
    return session.connection.execute(_SIGN, values) == 1


def _set_tags(session: WriteSession, asked: SetTags) -> bool:
    """Replace the tags of a run."""
    connection = session.connection
    found = connection.query(_TAGS, (asked.run_id,))
    for key, created_at, text in found:
        tags = replaced_tags(asked, tags_of(text))
        connection.execute(_SET_TAGS, (text_of(tags), key))
        DELETE_TAGS.execute(connection, [(key,)])
        _ADD_TAGS.execute(connection, [(key, name, value, created_at) for name, value in tags.items()])
    return bool(found)


def _import_run(session: WriteSession, asked: ImportRun) -> bool:
    """Store a whole run without an owner. Its messages get new numbers: the old ones may be taken here."""
    run = asked.run
    key = _insert_run(session, replace(run.row, owner=None), run.start)
    if key is None:
        return False
    _insert_parts(session.connection, key, run)
    return True


def _insert_parts(connection: Connection, key: int, run: StoredRun) -> None:
    row = run.row
    if row.document is not None and run.document is not None:
        keep_document(connection, row.document, run.document, row.created_at)
    if run.snapshot is not None:
        _SET_SNAPSHOTS.execute(connection, [snapshot_values(key, run.snapshot)])
    _ADD_WAITING.execute(connection, [(key, event_type, row.created_at) for event_type in row.head.waiting_for])
    _ADD_CHUNKS.execute(connection, [chunk_values(key, chunk) for chunk in run.chunks])
    _SET_TIMERS.execute(connection, [(key, timer.seq, timer.due, timer.purpose) for timer in run.timers])
    _ADD_MESSAGES.execute(connection, [(key, row.head.updated_at, message.data) for message in run.inbox])
    _ADD_EVENT_IDS.execute(connection, [(key, event_id) for event_id in run.event_ids])


# -- commits ----------------------------------------------------------------------------------------------------------


_ADD_COMMIT = """INSERT INTO commits (run, fence, ticks, events, updated_at, kept, downtime, link, mac,
first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data, previous)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_ADD_COMMITS = BulkStatement(
    """INSERT INTO commits (run, fence, ticks, events, updated_at, kept, downtime, link, mac,
    first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data, previous)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, column11,
    column12, column13, column14, column15, column16 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    16,
    single=_ADD_COMMIT,
)
"""Inserts into a view, whose trigger in the schema writes the row and the chunk, or refuses."""
_SET_MARKS = BulkStatement(
    """UPDATE runs SET idle_since = v.column2, needs_worker = v.column3, paused = v.column4, parked = v.column5,
    error = v.column6 FROM (VALUES {rows}) AS v WHERE runs.id = v.column1""",
    6,
)
_SET_WAITS = BulkStatement(
    """UPDATE runs SET waiters = v.column2, waiting_for = v.column3 FROM (VALUES {rows}) AS v
    WHERE runs.id = v.column1""",
    3,
)
_SET_DOCUMENTS = BulkStatement(
    "UPDATE runs SET document = v.column2 FROM (VALUES {rows}) AS v WHERE runs.id = v.column1", 2
)
_END_RUNS = BulkStatement(
    """UPDATE runs SET status = v.column2, owner = NULL, ended_at = updated_at, waiters = x'5b5d', waiting_for = '[]'
    FROM (VALUES {rows}) AS v WHERE runs.id = v.column1""",
    2,
)
_DELETE_GONE_TIMERS = BulkStatement("DELETE FROM timers WHERE (run, seq) IN (VALUES {rows})", 2)
_DELETE_TAKEN = BulkStatement(
    """DELETE FROM inbox WHERE id IN
    (SELECT i.id FROM (VALUES {rows}) AS v CROSS JOIN inbox AS i ON i.id = v.column2 AND +i.run = v.column1)""",
    2,
)

_STATE = "SELECT owner, ticks, events FROM runs WHERE run_id = ?"
_COVERED = """SELECT MAX(first_tick + ticks) FROM chunks
WHERE run = ? AND first_tick <= ? AND first_tick + ticks <= ?"""
_PRUNE = "DELETE FROM chunks WHERE run = ? AND first_tick <= ? AND first_tick + ticks <= ?"
_FIRST_TICK = "UPDATE runs SET first_tick = ? WHERE id = ?"


def _commit(session: WriteSession, operations: Sequence[CommitRun]) -> list[bool]:
    """Write commits of different runs together. Return which of them were allowed."""
    found = ((operation, session.owned_run(operation.run_id, operation.fence)) for operation in operations)
    owned = [(operation, known) for operation, known in found if known is not None]
    written: list[tuple[CommitRun, Owned]] = []
    for first in range(0, len(owned), MAX_ROWS):
        written.extend(_add_commits(session, owned[first : first + MAX_ROWS]))
    _write_rest(session, written)
    run_ids = {operation.run_id for operation, _ in written}
    return [operation.run_id in run_ids for operation in operations]


def _commit_at_once(session: WriteSession, row: tuple[Any, ...]) -> bool:
    """Write a commit that changes only numbers and adds a chunk in one statement, which is a transaction by itself.

    False if it is refused. The usual way refuses it again, and says why.
    """
    try:
        session.connection.execute(_ADD_COMMIT, row)
    except sqlite3.IntegrityError as error:
        if not is_refusal(error):
            raise
        return False
    return True


def _is_plain(operation: CommitRun, known: Owned) -> bool:
    return (
        operation.head.status == "running"
        and not (operation.timers_set or operation.timers_gone or operation.messages_taken or operation.sent)
        and operation.snapshot is None
        and not operation.prune
        and (operation.document is None or known.document is not None)
        and _marks(operation) == known.marks
        and _waits(operation, known) == known.waits
    )


def _add_commits(session: WriteSession, owned: Sequence[tuple[CommitRun, Owned]]) -> Sequence[tuple[CommitRun, Owned]]:
    """Write heads and chunks. Return the allowed commits. A statement that is refused has changed nothing."""
    try:
        _ADD_COMMITS.execute(session.connection, [_commit_row(operation, known.key) for operation, known in owned])
    except sqlite3.IntegrityError as error:
        if not is_refusal(error):
            raise
        if len(owned) > 1:
            return [pair for one in owned for pair in _add_commits(session, [one])]
        _check_owner_gone(session, owned[0][0])
        return []
    return owned


def _commit_row(operation: CommitRun, key: int) -> tuple[Any, ...]:
    head, chunk = operation.head, operation.chunk
    fields = (key, operation.fence, head.ticks, head.events, head.updated_at, head.kept, head.downtime)
    if chunk is None:
        return (*fields, head.link, head.mac, None, None, None, None, None, None, None)
    data = chunk.data
    place = chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events
    return (*fields, head.link, head.mac, *place, crc32(data), data, chunk.previous)


def _check_owner_gone(session: WriteSession, operation: CommitRun) -> None:
    """Raise a `StoreError` if a commit was refused for its chunk, which does not follow, and not for its fence."""
    session.forget(operation.run_id)
    for owner, ticks, events in session.connection.query(_STATE, (operation.run_id,)):
        if owner == operation.fence and operation.chunk is not None:
            raise does_not_follow(operation, (ticks, events))


class _Changes:
    """The rows to write, by statement, in the order in which the statements run."""

    def __init__(self) -> None:
        self.marks: list[tuple[Any, ...]] = []
        self.waits: list[tuple[Any, ...]] = []
        self.documents: list[tuple[int, str]] = []
        self.texts: dict[str, tuple[bytes, float]] = {}
        """Documents that commits brought, by digest: text and time."""
        self.waiting_gone: list[tuple[int]] = []
        self.waiting_set: list[tuple[Any, ...]] = []
        self.timers_set: list[tuple[Any, ...]] = []
        self.timers_gone: list[tuple[int, int]] = []
        self.messages_taken: list[tuple[int, int]] = []
        self.snapshots: list[tuple[Any, ...]] = []
        self.ends: list[tuple[int, str]] = []
        self.ended: list[tuple[int]] = []
        self.messages_gone: list[tuple[int]] = []
        """Ended runs that cannot be retried: no owner will take their messages."""

    def in_order(self) -> tuple[tuple[BulkStatement, Sequence[tuple[Any, ...]]], ...]:
        return (
            (_SET_MARKS, self.marks),
            (_SET_WAITS, self.waits),
            (_SET_DOCUMENTS, self.documents),
            (DELETE_WAITING, self.waiting_gone),
            (_ADD_WAITING, self.waiting_set),
            (_SET_TIMERS, self.timers_set),
            (_DELETE_GONE_TIMERS, self.timers_gone),
            (_DELETE_TAKEN, self.messages_taken),
            (_SET_SNAPSHOTS, self.snapshots),
            (_END_RUNS, self.ends),
            (DELETE_TIMERS, self.ended),
            (DELETE_MESSAGES, self.messages_gone),
        )


def _write_rest(session: WriteSession, allowed: Sequence[tuple[CommitRun, Owned]]) -> None:
    changes = _Changes()
    for operation, known in allowed:
        effects = effects_of_commit(operation, known.document)
        _compare_heads(session, operation, known, effects, changes)
        _gather_rows(operation, effects, known.key, changes)
        if effects.ends:
            _gather_end(session, operation, effects, known.key, changes)
    for statement, rows in changes.in_order():
        if rows:
            statement.execute(session.connection, rows)
    for digest, (data, at) in changes.texts.items():
        keep_document(session.connection, digest, data, at)
    for operation, known in allowed:
        if operation.prune:
            _prune(session, known.key, operation.prune)


def _compare_heads(
    session: WriteSession, operation: CommitRun, known: Owned, effects: CommitEffects, changes: _Changes
) -> None:
    """Gather the columns that differ from what is stored: most of them are in indexes."""
    marks, waits, document = _marks(operation), effects.waits or known.waits, known.document
    if marks == known.marks and waits == known.waits and effects.document is None:
        return
    if marks != known.marks:
        changes.marks.append((known.key, *marks))
    if waits != known.waits and not effects.ends:
        changes.waits.append((known.key, waits[0], text_of(waits[1])))
        if waits[1] != known.waits[1]:
            changes.waiting_gone.append((known.key,))
            changes.waiting_set.extend((known.key, event_type, known.created_at) for event_type in waits[1])
    if effects.document is not None:
        document, data = effects.document
        changes.documents.append((known.key, document))
        changes.texts.setdefault(document, (data, operation.head.updated_at))
    session.remember(operation.run_id, Owned(known.key, known.created_at, marks, waits, document))


def _marks(operation: CommitRun) -> tuple[Any, ...]:
    head = operation.head
    return head.idle_since, head.needs_worker, head.paused, head.parked, head.error


def _waits(operation: CommitRun, known: Owned) -> tuple[bytes, tuple[str, ...]]:
    return (operation.head.waiters, operation.head.waiting_for) if operation.waiting_changed else known.waits


def _gather_rows(operation: CommitRun, effects: CommitEffects, key: int, changes: _Changes) -> None:
    if effects.timers_set:
        changes.timers_set.extend((key, timer.seq, timer.due, timer.purpose) for timer in effects.timers_set)
    if effects.timers_gone:
        changes.timers_gone.extend((key, seq) for seq in effects.timers_gone)
    if operation.messages_taken:
        changes.messages_taken.extend((key, number) for number in operation.messages_taken)
    if operation.snapshot is not None:
        changes.snapshots.append(snapshot_values(key, operation.snapshot))


def _gather_end(
    session: WriteSession, operation: CommitRun, effects: CommitEffects, key: int, changes: _Changes
) -> None:
    changes.ends.append((key, operation.head.status))
    changes.ended.append((key,))
    if effects.empties_inbox:
        changes.messages_gone.append((key,))
    changes.waiting_gone.append((key,))
    session.forget(operation.run_id)
    session.notified[operation.run_id] = key


def _prune(session: WriteSession, key: int, ticks: int) -> None:
    """Delete the chunks that lie wholly within the first ticks."""
    [(first_tick,)] = session.connection.query(_COVERED, (key, ticks, ticks))
    if first_tick is not None:
        session.connection.execute(_PRUNE, (key, ticks, ticks))
        session.connection.execute(_FIRST_TICK, (first_tick, key))


# -- what does which operation ----------------------------------------------------------------------------------------


_OF_ONE_RUN: dict[type, Callable[[WriteSession, Any], Result]] = {
    StartRun: _start,
    PostMessage: _post,
    ReleaseRun: ownership.release,
    ClaimRun: ownership.claim,
    ParkRun: ownership.park,
    SetTags: _set_tags,
}
_OF_MANY: dict[type, Callable[[WriteSession, Any], Result]] = {
    ClaimRuns: ownership.claim_many,
    PurgeRuns: ownership.purge,
    TryRun: ownership.try_one,
    AcquitRun: ownership.acquit,
    ForgetDeaths: ownership.forget_deaths,
    ImportRun: _import_run,
    SignHead: _sign,
}

"""Writing what comes from outside: starts, mail, imported runs. May import the records and this folder's helpers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.store.operations import ImportRun, Posted, PostMail, SignHead, Started, StartRun
from loom.store.records import RunHead, RunRow
from loom.store.sqlite import documents
from loom.store.sqlite.blocks import Many
from loom.store.sqlite.rows import INSERT_RUN, chunk_values, run_values, snapshot_values
from loom.store.sqlite.statements import ADD_CHUNKS, ADD_WAITING, SET_SNAPSHOTS, SET_TIMERS

if TYPE_CHECKING:
    from loom.store.records import StoredRun
    from loom.store.sqlite.connection import Connection
    from loom.store.sqlite.session import Session

_INSERT_START = "INSERT INTO starts (run, data) VALUES (?, ?)"
_STARTED = "SELECT runs.workflow, starts.data FROM runs JOIN starts ON starts.run = runs.id WHERE runs.run_id = ?"

_RECEIVER = """SELECT id, status, kept, ticks, EXISTS (SELECT 1 FROM event_ids WHERE run = runs.id AND event_id = ?)
FROM runs WHERE run_id = ?"""
_WAITING_MAIL = "SELECT COUNT(*) FROM inbox WHERE run = ?"
_INSERT_MAIL = "INSERT INTO inbox (run, at, data) VALUES (?, ?, ?)"
_REOPEN = "UPDATE runs SET status = 'running', needs_worker = 1, error = NULL, ended_at = NULL, mac = ? WHERE id = ?"
# Only a row that is as it was read: its owner may have gone on since.
_SIGN = """UPDATE runs SET mac = ? WHERE run_id = ? AND workflow = ? AND status = ? AND ticks = ? AND events = ?
AND document IS ? AND mac ISNULL"""
_INSERT_EVENT_ID = "INSERT INTO event_ids (run, event_id) VALUES (?, ?)"

_TAGS = Many(
    """INSERT INTO tags (run, name, value, created_at)
    SELECT column1, column2, column3, column4 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    4,
)
_MAIL = Many(
    """INSERT INTO inbox (run, at, data)
    SELECT column1, column2, column3 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    3,
)
_EVENT_IDS = Many(
    """INSERT OR IGNORE INTO event_ids (run, event_id)
    SELECT column1, column2 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    2,
)


def start(session: Session, asked: StartRun) -> Started:
    """Accept a run, or say which one has its id."""
    row = RunRow(
        asked.run_id,
        asked.workflow,
        asked.created_at,
        RunHead("running", 0, 0, asked.created_at, downtime=asked.downtime, mac=asked.mac),
        tags=asked.tags,
        parent=asked.parent,
        parent_ref=asked.parent_ref,
        owner=asked.owner,
        document=asked.document[0] if asked.document is not None else None,
    )
    if _insert_run(session, row, asked.start):
        if asked.document is not None:
            documents.keep(session.connection, *asked.document, asked.created_at)
        if asked.mail is not None:
            post(session, asked.mail)
        return Started(True)
    [(workflow, data)] = session.connection.query(_STARTED, (asked.run_id,))
    return Started(False, workflow, data)


def _insert_run(session: Session, row: RunRow, start: bytes) -> int | None:
    """The key of a new run; None if its id is taken."""
    inserted = session.connection.query(INSERT_RUN, run_values(row))
    if not inserted:
        return None
    key: int = inserted[0][0]
    session.connection.execute(_INSERT_START, (key, start))
    if row.tags:
        tags = [(key, name, value, row.created_at) for name, value in row.tags.items()]
        _TAGS.execute(session.connection, tags)
    if row.owner is None:
        session.news[row.run_id] = key
    return key


def post(session: Session, asked: PostMail) -> Posted:
    """Accept mail for a run, or say why not."""
    connection = session.connection
    found = connection.query(_RECEIVER, (asked.event_id, asked.run_id))
    if not found:
        return Posted("no_run")
    [(key, status, kept, ticks, is_repeated)] = found
    if is_repeated:
        return Posted("repeated")
    if status != ("failed" if asked.reopens else "running"):
        return Posted("finished", status=status)
    if asked.reopened is not None and asked.reopened[0] != ticks:
        return Posted("finished", status=status)
    if asked.limit is not None:
        kept += connection.query(_WAITING_MAIL, (key,))[0][0]
        if kept >= asked.limit:
            return Posted("full", kept=kept)
    if asked.reopens:
        connection.execute(_REOPEN, (asked.reopened[1] if asked.reopened is not None else None, key))
    if asked.event_id is not None:
        connection.execute(_INSERT_EVENT_ID, (key, asked.event_id))
    connection.execute(_INSERT_MAIL, (key, asked.at, asked.data))
    session.news[asked.run_id] = key
    return Posted("posted")


def sign(session: Session, asked: SignHead) -> bool:
    """Sign a row that has no signature, if it is as it was read."""
    row, head = asked.row, asked.row.head
    values = (head.mac, row.run_id, row.workflow, head.status, head.ticks, head.events, row.document)
    return session.connection.execute(_SIGN, values) == 1


def import_run(session: Session, asked: ImportRun) -> bool:
    """Store a whole run, owned by nobody. Its mail gets new numbers: the old ones may belong to other mail here."""
    run = asked.run
    key = _insert_run(session, replace(run.row, owner=None), run.start)
    if key is None:
        return False
    _insert_parts(session.connection, key, run)
    return True


def _insert_parts(connection: Connection, key: int, run: StoredRun) -> None:
    row = run.row
    if row.document is not None and run.document is not None:
        documents.keep(connection, row.document, run.document, row.created_at)
    if run.snapshot is not None:
        SET_SNAPSHOTS.execute(connection, [snapshot_values(key, run.snapshot)])
    ADD_WAITING.execute(connection, [(key, event_type, row.created_at) for event_type in row.head.waiting_for])
    ADD_CHUNKS.execute(connection, [chunk_values(key, chunk) for chunk in run.chunks])
    SET_TIMERS.execute(connection, [(key, timer.seq, timer.due, timer.purpose) for timer in run.timers])
    _MAIL.execute(connection, [(key, row.head.updated_at, mail.data) for mail in run.mail])
    _EVENT_IDS.execute(connection, [(key, event_id) for event_id in run.event_ids])

"""Read runs: one by its id, or all that a query finds.

A query is put together from fixed pieces of text; what a caller asks for is only ever a parameter. Without statistics
SQLite guesses which index is best, and can guess badly; so the narrowest one that can serve is named.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from loom.api.counts import WorkflowCounts
from loom.store.records import HeldRuns, Holder, MemberState, StoredRun, end_of_prefix
from loom.store.sqlite.key_values import document
from loom.store.sqlite.ownership import deaths_of
from loom.store.sqlite.rows import RUN_COLUMNS, chunks_of, listed_row, messages_of, run_row, snapshot_of, timers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.api.problems import RunStatus
    from loom.store.records import Chunk, InboxMessage, RunQuery, RunRow
    from loom.store.sqlite.connection import Connection

_RUN = "SELECT {columns}, runs.id FROM runs WHERE run_id = ?".replace("{columns}", RUN_COLUMNS)
_KEY = "SELECT id FROM runs WHERE run_id = ?"
_START = "SELECT data FROM starts WHERE run = ?"
_SNAPSHOT = "SELECT ticks, checksum, data, link FROM snapshots WHERE run = ?"
_TIMERS = "SELECT seq, due, purpose FROM timers WHERE run = ? ORDER BY seq"
_EVENT_IDS = "SELECT event_id FROM event_ids WHERE run = ? ORDER BY event_id"
_INBOX = "SELECT id, data FROM inbox WHERE run = ? AND id > ? ORDER BY id"

# The chunk that holds a place is the last one that begins at it or before; the index finds that at once.
_CHUNKS = """SELECT first_tick, ticks, first_cursor, events, checksum, data, previous FROM chunks
WHERE run = ? AND first_tick + ticks > ? AND first_tick >=
COALESCE((SELECT MAX(first_tick) FROM chunks WHERE run = ? AND first_tick <= ?), 0)
ORDER BY first_tick, id LIMIT ?"""
_STREAM = """SELECT first_tick, ticks, first_cursor, events, checksum, data, previous FROM chunks
WHERE run = ? AND events > 0 AND first_cursor + events > ? AND first_tick >=
COALESCE((SELECT first_tick FROM chunks INDEXED BY chunks_by_cursor
    WHERE run = ? AND first_cursor <= ? AND (first_cursor + events) / 64 > first_cursor / 64
    ORDER BY first_cursor DESC LIMIT 1), 0)
ORDER BY first_tick, id LIMIT ?"""
_NO_LIMIT = -1
_EVERY_TICK = -1
"""Every chunk comes after this tick, also a first one that has no tick."""

_TIMERS_DUE = """SELECT runs.run_id, timers.due FROM timers INDEXED BY timers_by_due
CROSS JOIN runs ON runs.id = timers.run
WHERE timers.due < ? AND runs.owner IS NULL AND runs.status = 'running' AND runs.parked IS NULL
AND runs.workflow IN (SELECT value FROM json_each(?))
AND NOT EXISTS (SELECT 1 FROM timers AS other WHERE other.run = timers.run
    AND (other.due < timers.due OR (other.due = timers.due AND other.seq < timers.seq)))
ORDER BY timers.due, runs.run_id LIMIT ?"""
_NEXT_TIMERS = """SELECT runs.run_id, min(timers.due) FROM runs CROSS JOIN timers ON timers.run = runs.id
WHERE runs.run_id IN (SELECT value FROM json_each(?)) GROUP BY runs.run_id"""

_BY_STATUS = "SELECT status, COUNT(*) FROM runs GROUP BY status"
_ENGINE = "SELECT fence, name, last_alive FROM engine"
_SILENT_S = 30.0
"""An engine that was silent for this long is taken for dead: it beats every few seconds."""
_SIZE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
_IDLE = "SELECT COUNT(*) FROM runs INDEXED BY runs_idle WHERE idle_since IS NOT NULL AND status = 'running'"
_IDLE_BY_WORKFLOW = """SELECT workflow, COUNT(*) FROM runs INDEXED BY runs_idle_by_workflow
WHERE idle_since IS NOT NULL AND status = 'running' GROUP BY workflow"""
_PARKED_BY_WORKFLOW = """SELECT workflow, COUNT(*), COUNT(idle_since) FROM runs INDEXED BY runs_parked
WHERE parked IS NOT NULL AND status = 'running' GROUP BY workflow"""
_STUCK = "runs.status = 'running' AND runs.idle_since IS NOT NULL AND runs.waiting_for = '[]' AND runs.paused = 0 \
AND runs.parked IS NULL"
"""The condition of `is_stuck`, worded like the index of stuck runs."""
_ASLEEP = "runs.status = 'running' AND runs.idle_since IS NULL AND runs.needs_worker = 0 AND runs.paused = 0 \
AND runs.parked IS NULL"
"""The condition of `is_asleep`, worded like the index of runs that are asleep."""
_WAITING = """runs.status = 'running' AND runs.waiting_for NOT IN ('[]', '["child run"]',
'["CallbackEvent","loom.flows.CallbackEvent"]', '["ActorReply","loom.flows.ActorReply"]',
'["CallbackEvent","child run","loom.flows.CallbackEvent"]', '["ActorReply","child run","loom.flows.ActorReply"]',
'["ActorReply","CallbackEvent","loom.flows.ActorReply","loom.flows.CallbackEvent"]',
'["ActorReply","CallbackEvent","child run","loom.flows.ActorReply","loom.flows.CallbackEvent"]')"""
"""The condition of `is_waiting`, worded like the index of waiting runs: all sets of what is not for people."""
_STUCK_BY_WORKFLOW = f"SELECT workflow, COUNT(*) FROM runs INDEXED BY runs_stuck WHERE {_STUCK} GROUP BY workflow"  # noqa: S608 - fixed text
_ALL_BY_WORKFLOW = """SELECT workflow, COUNT(*), SUM(status = 'running'), SUM(status = 'completed'),
SUM(status = 'failed'), SUM(status = 'cancelled') FROM runs INDEXED BY runs_by_workflow GROUP BY workflow"""
_PAUSED = "paused = 1 AND status = 'running'"
_HELD_BY_WORKFLOW = {
    name: f"SELECT workflow, COUNT(*) FROM runs INDEXED BY {index} WHERE {condition} GROUP BY workflow"  # noqa: S608 - fixed text
    for name, index, condition in (
        ("idle", "runs_idle_by_workflow", "idle_since IS NOT NULL AND status = 'running'"),
        ("asleep", "runs_asleep", _ASLEEP),
        ("waiting", "runs_waiting", _WAITING),
        ("paused", "runs_paused", _PAUSED),
        ("parked", "runs_parked", "parked IS NOT NULL AND status = 'running'"),
        ("stuck", "runs_stuck", _STUCK),
    )
}
_DESCENDANTS = """WITH RECURSIVE family (run_id) AS (
    VALUES (?) UNION ALL
    SELECT runs.run_id FROM family CROSS JOIN runs INDEXED BY runs_by_parent ON runs.parent = family.run_id
    WHERE runs.status = 'running'
) SELECT COUNT(*) - 1 FROM (SELECT 1 FROM family LIMIT ? + 1)"""
"""The run itself is the first of its family, and not counted."""
_OWNED_BY = "SELECT run_id FROM runs INDEXED BY runs_owned WHERE owner = ?"
_COUNT_OWNED = "SELECT COUNT(*) FROM runs INDEXED BY runs_owned WHERE owner = ?"
_OWNED_WITH_MESSAGES = """SELECT runs.run_id FROM (SELECT DISTINCT run FROM inbox) AS asking
CROSS JOIN runs ON runs.id = asking.run WHERE runs.owner = ?"""
_OWNED = "SELECT COUNT(*) FROM runs INDEXED BY runs_owned WHERE owner IS NOT NULL"


@contextmanager
def moment(connection: Connection) -> Iterator[None]:
    """Let all reads within see one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def get(connection: Connection, run_id: str) -> RunRow | None:
    """Return the row of a run; None if there is none."""
    rows = connection.query(_RUN, (run_id,))
    return run_row(rows[0]) if rows else None


def stored(connection: Connection, run_id: str, *, whole: bool) -> StoredRun | None:
    """Return everything of a run, or what is needed to recover it."""
    with moment(connection):
        rows = connection.query(_RUN, (run_id,))
        if not rows:
            return None
        row, key = run_row(rows[0]), rows[0][-1]
        [(start,)] = connection.query(_START, (key,))
        snapshots = [snapshot_of(run_id, *row) for row in connection.query(_SNAPSHOT, (key,))]
        snapshot = snapshots[0] if snapshots else None
        after = _EVERY_TICK if whole or snapshot is None else snapshot.ticks
        return StoredRun(
            row,
            start,
            snapshot,
            tuple(chunks_of(run_id, connection.query(_CHUNKS, (key, after, key, after, _NO_LIMIT)))),
            tuple(messages_of(connection.query(_INBOX, (key, 0)))),
            tuple(timers_of(connection.query(_TIMERS, (key,)))),
            tuple(event_id for (event_id,) in connection.query(_EVENT_IDS, (key,))) if whole else (),
            document(connection, row.document) if row.document is not None else None,
            msgspec.UNSET if whole else deaths_of(connection, key),
        )


def _key_of(connection: Connection, run_id: str) -> int | None:
    rows = connection.query(_KEY, (run_id,))
    return rows[0][0] if rows else None


def inbox(connection: Connection, run_id: str, after: int) -> list[InboxMessage]:
    """Return the messages of a run after an id, in order."""
    with moment(connection):
        return messages_of(connection.query(_INBOX, (_key_of(connection, run_id), after)))


def chunks(connection: Connection, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
    """Return chunks, beginning with the one that holds this tick."""
    with moment(connection):
        key = _key_of(connection, run_id)
        return chunks_of(run_id, connection.query(_CHUNKS, (key, first_tick, key, first_tick, limit)))


def stream(connection: Connection, run_id: str, cursor: int, limit: int) -> list[Chunk]:
    """Return chunks with events, beginning with the one that holds this cursor."""
    with moment(connection):
        key = _key_of(connection, run_id)
        return chunks_of(run_id, connection.query(_STREAM, (key, cursor, key, cursor, limit)))


def timers_due(
    connection: Connection, workflows: tuple[str, ...], before: float, limit: int
) -> list[tuple[str, float]]:
    """Return runs that could be claimed for a timer, with the due time of their first one; earliest first."""
    names = msgspec.json.encode(workflows).decode()
    return [(run_id, due) for run_id, due in connection.query(_TIMERS_DUE, (before, names, limit))]


def next_timers(connection: Connection, run_ids: Sequence[str]) -> dict[str, float]:
    """Return when the first timer of each of these runs is due."""
    return dict(connection.query(_NEXT_TIMERS, (msgspec.json.encode(run_ids).decode(),)))


def descendants(connection: Connection, run_id: str, limit: int) -> int:
    """Count the open runs that descend from a run by open runs, up to a limit."""
    [(count,)] = connection.query(_DESCENDANTS, (run_id, limit))
    return int(count)


def holder(connection: Connection, fence: int, now: float) -> Holder:
    """Return the engine of a fence."""
    [(current, name, last_alive)] = connection.query(_ENGINE, ())
    alive = current == fence and last_alive is not None and now - last_alive <= _SILENT_S
    return Holder(name if current == fence else f"engine {fence}", alive=alive, seen=last_alive)


def members(connection: Connection, now: float) -> list[MemberState]:
    """Return the engine, if there was ever one."""
    with moment(connection):
        [(fence, name, last_alive)] = connection.query(_ENGINE, ())
        [(owned,)] = connection.query(_COUNT_OWNED, (fence,))
    if last_alive is None:
        return []
    return [MemberState(name, now - last_alive <= _SILENT_S, fence, seen=last_alive, owned=owned)]


def counts(connection: Connection) -> dict[str, int]:
    """Count runs by status, plus `idle` and `owned`."""
    found = dict.fromkeys(("running", "completed", "failed", "cancelled"), 0)
    with moment(connection):
        found.update(connection.query(_BY_STATUS))
        [(found["idle"],)] = connection.query(_IDLE)
        [(found["owned"],)] = connection.query(_OWNED)
    return found


def workflow_counts(connection: Connection) -> list[WorkflowCounts]:
    """Count the runs of each workflow: all in one walk over an index, and the held ones over theirs."""
    with moment(connection):
        every = connection.query(_ALL_BY_WORKFLOW)
        held = {name: dict(connection.query(sql)) for name, sql in _HELD_BY_WORKFLOW.items()}
    return [
        WorkflowCounts(
            workflow=workflow,
            total=total,
            running=running,
            completed=completed,
            failed=failed,
            cancelled=cancelled,
            **{name: found.get(workflow, 0) for name, found in held.items()},
        )
        for workflow, total, running, completed, failed, cancelled in every
    ]


def held_counts(connection: Connection) -> dict[str, HeldRuns]:
    """Count the runs by workflow that wait for input, are parked or are stuck."""
    with moment(connection):
        idle = dict(connection.query(_IDLE_BY_WORKFLOW))
        parked = {name: (count, idle) for name, count, idle in connection.query(_PARKED_BY_WORKFLOW)}
        stuck = dict(connection.query(_STUCK_BY_WORKFLOW))
    found = {}
    for name in {**idle, **parked}:
        count, idle_too = parked.get(name, (0, 0))
        found[name] = HeldRuns(idle.get(name, 0) - idle_too - stuck.get(name, 0), count, stuck.get(name, 0))
    return found


def size(connection: Connection) -> int:
    """Return the bytes of the database, free pages included; its write-ahead log comes on top for a while."""
    [(found,)] = connection.query(_SIZE)
    return int(found)


def owned(connection: Connection, fence: int, with_messages: bool) -> list[str]:
    """Return the runs that a member owns, or only the ones with messages."""
    return [run_id for (run_id,) in connection.query(_OWNED_WITH_MESSAGES if with_messages else _OWNED_BY, (fence,))]


_PROBED = 1000


class _Lookup(NamedTuple):
    """A condition on another table than `runs`: SQL to begin with it, to check it, and to weigh it."""

    source: str
    check: str
    weigh: str


_TYPE = _Lookup(
    "FROM waiting AS first CROSS JOIN runs ON runs.id = first.run WHERE first.event_type = ?",
    "EXISTS (SELECT 1 FROM waiting WHERE waiting.run = runs.id AND waiting.event_type = ?)",
    "SELECT COUNT(*) FROM (SELECT 1 FROM waiting WHERE event_type = ? LIMIT ?)",
)
_TAG = _Lookup(
    "FROM tags AS first CROSS JOIN runs ON runs.id = first.run WHERE first.name = ? AND first.value = ?",
    "EXISTS (SELECT 1 FROM tags WHERE tags.run = runs.id AND tags.name = ? AND tags.value = ?)",
    "SELECT COUNT(*) FROM (SELECT 1 FROM tags WHERE name = ? AND value = ? LIMIT ?)",
)
_BY_INDEX = "FROM runs INDEXED BY {index} WHERE {always}"
_ALWAYS = {
    "runs_busy": "runs.status = 'running'",
    "runs_by_update": "(runs.status <> 'running' OR runs.needs_worker = 0 OR runs.parked IS NOT NULL)",
    "runs_owned": "runs.owner IS NOT NULL AND runs.status = 'running' AND runs.needs_worker = 1 "
    "AND runs.parked IS NULL",
    "runs_unattended": "runs.owner IS NULL AND runs.status = 'running' AND runs.needs_worker = 1 "
    "AND runs.parked IS NULL",
}
"""Conditions that show SQLite that an index has all the runs that are asked for. A parameter would not."""
_BY_UPDATE = ("runs_by_update", "runs_owned", "runs_unattended")
"""Every run is in one of these, under its condition: the resting ones by their last change, and two kinds of busy ones,
which are few and sorted."""
_BY_ID = "sqlite_autoindex_runs_1"
"""The index of the unique ids."""
_BROAD = ("runs_by_workflow", "runs_by_status", "runs_by_time")
"""Indexes of all runs. Busy runs may be few among them, and have an index of their own."""
_NEWEST = "ORDER BY {time} DESC, {run_id} DESC LIMIT ?"
_OLDEST = "ORDER BY {time}, {run_id} LIMIT ?"
_LOOKED_UP = {"time": "first.created_at", "run_id": "runs.run_id"}
# By their places in RUN_COLUMNS, as a union wants it.
_LISTED = {"time": "3", "run_id": "1"}
_LISTED_BY_UPDATE = {"time": "15", "run_id": "1"}
_MAX_UNION = 100
"""SQLite takes 500, and is slow with many."""
_WEIGH_IDLE = """SELECT COUNT(*) FROM
(SELECT 1 FROM runs INDEXED BY runs_by_idle_since WHERE idle_since IS NOT NULL AND idle_since <= ? LIMIT ?)"""
_WEIGH_WORKFLOW = "SELECT COUNT(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_workflow WHERE workflow = ? LIMIT ?)"
_WEIGH_PREFIX = f"""SELECT COUNT(*) FROM
(SELECT 1 FROM runs INDEXED BY {_BY_ID} WHERE run_id >= ? AND run_id < ? LIMIT ?)"""  # noqa: S608 - fixed text
_WEIGH_UPDATED = f"""SELECT COUNT(*) FROM
(SELECT 1 FROM runs INDEXED BY runs_by_update WHERE {_ALWAYS["runs_by_update"]} AND updated_at > ? LIMIT ?)"""  # noqa: S608 - as above
_WEIGH_PARENT = "SELECT COUNT(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_parent WHERE parent = ? LIMIT ?)"
_WEIGH_HELD = {
    index: f"SELECT COUNT(*) FROM (SELECT 1 FROM runs INDEXED BY {index} WHERE {condition} LIMIT ?)"  # noqa: S608 - as above
    for index, condition in (
        ("runs_stuck", _STUCK),
        ("runs_parked", "runs.parked IS NOT NULL"),
        ("runs_paused", "runs.paused = 1"),
        ("runs_asleep", _ASLEEP),
        ("runs_waiting", _WAITING),
    )
}
_FEW = 3000
"""Runs that are sorted as fast as an index brings the first of them."""
_STATUSES: tuple[RunStatus, ...] = ("running", "completed", "failed", "cancelled")


def find(connection: Connection, query: RunQuery) -> list[RunRow]:
    """Return the runs that match."""
    if () in (query.statuses, query.workflows):
        return []  # nothing is one of none, and no narrow index would hold for it
    found: list[tuple[Any, ...]] = []
    with moment(connection):
        lookups = _lookups(connection, query)
        portions = _portions(query)
        for portion in portions:
            found += connection.query(*statement(portion, lookups, _narrow_index(connection, portion, lookups)))
    if len(portions) > 1:
        time = 14 if query.by_update else 2
        found.sort(key=lambda values: (values[time], values[0]), reverse=not query.oldest_first)
    return [listed_row(values) for values in found[: query.limit]]


def _portions(query: RunQuery) -> list[RunQuery]:
    """Split a query by its workflows, as many at a time as one statement can take."""
    names = query.workflows
    if names is None or len(names) <= _MAX_UNION:
        return [query]
    return [replace(query, workflow=names[first : first + _MAX_UNION]) for first in range(0, len(names), _MAX_UNION)]


def _narrow_index(
    connection: Connection, query: RunQuery, lookups: Sequence[tuple[_Lookup, tuple[str, ...]]]
) -> str | None:
    """Choose an index with few runs, worth a sort of what it finds; None if there is none."""
    if lookups and _weight(connection, *lookups[0]) < _PROBED:
        return None
    if query.id_prefix is not None:
        first, end = query.id_prefix, end_of_prefix(query.id_prefix)
        if _count(connection, _WEIGH_PREFIX, first, end, _FEW) < _FEW:
            return _BY_ID
    if query.idle_before is not None and _count(connection, _WEIGH_IDLE, query.idle_before, _FEW) < _FEW:
        return "runs_by_idle_since"
    if query.by_update:
        return _few_held(connection, query) or "runs_by_update"
    if query.updated_after is not None and _count(connection, _WEIGH_UPDATED, query.updated_after, _FEW) < _FEW:
        return _few_held(connection, query) or "runs_by_update"
    if not lookups or not query.workflows:
        return None
    runs = 0
    for workflow in query.workflows:
        runs += _count(connection, _WEIGH_WORKFLOW, workflow, _PROBED)
        if runs >= _PROBED:
            return None
    return "runs_by_workflow"


def _few_held(connection: Connection, query: RunQuery) -> str | None:
    """Choose an index of children or of runs that do not move by themselves, if it has few."""
    index = _index(query)
    if index == "runs_by_parent":
        return index if _count(connection, _WEIGH_PARENT, query.parent, _FEW) < _FEW else None
    weigh = _WEIGH_HELD.get(index)
    return index if weigh is not None and _count(connection, weigh, _FEW) < _FEW else None


def _weight(connection: Connection, lookup: _Lookup, values: tuple[str, ...]) -> int:
    """Count the runs that a lookup finds, up to a limit."""
    return _count(connection, lookup.weigh, *values, _PROBED)


def _count(connection: Connection, sql: str, *parameters: Any) -> int:
    count: int = connection.query(sql, parameters)[0][0]
    return count


def _lookups(connection: Connection, query: RunQuery) -> list[tuple[_Lookup, tuple[str, ...]]]:
    """Return the lookups of a query with their parameters; the one that finds the fewest runs comes first."""
    lookups: list[tuple[_Lookup, tuple[str, ...]]] = [(_TAG, tag) for tag in query.tags.items()]
    if query.waiting_for is not None:
        lookups.append((_TYPE, (query.waiting_for,)))
    if len(lookups) > 1:
        lookups.sort(key=lambda lookup: _weight(connection, *lookup))
    return lookups


def statement(
    query: RunQuery, lookups: Sequence[tuple[_Lookup, tuple[str, ...]]], narrow: str | None = None
) -> tuple[str, list[Any]]:
    """Return SQL and parameters of a query. It begins with the narrow index, if there is one, or the first lookup."""
    order = _OLDEST if query.oldest_first else _NEWEST
    if lookups and narrow is None:
        order = order.format_map({**_LOOKED_UP, "time": "runs.updated_at"} if query.by_update else _LOOKED_UP)
        text, parameters = _selected(query, lookups[0][0].source, lookups[0][1], "first.created_at", lookups[1:])
    else:
        order = order.format_map(_LISTED_BY_UPDATE if query.by_update else _LISTED)
        parts = [
            _selected(part, _source(index), (), "runs.created_at", lookups)
            for index, part in _parts(query, narrow or _index(query))
        ]
        text = " UNION ALL ".join(part for part, _ in parts)
        parameters = [value for _, values in parts for value in values]
    return f"{text} {order}", [*parameters, query.limit]


def _parts(query: RunQuery, index: str) -> list[tuple[str, RunQuery]]:
    """Return the indexes that serve, each with its part of the query. SQLite merges what each brings in order.

    A query for several values of what an index begins with is one for each of them.
    """
    if index == "runs_by_update":
        return [(each, query) for each in _BY_UPDATE]
    statuses = _STATUSES if query.statuses is None else query.statuses
    if query.idle is False and index in _BROAD and "running" in statuses:
        others = tuple(status for status in statuses if status != "running")
        busy = ("runs_busy", replace(query, status="running"))
        if not others:
            return [busy]
        rest = replace(query, status=others)
        return [busy, *_parts(rest, _index(rest))]
    if index in ("runs_by_workflow", "runs_idle_by_workflow"):
        return [(index, replace(query, workflow=workflow)) for workflow in query.workflows or ()]
    if index == "runs_by_status":
        return [(index, replace(query, status=status)) for status in query.statuses or ()]
    return [(index, query)]


def _selected(
    query: RunQuery,
    source: str,
    values: Sequence[Any],
    created_at: str,
    checks: Sequence[tuple[_Lookup, tuple[str, ...]]] = (),
) -> tuple[str, list[Any]]:
    """Return SQL that finds all runs that match, without an order yet, and its parameters."""
    conditions = [*_conditions(query), *_times(query, created_at), *((lookup.check, asked) for lookup, asked in checks)]
    texts, parameters = ["SELECT", RUN_COLUMNS, source], list(values)
    for text, asked in conditions:
        texts.extend(("AND", text))
        parameters.extend(asked)
    return " ".join(texts), parameters


def _source(index: str) -> str:
    return _BY_INDEX.format(index=index, always=_ALWAYS.get(index, "1"))


def _index(query: RunQuery) -> str:
    idle = query.idle is True or query.idle_before is not None
    candidates = (
        (query.stuck is True, "runs_stuck"),
        (query.parked is True, "runs_parked"),
        (query.paused is True, "runs_paused"),
        (query.asleep is True, "runs_asleep"),
        (query.parent is not None, "runs_by_parent"),
        (query.waiting is True, "runs_waiting"),
        (idle and bool(query.workflows), "runs_idle_by_workflow"),
        (idle, "runs_idle"),
        (bool(query.workflows), "runs_by_workflow"),
        (bool(query.statuses), "runs_by_status"),
    )
    return next((index for serves, index in candidates if serves), "runs_by_time")


def _times(query: RunQuery, created_at: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the conditions on time, by the columns whose indexes bring the runs in order."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    if query.created_after is not None:
        found.append((created_at + " > ?", (query.created_after,)))
    if query.created_before is not None:
        found.append((created_at + " < ?", (query.created_before,)))
    if query.updated_after is not None:
        found.append(("runs.updated_at > ?", (query.updated_after,)))
    if query.after is not None:
        column = "runs.updated_at" if query.by_update else created_at
        # The first condition lets the index begin at the right place.
        sign = ">" if query.oldest_first else "<"
        found.append((f"{column} {sign}= ?", (query.after[0],)))
        found.append((f"({column}, runs.run_id) {sign} (?, ?)", query.after))
    return found


def _one_of(column: str, values: Sequence[str] | None) -> list[tuple[str, tuple[Any, ...]]]:
    if values is None:
        return []
    return [(f"{column} = ?" if len(values) == 1 else f"{column} IN ({', '.join('?' * len(values))})", tuple(values))]


def _conditions(query: RunQuery) -> list[tuple[str, tuple[Any, ...]]]:
    """Return the conditions on columns of `runs`, with the parameters of each."""
    candidates: tuple[tuple[bool, str, tuple[Any, ...]], ...] = (
        (query.parent is not None, "runs.parent = ?", (query.parent,)),
        (query.idle is True or query.idle_before is not None, "runs.idle_since IS NOT NULL", ()),
        (query.idle is False, "runs.idle_since IS NULL", ()),
        (query.idle_before is not None, "runs.idle_since <= ?", (query.idle_before,)),
        (query.paused is True, "runs.paused = 1", ()),
        (query.paused is False, "runs.paused = 0", ()),
        (query.parked is True, "runs.parked IS NOT NULL", ()),
        (query.parked is False, "runs.parked IS NULL", ()),
        (query.stuck is True, _STUCK, ()),
        (query.stuck is False, f"NOT ({_STUCK})", ()),
        (query.asleep is True, _ASLEEP, ()),
        (query.asleep is False, f"NOT ({_ASLEEP})", ()),
        (query.waiting is True, _WAITING, ()),
        (query.waiting is False, f"NOT ({_WAITING})", ()),
    )
    plain = [(text, values) for is_asked, text, values in candidates if is_asked]
    if query.id_prefix is not None:
        plain.append(("runs.run_id >= ? AND runs.run_id < ?", (query.id_prefix, end_of_prefix(query.id_prefix))))
    return [*_one_of("runs.status", query.statuses), *_one_of("runs.workflow", query.workflows), *plain]

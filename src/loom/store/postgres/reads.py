"""Read runs: one by its id, or all that a query finds. Every read is one statement, so that it sees one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.api.counts import WorkflowCounts
from loom.store.postgres.rows import chunk, listed_row, run_row, stored_run, tags_values
from loom.store.records import HeldRuns, InboxMessage, end_of_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.store.postgres.driver import Connection
    from loom.store.records import Chunk, RunQuery, RunRow, StoredRun

_GET = "SELECT * FROM runs WHERE run_id = $1"

# Fragments with the number of their value still open, by the name of the query's field.
_CONDITIONS = {
    "idle_before": "r.idle_since IS NOT NULL AND r.idle_since <= ${0}",
    "waiting_for": "cardinality(r.waiting_for) > 0 AND r.waiting_for @> ARRAY[${0}::text]",
    "parent": "r.parent = ${0}",
    "created_after": "r.created_at > ${0}::float8",
    "created_before": "r.created_at < ${0}::float8",
    "updated_after": "r.updated_at > ${0}::float8",
}
# For one value the plain form, whose index brings the runs in order.
_ONE_OF = {
    "statuses": ("r.status = ${0}", "r.status = ANY (${0}::text[])"),
    "workflows": ("r.workflow = ${0}", "r.workflow = ANY (${0}::text[])"),
}
_STUCK = """r.status = 'running' AND r.idle_since IS NOT NULL AND cardinality(r.waiting_for) = 0 AND NOT r.paused
AND r.parked IS NULL"""
_ASLEEP = """r.status = 'running' AND r.idle_since IS NULL AND NOT r.needs_worker AND NOT r.paused
AND r.parked IS NULL"""
_WAITING = """r.status = 'running' AND NOT r.waiting_for <@ ARRAY['child run', 'CallbackEvent',
'loom.flows.CallbackEvent', 'ActorReply', 'loom.flows.ActorReply']"""
_SWITCHES = {
    "idle": ("r.idle_since IS NULL", "r.idle_since IS NOT NULL"),
    "paused": ("NOT r.paused", "r.paused"),
    "parked": ("r.parked IS NULL", "r.parked IS NOT NULL"),
    "stuck": (f"NOT ({_STUCK})", _STUCK),
    "asleep": (f"NOT ({_ASLEEP})", _ASLEEP),
    "waiting": (f"NOT ({_WAITING})", _WAITING),
}
_PREFIX = "r.run_id >= ${0}::text AND r.run_id < ${1}::text"
_TAGGED = "cardinality(r.tags) > 0 AND r.tags @> ${0}::text[]"
_FIND = "SELECT * FROM runs r"
_NEWEST = "ORDER BY {column} DESC, r.run_id DESC LIMIT ${limit}"
_OLDEST = "ORDER BY {column}, r.run_id LIMIT ${limit}"
_AFTER_NEWEST = "({column}, r.run_id) < (${{0}}::float8, ${{1}}::text)"
_AFTER_OLDEST = "({column}, r.run_id) > (${{0}}::float8, ${{1}}::text)"
# Every run is in one of these: the resting ones by their last change, and two kinds of busy ones, which are sorted.
_BY_UPDATE = (
    ("r.rested_at", "r.rested_at IS NOT NULL"),
    ("r.updated_at", "r.rested_at IS NULL AND r.owner IS NOT NULL"),
    ("r.updated_at", "r.rested_at IS NULL AND r.owner IS NULL AND r.status = 'running' AND r.needs_worker "
    "AND r.parked IS NULL"),
)  # fmt: skip

# Chunks have no gaps: the chunks after a tick begin with the last one that begins at or before it.
_LOAD = """
SELECT r.*, st.data AS start, (SELECT d.data FROM documents d WHERE d.digest = r.document) AS document_data,
    sn.ticks AS snapshot_ticks, sn.checksum AS snapshot_checksum, sn.data AS snapshot_data,
    sn.link AS snapshot_link,
    ARRAY (SELECT ROW (m.id, m.data) FROM inbox m WHERE m.run = r.id ORDER BY m.id) AS mail,
    ARRAY (SELECT ROW (t.seq, t.due, t.purpose) FROM timers t WHERE t.run = r.id ORDER BY t.seq) AS timers,
    ARRAY (SELECT ROW (d.marks, d.own, d.at, d.suspect, d.trial) FROM deaths d WHERE d.run = r.id) AS deaths,
    ARRAY (
        SELECT ROW (c.first_tick, c.ticks, c.first_cursor, c.events, c.checksum, c.data, c.previous) FROM chunks c
        WHERE c.run = r.id AND c.first_tick + c.ticks > coalesce(sn.ticks, 0) AND c.first_tick >= coalesce((
            SELECT max(b.first_tick) FROM chunks b WHERE b.run = r.id AND b.ticks > 0 AND b.first_tick <= sn.ticks
        ), 0) ORDER BY c.first_tick, c.id
    ) AS chunks,
    ARRAY[]::text[] AS event_ids
FROM runs r JOIN starts st ON st.run = r.id LEFT JOIN snapshots sn ON sn.run = r.id WHERE r.run_id = $1
"""
_EXPORT = """
SELECT r.*, st.data AS start, (SELECT d.data FROM documents d WHERE d.digest = r.document) AS document_data,
    sn.ticks AS snapshot_ticks, sn.checksum AS snapshot_checksum, sn.data AS snapshot_data,
    sn.link AS snapshot_link,
    ARRAY (SELECT ROW (m.id, m.data) FROM inbox m WHERE m.run = r.id ORDER BY m.id) AS mail,
    ARRAY (SELECT ROW (t.seq, t.due, t.purpose) FROM timers t WHERE t.run = r.id ORDER BY t.seq) AS timers,
    ARRAY[]::bigint[] AS deaths,
    ARRAY (
        SELECT ROW (c.first_tick, c.ticks, c.first_cursor, c.events, c.checksum, c.data, c.previous) FROM chunks c
        WHERE c.run = r.id ORDER BY c.first_tick, c.id
    ) AS chunks,
    ARRAY (SELECT e.event_id FROM event_ids e WHERE e.run = r.id ORDER BY e.event_id) AS event_ids
FROM runs r JOIN starts st ON st.run = r.id LEFT JOIN snapshots sn ON sn.run = r.id WHERE r.run_id = $1
"""

_INBOX = """
SELECT id, data FROM inbox WHERE run = (SELECT id FROM runs WHERE run_id = $1) AND id > $2 ORDER BY id
"""
_CHUNKS = """
SELECT first_tick, ticks, first_cursor, events, checksum, data, previous FROM chunks
WHERE run = (SELECT id FROM runs WHERE run_id = $1) AND first_tick + ticks > $2 AND first_tick >= coalesce((
    SELECT max(b.first_tick) FROM chunks b
    WHERE b.run = (SELECT id FROM runs WHERE run_id = $1) AND b.ticks > 0 AND b.first_tick <= $2
), 0) ORDER BY first_tick, id LIMIT $3
"""
_STREAM = """
SELECT first_tick, ticks, first_cursor, events, checksum, data, previous FROM chunks
WHERE run = (SELECT id FROM runs WHERE run_id = $1) AND events > 0 AND first_cursor + events > $2
AND first_cursor >= coalesce((
    SELECT max(b.first_cursor) FROM chunks b
    WHERE b.run = (SELECT id FROM runs WHERE run_id = $1) AND b.events > 0 AND b.first_cursor <= $2
), 0) ORDER BY first_cursor LIMIT $3
"""
# Few timers are due: each looks its run up, which the OFFSET ensures, also before the tables have statistics.
_DESCENDANTS = """WITH RECURSIVE family (run_id) AS (
    SELECT $1::text COLLATE "C" UNION ALL
    SELECT runs.run_id FROM family JOIN runs ON runs.parent = family.run_id WHERE runs.status = 'running'
) SELECT count(*) - 1 FROM (SELECT 1 FROM family LIMIT $2::bigint + 1) AS counted"""
"""The run itself is the first of its family, and not counted."""
_TIMERS_DUE = """
SELECT r.run_id, min(t.due) AS due FROM timers t CROSS JOIN LATERAL (
    SELECT run_id FROM runs WHERE id = t.run AND workflow = ANY ($1::text[]) AND owner IS NULL
    AND status = 'running' AND parked IS NULL OFFSET 0
) r WHERE t.due < $2 GROUP BY r.run_id ORDER BY due, r.run_id LIMIT $3
"""
_NEXT_TIMERS = """SELECT r.run_id, min(t.due) FROM runs r JOIN timers t ON t.run = r.id
WHERE r.run_id = ANY ($1::text[]) GROUP BY r.run_id"""
_OWNED = "SELECT run_id FROM runs WHERE owner = $1"
# Few runs have messages: each looks itself up.
_OWNED_WITH_MESSAGES = """
SELECT r.run_id FROM (SELECT DISTINCT run FROM inbox) asking CROSS JOIN LATERAL (
    SELECT run_id FROM runs WHERE id = asking.run AND owner = $1 OFFSET 0
) r
"""
_COUNTS = """
SELECT status, count(*) AS all_of_it, count(owner) AS owned, count(idle_since) AS idle FROM runs GROUP BY status
"""


# Two conditions, each with a partial index of its own.
_HELD = f"""
SELECT workflow, sum(idle - stuck)::bigint AS waiting, sum(parked)::bigint AS parked, sum(stuck)::bigint AS stuck FROM (
    SELECT workflow, count(*) FILTER (WHERE parked IS NULL) AS idle, count(parked) AS parked, 0 AS stuck FROM runs
    WHERE (idle_since IS NOT NULL OR parked IS NOT NULL) AND status = 'running' GROUP BY workflow
    UNION ALL SELECT workflow, 0, 0, count(*) FROM runs r WHERE {_STUCK} GROUP BY workflow
) AS held GROUP BY workflow
"""  # noqa: S608 - fixed text; each part has its own index


TABLES = (
    "changes", "chunks", "deaths", "documents", "entries", "event_ids", "inbox", "liveness", "members", "runs",
    "snapshots", "starts", "timers",
)  # fmt: skip
"""Loom's tables: others may stand in the same schema."""
_SIZE = "SELECT COALESCE(sum(pg_total_relation_size(to_regclass(name))), 0)::bigint FROM unnest($1::text[]) AS name"

_BY_WORKFLOW = f"""
SELECT workflow, count(*) AS total, count(*) FILTER (WHERE status = 'running') AS running,
    count(*) FILTER (WHERE status = 'completed') AS completed, count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE status = 'running' AND idle_since IS NOT NULL) AS idle,
    count(*) FILTER (WHERE {_ASLEEP}) AS asleep, count(*) FILTER (WHERE {_WAITING}) AS waiting,
    count(*) FILTER (WHERE status = 'running' AND paused) AS paused,
    count(*) FILTER (WHERE status = 'running' AND parked IS NOT NULL) AS parked,
    count(*) FILTER (WHERE {_STUCK}) AS stuck
FROM runs r GROUP BY workflow
"""  # noqa: S608 - fixed text; one walk over the table costs less than seven over indexes


async def get(connection: Connection, run_id: str) -> RunRow | None:
    """Return the row of a run; None if there is none."""
    row = await connection.fetchrow(_GET, run_id)
    return None if row is None else run_row(row)


async def find(connection: Connection, query: RunQuery) -> list[RunRow]:
    """Return the rows that match."""
    text, values = _found_by(query)
    return [listed_row(row) for row in await connection.fetch(text, *values)]


def _found_by(query: RunQuery) -> tuple[str, list[Any]]:
    values: list[Any] = []
    if not query.by_update:
        text = _select(query, "r.created_at", "", values)
        return text, values
    parts: list[str] = []
    for column, always in _BY_UPDATE:
        values.clear()  # each part has the same values
        parts.append(f"({_select(query, column, always, values)})")
    order = (_OLDEST if query.oldest_first else _NEWEST).format(column="r.updated_at", limit=len(values))
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS r {order}", values  # noqa: S608 - fixed text


def _select(query: RunQuery, column: str, always: str, values: list[Any]) -> str:
    """Return SQL that finds the runs that match, ordered by a column; its values are added to `values`."""
    conditions = [always] if always else []
    for condition, given in _conditions(query, column):
        first = len(values) + 1
        conditions.append(condition.format(*range(first, first + len(given))))
        values.extend(given)
    values.append(query.limit)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    order = (_OLDEST if query.oldest_first else _NEWEST).format(column=column, limit=len(values))
    return f"{_FIND} {where}{order}"


def _conditions(query: RunQuery, column: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the conditions of a query that is ordered by a column, with the values of each."""
    for field, condition in _CONDITIONS.items():
        value = getattr(query, field)
        if value is not None:
            yield condition, (value,)
    for field, (one, several) in _ONE_OF.items():
        wanted = getattr(query, field)
        if wanted is not None:
            yield (one, wanted) if len(wanted) == 1 else (several, (list(wanted),))
    for field, forms in _SWITCHES.items():
        switch = getattr(query, field)
        if switch is not None:
            yield forms[switch], ()
    if query.tags:
        yield _TAGGED, (tags_values(query.tags),)
    if query.id_prefix is not None:
        yield _PREFIX, (query.id_prefix, end_of_prefix(query.id_prefix))
    if query.after is not None:
        yield (_AFTER_OLDEST if query.oldest_first else _AFTER_NEWEST).format(column=column), query.after


async def stored(connection: Connection, run_id: str, *, whole: bool) -> StoredRun | None:
    """Return everything of a run, or what is needed to recover it."""
    row = await connection.fetchrow(_EXPORT if whole else _LOAD, run_id)
    return None if row is None else stored_run(row)


async def inbox(connection: Connection, run_id: str, after: int) -> list[InboxMessage]:
    """Return the messages of a run after an id, in order."""
    return [InboxMessage(*row) for row in await connection.fetch(_INBOX, run_id, after)]


async def chunks(connection: Connection, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
    """Return chunks, beginning with the one that holds this tick."""
    return [chunk(run_id, row) for row in await connection.fetch(_CHUNKS, run_id, first_tick, limit)]


async def stream(connection: Connection, run_id: str, cursor: int, limit: int) -> list[Chunk]:
    """Return chunks with events, beginning with the one that holds this cursor."""
    return [chunk(run_id, row) for row in await connection.fetch(_STREAM, run_id, cursor, limit)]


async def timers_due(
    connection: Connection, workflows: tuple[str, ...], before: float, limit: int
) -> list[tuple[str, float]]:
    """Return runs that could be claimed for a timer, with the due time of their first one; earliest first."""
    return [(row[0], row[1]) for row in await connection.fetch(_TIMERS_DUE, list(workflows), before, limit)]


async def next_timers(connection: Connection, run_ids: Sequence[str]) -> dict[str, float]:
    """Return when the first timer of each of these runs is due."""
    return {row[0]: row[1] for row in await connection.fetch(_NEXT_TIMERS, list(run_ids))}


async def descendants(connection: Connection, run_id: str, limit: int) -> int:
    """Count the open runs that descend from a run by open runs, up to a limit."""
    return int(await connection.fetchval(_DESCENDANTS, run_id, limit))


async def owned(connection: Connection, fence: int, with_messages: bool) -> list[str]:
    """Return the runs that a member owns, or only the ones with messages."""
    return [row[0] for row in await connection.fetch(_OWNED_WITH_MESSAGES if with_messages else _OWNED, fence)]


async def counts(connection: Connection) -> dict[str, int]:
    """Count runs by status, plus `idle` and `owned`."""
    found = dict.fromkeys(("running", "completed", "failed", "cancelled", "idle", "owned"), 0)
    for status, all_of_it, owned, idle in await connection.fetch(_COUNTS):
        found[status] = all_of_it
        found["owned"] += owned
        if status == "running":
            found["idle"] = idle
    return found


async def workflow_counts(connection: Connection) -> list[WorkflowCounts]:
    """Count the runs of each workflow by status and by what holds them."""
    return [WorkflowCounts(**dict(row)) for row in await connection.fetch(_BY_WORKFLOW)]


async def held_counts(connection: Connection) -> dict[str, HeldRuns]:
    """Count the runs by workflow that wait for input, are parked or are stuck."""
    return {name: HeldRuns(*counts) for name, *counts in await connection.fetch(_HELD)}


async def size(connection: Connection) -> int:
    """Return the bytes of Loom's tables, with their indexes and what is stored beside them."""
    return int(await connection.fetchval(_SIZE, list(TABLES)))

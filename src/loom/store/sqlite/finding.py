"""Finding runs by what is known of them. May import the records and this folder's helpers.

A query is put together from fixed pieces of text; what somebody asks for is only ever a parameter. Without statistics
SQLite guesses which index is best, and can guess badly; so the narrowest one that can serve is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from loom.store.sqlite.reads import STUCK, moment
from loom.store.sqlite.rows import RUN_COLUMNS, listed_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.records import RunQuery, RunRow, RunStatus
    from loom.store.sqlite.connection import Connection

_PROBED = 1000


class _Lookup(NamedTuple):
    """A condition that a table beside the runs answers: the texts to begin with it, to check it, and to weigh it."""

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
_BROAD = ("runs_by_workflow", "runs_by_status", "runs_by_time")
"""Indexes of all runs. Those that are at work may be few among them, and have an index of their own."""
_NEWEST = "ORDER BY {created_at} DESC, {run_id} DESC LIMIT ?"
_OLDEST = "ORDER BY {created_at}, {run_id} LIMIT ?"
_LOOKED_UP = {"created_at": "first.created_at", "run_id": "runs.run_id"}
# By their places in RUN_COLUMNS, as a union wants it.
_LISTED = {"created_at": "3", "run_id": "1"}
_MAX_UNION = 100
"""SQLite takes 500, and is slow with many."""
_WEIGH_IDLE = """SELECT COUNT(*) FROM
(SELECT 1 FROM runs INDEXED BY runs_by_idle_since WHERE idle_since IS NOT NULL AND idle_since <= ? LIMIT ?)"""
_WEIGH_WORKFLOW = "SELECT COUNT(*) FROM (SELECT 1 FROM runs INDEXED BY runs_by_workflow WHERE workflow = ? LIMIT ?)"
_FEW_IDLE = 3000
_STATUSES: tuple[RunStatus, ...] = ("running", "completed", "failed", "cancelled")


def find(connection: Connection, query: RunQuery) -> list[RunRow]:
    """The runs that match."""
    if () in (query.statuses, query.workflows):
        return []  # nothing is one of none, and no narrow index would hold for it
    found: list[tuple[Any, ...]] = []
    with moment(connection):
        lookups = _lookups(connection, query)
        portions = _portions(query)
        for portion in portions:
            found += connection.query(*statement(portion, lookups, _narrow_index(connection, portion, lookups)))
    if len(portions) > 1:
        found.sort(key=lambda values: (values[2], values[0]), reverse=not query.oldest_first)
    return [listed_row(values) for values in found[: query.limit]]


def _portions(query: RunQuery) -> list[RunQuery]:
    """The query for as many workflows at a time as one statement can take."""
    names = query.workflows
    if names is None or len(names) <= _MAX_UNION:
        return [query]
    return [replace(query, workflow=names[first : first + _MAX_UNION]) for first in range(0, len(names), _MAX_UNION)]


def _narrow_index(
    connection: Connection, query: RunQuery, lookups: Sequence[tuple[_Lookup, tuple[str, ...]]]
) -> str | None:
    """An index with so few of the runs that it is best to begin with them, even if what is found must be sorted."""
    if lookups and _weight(connection, *lookups[0]) < _PROBED:
        return None
    if query.idle_before is not None and _count(connection, _WEIGH_IDLE, query.idle_before, _FEW_IDLE) < _FEW_IDLE:
        return "runs_by_idle_since"
    if not lookups or not query.workflows:
        return None
    runs = 0
    for workflow in query.workflows:
        runs += _count(connection, _WEIGH_WORKFLOW, workflow, _PROBED)
        if runs >= _PROBED:
            return None
    return "runs_by_workflow"


def _weight(connection: Connection, lookup: _Lookup, values: tuple[str, ...]) -> int:
    """How many runs a lookup finds; of many, only that they are."""
    return _count(connection, lookup.weigh, *values, _PROBED)


def _count(connection: Connection, sql: str, *parameters: Any) -> int:
    count: int = connection.query(sql, parameters)[0][0]
    return count


def _lookups(connection: Connection, query: RunQuery) -> list[tuple[_Lookup, tuple[str, ...]]]:
    """What other tables are asked, with the parameters; what the fewest runs have comes first."""
    lookups: list[tuple[_Lookup, tuple[str, ...]]] = [(_TAG, tag) for tag in query.tags.items()]
    if query.waiting_for is not None:
        lookups.append((_TYPE, (query.waiting_for,)))
    if len(lookups) > 1:
        lookups.sort(key=lambda lookup: _weight(connection, *lookup))
    return lookups


def statement(
    query: RunQuery, lookups: Sequence[tuple[_Lookup, tuple[str, ...]]], narrow: str | None = None
) -> tuple[str, list[Any]]:
    """The text of a query and its parameters. It begins with the narrow index, if there is one, or the first lookup."""
    order = _OLDEST if query.oldest_first else _NEWEST
    if lookups and narrow is None:
        order = order.format_map(_LOOKED_UP)
        text, parameters = _selected(query, lookups[0][0].source, lookups[0][1], "first.created_at", lookups[1:])
    else:
        order = order.format_map(_LISTED)
        parts = [
            _selected(part, _source(index), (), "runs.created_at", lookups)
            for index, part in _parts(query, narrow or _index(query))
        ]
        text = " UNION ALL ".join(part for part, _ in parts)
        parameters = [value for _, values in parts for value in values]
    return f"{text} {order}", [*parameters, query.limit]


def _parts(query: RunQuery, index: str) -> list[tuple[str, RunQuery]]:
    """The indexes that serve, each with what it is asked for. SQLite merges what each brings in order.

    A query for several values of what an index begins with is one for each of them.
    """
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
    """What finds all runs that match, without an order yet, and its parameters."""
    conditions = [*_conditions(query), *_times(query, created_at), *((lookup.check, asked) for lookup, asked in checks)]
    texts, parameters = ["SELECT", RUN_COLUMNS, source], list(values)
    for text, asked in conditions:
        texts.extend(("AND", text))
        parameters.extend(asked)
    return " ".join(texts), parameters


def _source(index: str) -> str:
    # A parameter would not show SQLite that the index has all the runs that are asked for.
    return _BY_INDEX.format(index=index, always="runs.status = 'running'" if index == "runs_busy" else "1")


def _index(query: RunQuery) -> str:
    idle = query.idle is True or query.idle_before is not None
    candidates = (
        (query.stuck is True, "runs_stuck"),
        (query.parked is True, "runs_parked"),
        (query.paused is True, "runs_paused"),
        (query.parent is not None, "runs_by_parent"),
        (idle and bool(query.workflows), "runs_idle_by_workflow"),
        (idle, "runs_idle"),
        (bool(query.workflows), "runs_by_workflow"),
        (bool(query.statuses), "runs_by_status"),
    )
    return next((index for serves, index in candidates if serves), "runs_by_time")


def _times(query: RunQuery, created_at: str) -> list[tuple[str, tuple[Any, ...]]]:
    """What must hold of the time, by the column whose index brings the runs in order."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    if query.created_after is not None:
        found.append((created_at + " > ?", (query.created_after,)))
    if query.created_before is not None:
        found.append((created_at + " < ?", (query.created_before,)))
    if query.after is not None:
        # The first condition lets the index begin at the right place.
        sign = ">" if query.oldest_first else "<"
        found.append((f"{created_at} {sign}= ?", (query.after[0],)))
        found.append((f"({created_at}, runs.run_id) {sign} (?, ?)", query.after))
    return found


def _one_of(column: str, values: Sequence[str] | None) -> list[tuple[str, tuple[Any, ...]]]:
    if values is None:
        return []
    return [(f"{column} = ?" if len(values) == 1 else f"{column} IN ({', '.join('?' * len(values))})", tuple(values))]


def _conditions(query: RunQuery) -> list[tuple[str, tuple[Any, ...]]]:
    """What must hold, with the parameters of each."""
    candidates: tuple[tuple[bool, str, tuple[Any, ...]], ...] = (
        (query.parent is not None, "runs.parent = ?", (query.parent,)),
        (query.idle is True or query.idle_before is not None, "runs.idle_since IS NOT NULL", ()),
        (query.idle is False, "runs.idle_since IS NULL", ()),
        (query.idle_before is not None, "runs.idle_since <= ?", (query.idle_before,)),
        (query.paused is True, "runs.paused = 1", ()),
        (query.paused is False, "runs.paused = 0", ()),
        (query.parked is True, "runs.parked IS NOT NULL", ()),
        (query.parked is False, "runs.parked IS NULL", ()),
        (query.stuck is True, STUCK, ()),
        (query.stuck is False, f"NOT ({STUCK})", ()),
    )
    plain = [(text, values) for is_asked, text, values in candidates if is_asked]
    return [*_one_of("runs.status", query.statuses), *_one_of("runs.workflow", query.workflows), *plain]

"""Finding runs by what is known of them. May import the records and this folder's helpers.

A query is put together from fixed pieces of text; what somebody asks for is only ever a parameter. Without statistics
SQLite guesses which index is best, and can guess badly; so the narrowest one that can serve is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.store.sqlite.reads import moment
from loom.store.sqlite.rows import RUN_COLUMNS, listed_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.records import RunQuery, RunRow
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
_BY_INDEX = "FROM runs INDEXED BY {index} WHERE 1"
_ORDER = "ORDER BY {created_at} DESC, runs.run_id DESC LIMIT ?"


def find(connection: Connection, query: RunQuery) -> list[RunRow]:
    """The runs that match, newest first."""
    with moment(connection):
        sql, parameters = statement(query, _lookups(connection, query))
        return [listed_row(values) for values in connection.query(sql, parameters)]


def _lookups(connection: Connection, query: RunQuery) -> list[tuple[_Lookup, tuple[str, ...]]]:
    """What other tables are asked, with the parameters; what the fewest runs have comes first."""
    lookups: list[tuple[_Lookup, tuple[str, ...]]] = [(_TAG, tag) for tag in query.tags.items()]
    if query.waiting_for is not None:
        lookups.append((_TYPE, (query.waiting_for,)))
    if len(lookups) > 1:
        lookups.sort(key=lambda lookup: connection.query(lookup[0].weigh, (*lookup[1], _PROBED))[0][0])
    return lookups


def statement(query: RunQuery, lookups: Sequence[tuple[_Lookup, tuple[str, ...]]]) -> tuple[str, list[Any]]:
    """The text of a query and its parameters."""
    if lookups:
        source, parameters, created_at = lookups[0][0].source, list[Any](lookups[0][1]), "first.created_at"
    else:
        source, parameters, created_at = _BY_INDEX.replace("{index}", _index(query)), [], "runs.created_at"
    conditions = [*_conditions(query), *((lookup.check, values) for lookup, values in lookups[1:])]
    if query.after is not None:
        # The first condition lets the index begin at the right place.
        conditions.append((created_at + " <= ?", (query.after[0],)))
        conditions.append(("(" + created_at + ", runs.run_id) < (?, ?)", query.after))
    texts = ["SELECT", RUN_COLUMNS, source]
    for text, values in conditions:
        texts.extend(("AND", text))
        parameters.extend(values)
    texts.append(_ORDER.replace("{created_at}", created_at))
    parameters.append(query.limit)
    return " ".join(texts), parameters


def _index(query: RunQuery) -> str:
    candidates = (
        (query.parked is True, "runs_parked"),
        (query.paused is True, "runs_paused"),
        (query.parent is not None, "runs_by_parent"),
        (query.idle is True or query.idle_before is not None, "runs_idle"),
        (query.workflow is not None, "runs_by_workflow"),
        (query.status is not None, "runs_by_status"),
    )
    return next((index for serves, index in candidates if serves), "runs_by_time")


def _conditions(query: RunQuery) -> list[tuple[str, tuple[Any, ...]]]:
    """What must hold, with the parameters of each."""
    candidates: tuple[tuple[bool, str, tuple[Any, ...]], ...] = (
        (query.status is not None, "runs.status = ?", (query.status,)),
        (query.workflow is not None, "runs.workflow = ?", (query.workflow,)),
        (query.parent is not None, "runs.parent = ?", (query.parent,)),
        (query.idle is True or query.idle_before is not None, "runs.idle_since IS NOT NULL", ()),
        (query.idle is False, "runs.idle_since IS NULL", ()),
        (query.idle_before is not None, "runs.idle_since <= ?", (query.idle_before,)),
        (query.paused is True, "runs.paused = 1", ()),
        (query.paused is False, "runs.paused = 0", ()),
        (query.parked is True, "runs.parked IS NOT NULL", ()),
        (query.parked is False, "runs.parked IS NULL", ()),
    )
    return [(text, values) for is_asked, text, values in candidates if is_asked]

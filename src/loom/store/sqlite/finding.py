"""Finding runs by what is known of them. May import the records and this folder's helpers.

A query is put together from fixed pieces of text; what somebody asks for is only ever a parameter. Without statistics
SQLite guesses which index is best, and can guess badly; so the narrowest one that can serve is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.store.sqlite.rows import RUN_COLUMNS, run_row

if TYPE_CHECKING:
    from loom.store.records import RunQuery, RunRow
    from loom.store.sqlite.connection import Connection

_BY_TYPE = "FROM waiting AS first CROSS JOIN runs ON runs.id = first.run WHERE first.event_type = ?"
_BY_TAG = "FROM tags AS first CROSS JOIN runs ON runs.id = first.run WHERE first.name = ? AND first.value = ?"
_BY_INDEX = "FROM runs INDEXED BY {index} WHERE 1"
_TAGGED = "EXISTS (SELECT 1 FROM tags WHERE tags.run = runs.id AND tags.name = ? AND tags.value = ?)"
_ORDER = "ORDER BY {created_at} DESC, runs.run_id DESC LIMIT ?"


def find(connection: Connection, query: RunQuery) -> list[RunRow]:
    """The runs that match, newest first."""
    sql, parameters = statement(query)
    return [run_row(values) for values in connection.query(sql, parameters)]


def statement(query: RunQuery) -> tuple[str, list[Any]]:
    """The text of a query and its parameters."""
    source, parameters, tags = _source(query)
    created_at = "runs.created_at" if source.startswith("FROM runs") else "first.created_at"
    texts = ["SELECT", RUN_COLUMNS, source]
    conditions = [*_conditions(query), *((_TAGGED, tag) for tag in tags)]
    if query.after is not None:
        # The first condition lets the index begin at the right place.
        conditions.append((created_at + " <= ?", (query.after[0],)))
        conditions.append(("(" + created_at + ", runs.run_id) < (?, ?)", query.after))
    for text, values in conditions:
        texts.extend(("AND", text))
        parameters.extend(values)
    texts.append(_ORDER.replace("{created_at}", created_at))
    parameters.append(query.limit)
    return " ".join(texts), parameters


def _source(query: RunQuery) -> tuple[str, list[Any], list[tuple[str, str]]]:
    """Where to look first, its parameters, and the tags that are still to be checked."""
    tags = list(query.tags.items())
    if query.waiting_for is not None:
        return _BY_TYPE, [query.waiting_for], tags
    if tags:
        return _BY_TAG, list(tags[0]), tags[1:]
    return _BY_INDEX.replace("{index}", _index(query)), [], []


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

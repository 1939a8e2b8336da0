"""Which rows a query means, for stores that look at rows one by one. Pure. May import the records beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.store.records import RunQuery, RunRow


def age(row: RunRow) -> tuple[float, str]:
    """What lists are ordered by."""
    return row.created_at, row.run_id


def matches(row: RunRow, query: RunQuery) -> bool:
    """Whether every condition that is given holds."""
    head = row.head
    return (
        (query.statuses is None or head.status in query.statuses)
        and (query.workflows is None or row.workflow in query.workflows)
        and (query.parent is None or row.parent == query.parent)
        and (query.paused is None or head.paused == query.paused)
        and (query.parked is None or (head.parked is not None) == query.parked)
        and (query.stuck is None or (head.stuck is not None) == query.stuck)
        and (query.waiting_for is None or query.waiting_for in head.waiting_for)
        and _time_matches(row, query)
        and _idle_matches(head.idle_since, query)
        and all(row.tags.get(key) == value for key, value in query.tags.items())
    )


def _time_matches(row: RunRow, query: RunQuery) -> bool:
    if query.created_after is not None and row.created_at <= query.created_after:
        return False
    if query.created_before is not None and row.created_at >= query.created_before:
        return False
    if query.after is None:
        return True
    return age(row) > query.after if query.oldest_first else age(row) < query.after


def _idle_matches(idle_since: float | None, query: RunQuery) -> bool:
    if query.idle is not None and (idle_since is not None) != query.idle:
        return False
    return query.idle_before is None or (idle_since is not None and idle_since <= query.idle_before)

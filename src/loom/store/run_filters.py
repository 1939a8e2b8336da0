"""The query of a store that filters of the API mean, for callers that have them as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store.records import NameT, RunQuery

if TYPE_CHECKING:
    from datetime import datetime

    from loom.api.problems import RunStatus
    from loom.api.requests import RunFilters


def run_query(filters: RunFilters, now: float, limit: int = 100) -> RunQuery:
    """Return the query of filters at a time. `include` is no part of it."""
    longer, idle, status = filters.get("idle_longer_than"), filters.get("idle"), _values(filters.get("status"))
    if longer is not None or idle:
        idle, status = True, running_of(status)
    order = filters.get("order") or "-created_at"
    return RunQuery(
        status=status,
        workflow=_values(filters.get("workflow")),
        idle=idle,
        idle_before=now - longer if longer is not None else None,
        waiting_for=filters.get("waiting_for"),
        tags=filters.get("tags") or {},
        parent=filters.get("parent_id"),
        paused=filters.get("paused"),
        parked=filters.get("parked"),
        stuck=filters.get("stuck"),
        asleep=filters.get("asleep"),
        waiting=filters.get("waiting"),
        id_prefix=filters.get("id_prefix"),
        created_after=_seconds(filters.get("created_after")),
        created_before=_seconds(filters.get("created_before")),
        updated_after=_seconds(filters.get("updated_after")),
        oldest_first=not order.startswith("-"),
        by_update=order.endswith("updated_at"),
        limit=limit,
    )


def running_of(statuses: tuple[RunStatus, ...] | None) -> tuple[RunStatus, ...]:
    """Return the statuses that idle runs among these have: running, or none."""
    return ("running",) if statuses is None or "running" in statuses else ()


def _values(given: NameT | list[NameT] | None) -> tuple[NameT, ...] | None:
    if given is None:
        return None
    return tuple(given) if isinstance(given, list) else (given,)


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at is not None else None

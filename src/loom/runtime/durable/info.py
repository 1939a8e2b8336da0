"""What callers learn about a stored run."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from loom.api.problems import RunStatus
from loom.api.times import moment

if TYPE_CHECKING:
    from loom.core.ticks import WorkflowTick
    from loom.store.records import RunRow


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment: how far it is, and what it waits for."""

    run_id: str
    workflow: str
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    idle_since: datetime | None = None
    active_waiters: list[dict[str, Any]] = []
    """What it waits for: step, event_type, waiter_id, requirements, since, deadline, kind, prompt, schema."""
    paused: bool = False
    parked: str | None = None
    """Why it cannot go on with the code of its worker; None if it can."""
    stuck: str | None = None
    """Why the run is idle although no step, timer or waiter can move it, and it is neither paused nor parked."""
    asleep: bool = False
    """Whether only a timer will move it."""
    error: str | None = None
    """What a failed run failed with."""
    kept_events: int = 0
    """Events that came early and wait for a step to ask for them."""
    ticks: int = 0
    events: int = 0
    tags: dict[str, str] = {}
    parent_id: str | None = None
    forked_from: str | None = None
    in_memory: bool = False
    """Whether some process holds it in memory."""


class HistoryEntry(NamedTuple):
    """One tick of a run: its number, its time, and what happened."""

    seq: int
    at: float
    tick: WorkflowTick


def info_of(row: RunRow) -> RunInfo:
    """The row of a run, as callers see it."""
    head = row.head
    return RunInfo(
        run_id=row.run_id,
        workflow=row.workflow,
        status=head.status,
        created_at=moment(row.created_at),
        updated_at=moment(head.updated_at),
        ended_at=moment(row.ended_at) if row.ended_at is not None else None,
        idle_since=moment(head.idle_since) if head.idle_since is not None else None,
        active_waiters=json.loads(head.waiters),
        paused=head.paused,
        parked=head.parked,
        stuck=head.stuck,
        asleep=head.asleep,
        error=head.failed_with,
        kept_events=head.kept,
        ticks=head.ticks,
        events=head.events,
        tags=row.tags,
        parent_id=row.parent,
        forked_from=row.forked_from,
        in_memory=row.owner is not None,
    )

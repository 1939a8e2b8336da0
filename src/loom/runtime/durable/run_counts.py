"""The runs of a store, counted by workflow: seldom, however many ask, and never twice at the same time."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from loom.api.counts import Counts
from loom.api.times import moment
from loom.runtime.durable.names import OWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from loom.api.counts import WorkflowCounts
    from loom.store.ports import RunReads

_FRESH_S = 1.0
_SHARE = 50
"""Counting takes no more than one part in this many of the time."""
_SUMS = (
    "total",
    "running",
    "completed",
    "failed",
    "cancelled",
    "idle",
    "asleep",
    "waiting",
    "paused",
    "parked",
    "stuck",
)
_STATUSES = ("running", "completed", "failed", "cancelled")


class CountedWorkflows:
    """Counts by workflow, kept for a second at least, and for longer the longer counting takes."""

    def __init__(self, store: RunReads, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._counting = asyncio.Lock()
        self._found: list[WorkflowCounts] = []
        self._by_status: dict[str, int] = {}
        """Of a store that counts by status alone."""
        self._at = 0.0
        self._until = float("-inf")

    @property
    def wait_s(self) -> float:
        """In how many seconds `get` will count anew."""
        return max(0.0, self._until - monotonic())

    async def get(self, workflows: Collection[str] | None) -> Counts:
        """Return the counts of these workflows, or of all but Loom's own."""
        async with self._counting:  # who waits for the one that counts finds what that one has found
            if monotonic() >= self._until:
                await self._count()
        found = [each for each in self._found if workflows is None or each.workflow in workflows]
        found.sort(key=lambda each: each.workflow)
        at = moment(self._at)
        if self._by_status:
            return Counts(at=at, **self._known(workflows))
        sums: dict[str, Any] = {name: sum(getattr(each, name) for each in found) for name in _SUMS}
        return Counts(at=at, workflows=found, **sums)

    def _known(self, workflows: Collection[str] | None) -> dict[str, Any]:
        """Return the sums of a store that counts by status alone: none, if only some workflows are asked for."""
        if workflows is not None:
            return {}
        by_status = {name: self._by_status[name] for name in (*_STATUSES, "idle")}
        return {**by_status, "total": sum(by_status[name] for name in _STATUSES)}

    async def _count(self) -> None:
        began = monotonic()
        found = await self._store.workflow_counts()
        self._by_status = {} if found else await self._by_status_alone()
        self._found = [each for each in found if not each.workflow.startswith(OWN)]
        ended = monotonic()
        self._at = self._now()
        self._until = ended + max(_FRESH_S, _SHARE * (ended - began))

    async def _by_status_alone(self) -> dict[str, int]:
        counts = await self._store.counts()
        return counts if any(counts.values()) else {}

"""Finds runs with problems on a cluster, for the hooks of this process.

A run on a cluster ends without a transaction of Loom's, so its problem is found by looking: failed runs by the time at
which they were closed, parked and stuck ones by their search attribute. What is found becomes a notice, a run whose id
is that of the problem: it is started once, however often and by however many processes the problem is found. Up to
which time all was found is an entry of the store, so that a process that comes back goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from loom.runtime.durable.problems import is_notice, problem_of
from loom.store.records import RunQuery
from loom.temporal.store_recent import Recent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.api.problems import ProblemKind
    from loom.runtime.durable.problems import Problems
    from loom.store.committer import Committer
    from loom.store.records import RunRow
    from loom.temporal.store import TemporalStore

_MARKS = "problem-mark"
_OVERLAP_S = 600.0
"""Visibility follows within a second as a rule. What comes later than this is not found."""
_CLOCKS_DIFFER_S = 60.0
"""Runs end by the clock of the server."""
_PAGE = 200


class _Mark(NamedTuple):
    """How far the looks at a cluster have come, for one channel."""

    first: float
    """When its first hook was there. What had failed before is not told."""
    last: float
    """Up to which time all was found."""


class ProblemWatch:
    """Looks for problems now and then."""

    def __init__(self, store: TemporalStore, committer: Committer, problems: Problems, now: float) -> None:
        self._store = store
        self._committer = committer
        self._problems = problems
        self._began = now - _CLOCKS_DIFFER_S
        self._found: Recent[str, bool] = Recent(10_000)
        """Problems whose notices were started by this process."""

    async def look(self, now: float) -> None:
        """Start notices for all problems since the last look, and remember that."""
        marks = {channel: await self._mark(channel) for channel in self._problems.own}
        first, last = (min(times) for times in zip(*marks.values(), strict=True))
        async for row in self._store.failed_since(max(first, last - _OVERLAP_S)):
            await self._tell(row, "failed", row.head.failed_with, now)
        if self._store.has_attributes:  # else every run would have to be asked
            async for row in self._listed(RunQuery(status="running", parked=True, limit=_PAGE)):
                await self._tell(row, "parked", row.head.parked, now)
            async for row in self._listed(RunQuery(status="running", stuck=True, limit=_PAGE)):
                await self._tell(row, "stuck", row.head.stuck, now)
        for channel, mark in marks.items():
            await self._store.put_entry(_MARKS, channel, msgspec.json.encode(_Mark(mark.first, now)))

    async def _mark(self, channel: str) -> _Mark:
        entry = await self._store.entry(_MARKS, channel)
        return msgspec.json.decode(entry.data, type=_Mark) if entry is not None else _Mark(self._began, self._began)

    async def _listed(self, query: RunQuery) -> AsyncIterator[RunRow]:
        while rows := await self._store.find(query):
            for row in rows:
                yield row
            query = msgspec.structs.replace(query, after=(rows[-1].created_at, rows[-1].run_id))

    async def _tell(self, row: RunRow, kind: ProblemKind, message: str | None, now: float) -> None:
        problem = problem_of(row, row.head, kind, message)
        if is_notice(row.workflow) or self._found.get(problem.id):
            return
        for notice in self._problems.notices(problem, now):
            await self._committer.submit(notice)
        self._found.keep(problem.id, True)

"""Finds runs on a cluster: the visibility store says which there are, the runs themselves how they are.

Visibility follows the runs within a second as a rule. So a list may miss a run that another process has just started,
but what it says of a run is never older than the call. The server lists in no order that could be used here. So a list
costs as much as there are runs that match by workflow, status and search attributes.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from temporalio.client import WorkflowExecutionStatus

from loom.store.records import RunQuery, matches, place_of
from loom.temporal import names
from loom.temporal.client.records import metadata_in_memo, row_of_metadata
from loom.temporal.names import MANY, keyword, tag_text
from loom.temporal.rpc import PATIENT_S, in_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.store.records import RunRow
    from loom.temporal.client.cluster import Cluster
    from loom.temporal.client.reads import ObservedRow, RunReader

_STATUSES = {
    "running": ("Running",),
    "completed": ("Completed",),
    "failed": ("Failed", "Terminated", "TimedOut"),
    "cancelled": ("Canceled",),
}
_STATUS_OF = {theirs: ours for ours, all_of_them in _STATUSES.items() for theirs in all_of_them}
_ODD = frozenset("\"'`\\%")
_PAGE = 1000
_PATIENCE = timedelta(seconds=PATIENT_S)
_LISTED_S = 10.0
_AT_ONCE = 20
_CLOCKS_DIFFER_S = 3600.0
"""Seconds; a run is created by the clock of its client, and its execution starts by the server's."""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _moment(at: float) -> str:
    return _quoted(datetime.fromtimestamp(max(0.0, at), tz=UTC).isoformat())


def _one_of(field: str, values: tuple[str, ...]) -> str:
    return f"{field} IN ({', '.join(_quoted(value) for value in values)})"


def condition(query: RunQuery, task_queue: str, has_attributes: bool) -> str:
    """Return a condition of the visibility store that all executions meet whose runs match the query."""
    terms = [f"TaskQueue = {_quoted(task_queue)}", f"WorkflowType != {_quoted(names.ENTRIES)}"]
    statuses = query.statuses
    if (
        query.idle_before is not None
        or query.waiting_for is not None
        or any((query.idle, query.parked, query.stuck, query.asleep, query.waiting))
    ):
        statuses = ("running",)  # only running runs are so; one that is asked for as ended is then ruled out by its row
    if statuses is not None:
        terms.append(_one_of("ExecutionStatus", tuple(word for each in statuses for word in _STATUSES[each])))
    else:
        terms.append('ExecutionStatus != "ContinuedAsNew"')
    # Visibility stores differ in how they read quotes within a text; such names are told apart by the cards.
    if query.workflows is not None and not any(_ODD.intersection(name) for name in query.workflows):
        terms.append(_one_of("WorkflowType", query.workflows))
    if query.created_after is not None:
        terms.append(f"StartTime >= {_moment(query.created_after - _CLOCKS_DIFFER_S)}")
    if has_attributes:
        terms += _by_attributes(query)
    return " AND ".join(terms)


def _by_attributes(query: RunQuery) -> list[str]:
    """Return terms of search attributes. Runs without any were started before the cluster had them."""
    tags, idle, waiting = names.ATTRIBUTE_TAGS, names.ATTRIBUTE_IDLE_SINCE, names.ATTRIBUTE_WAITING_FOR
    terms = [
        f"({tags} IS NULL OR {_one_of(tags, (keyword(tag_text(key, value)), MANY))})"
        for key, value in query.tags.items()
    ]
    if query.idle_before is not None:
        terms.append(f"({tags} IS NULL OR {idle} <= {_moment(query.idle_before)})")
    elif query.idle:
        terms.append(f"({tags} IS NULL OR {idle} IS NOT NULL)")
    if query.parked:
        terms.append(f"({tags} IS NULL OR {_one_of(waiting, (names.PARKED,))})")
    if query.stuck:
        # Runs that became idle under an older version have no word at all.
        terms.append(
            f"({tags} IS NULL OR ({idle} IS NOT NULL AND ({waiting} IS NULL OR {_one_of(waiting, (names.STUCK,))})))"
        )
    if query.waiting_for is not None:
        # A run tells what it waits for when it becomes idle; one that is not idle may wait for something too.
        words = _one_of(waiting, (keyword(query.waiting_for), MANY))
        terms.append(f"({tags} IS NULL OR {idle} IS NULL OR {words})")
    return terms


class Candidate(NamedTuple):
    """A run that may match, by its memo and the visibility store."""

    created_at: float
    run_id: str
    row: RunRow
    """Only its fixed fields count."""
    closed: bool = False


def _candidate(row: RunRow, closed: bool = False) -> Candidate:
    return Candidate(row.created_at, row.run_id, row, closed)


class _Listed(NamedTuple):
    """The candidates of a list, kept for its next pages."""

    filters: RunQuery
    candidates: list[Candidate]
    until: float


class Visibility:
    """Lists and counts runs."""

    def __init__(self, cluster: Cluster, reader: RunReader) -> None:
        self._cluster = cluster
        self._reader = reader
        self.has_attributes = False
        self._listed: _Listed | None = None
        """For the next page of the last list."""

    async def find(self, query: RunQuery) -> list[RunRow]:
        """Return the rows that match, in order, after `query.after`."""
        if query.statuses == () or query.workflows == () or query.limit <= 0:
            return []
        candidates = await self._candidates(query)
        # Only the runs themselves know their last change: all of them are asked before any is listed.
        limit = len(candidates) if query.by_update else query.limit
        found: list[RunRow] = []
        ask = True
        for start in range(0, len(candidates), _AT_ONCE):
            part = candidates[start : start + _AT_ONCE]
            observed = await asyncio.gather(*(self._observe(each, ask) for each in part))
            found += [each.row for each in observed if each is not None and matches(each.row, query)]
            if len(found) >= limit:
                break
            silent = [each for each in observed if each is not None and not each.told]
            # No worker is there to answer: the rest need not wait for one too.
            ask = ask and not (silent and len(silent) == sum(not each.closed for each in part))
        if query.by_update:
            found.sort(key=lambda row: place_of(row, query), reverse=not query.oldest_first)
        return found[: query.limit]

    async def _observe(self, candidate: Candidate, ask: bool) -> ObservedRow | None:
        return await self._reader.observe(candidate.run_id, ask=ask, closed=candidate.closed)

    async def _candidates(self, query: RunQuery) -> list[Candidate]:
        """Return the runs that may match, each once, in the requested order."""
        filters = replace(query, after=None, limit=0)
        known_list = self._listed if query.after is not None else None
        if known_list is None or known_list.filters != filters or known_list.until < time.monotonic():
            by_id = {row.run_id: _candidate(row) for row in self._reader.lately()}
            async for candidate in self.listed(condition(query, self._cluster.address.task_queue, self.has_attributes)):
                known = by_id.get(candidate.run_id)
                # A retried run has a closed execution and a newer one.
                by_id[candidate.run_id] = candidate if known is None or known.closed else known
            listed = sorted(by_id.values(), key=lambda each: each[:2], reverse=not query.oldest_first)
            until = time.monotonic() + _LISTED_S
            self._listed = _Listed(filters, listed, until) if len(listed) > query.limit else None
        else:
            listed = known_list.candidates
        fixed = RunQuery(
            workflow=query.workflow,
            tags=query.tags,
            parent=query.parent,
            id_prefix=query.id_prefix,
            created_after=query.created_after,
            created_before=query.created_before,
            oldest_first=query.oldest_first,
            after=None if query.by_update else query.after,
        )
        return [each for each in listed if matches(each.row, fixed)]

    async def listed(self, where: str) -> AsyncIterator[Candidate]:
        """Yield the executions of Loom runs that meet a condition."""
        with self._cluster.calling("list runs"):
            found = self._cluster.client.list_workflows(where, page_size=_PAGE, rpc_timeout=_PATIENCE)
            while (execution := await in_time(anext(found, None))) is not None:
                metadata = await metadata_in_memo(execution)
                if metadata is not None:
                    yield _candidate(row_of_metadata(metadata), execution.status is not WorkflowExecutionStatus.RUNNING)

    async def ended_before(self, ended_before: float) -> AsyncIterator[str]:
        """Yield the ids of runs that may have ended before a time."""
        where = (
            f"TaskQueue = {_quoted(self._cluster.address.task_queue)} AND CloseTime < {_moment(ended_before)} "
            'AND ExecutionStatus != "Running" AND ExecutionStatus != "ContinuedAsNew"'
        )
        async for candidate in self.listed(where):
            yield candidate.run_id

    async def open_or_ended_since(self, at: float) -> AsyncIterator[Candidate]:
        """Yield the runs that are open, and those that have ended at a time or later."""
        where = (
            f"TaskQueue = {_quoted(self._cluster.address.task_queue)} AND WorkflowType != {_quoted(names.ENTRIES)} "
            f'AND ExecutionStatus != "ContinuedAsNew" AND (ExecutionStatus = "Running" OR CloseTime >= {_moment(at)})'
        )
        async for candidate in self.listed(where):
            yield candidate

    async def failed_since(self, at: float) -> AsyncIterator[str]:
        """Yield the ids of runs that failed at a time or later."""
        failed = _one_of("ExecutionStatus", _STATUSES["failed"])
        where = f"TaskQueue = {_quoted(self._cluster.address.task_queue)} AND CloseTime >= {_moment(at)} AND {failed}"
        async for candidate in self.listed(where):
            yield candidate.run_id

    async def counts(self) -> dict[str, int]:
        """Count executions by status, and idle ones where the cluster has search attributes.

        All workflows on the task queue count, and a retried run counts with each of its executions.
        """
        found = dict.fromkeys(("running", "completed", "failed", "cancelled", "idle", "owned"), 0)
        base = f"TaskQueue = {_quoted(self._cluster.address.task_queue)} AND WorkflowType != {_quoted(names.ENTRIES)}"
        client = self._cluster.client
        with self._cluster.calling("count runs"):
            counted = await in_time(client.count_workflows(f"{base} GROUP BY ExecutionStatus", rpc_timeout=_PATIENCE))
            for group in counted.groups:
                status = _STATUS_OF.get(str(group.group_values[0]))
                if status is not None:
                    found[status] += group.count
            if self.has_attributes:
                idle = f'{base} AND ExecutionStatus = "Running" AND {names.ATTRIBUTE_IDLE_SINCE} IS NOT NULL'
                found["idle"] = (await in_time(client.count_workflows(idle, rpc_timeout=_PATIENCE))).count
        return found

"""Finding runs on a cluster: the visibility store says which there are, the runs themselves how they are.

Visibility follows the runs with a little delay, a second at most as a rule, so a run that another process has started
just now may be missing in a list; what a list says of a run is never older than the call. The server lists in no order
that could be used here, so a list costs as much as there are runs that match by workflow, status and search attributes.
May import loom.store, temporalio and the modules beside it.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace
from temporalio.client import WorkflowExecutionStatus

from loom.store.matching import matches
from loom.temporal import names
from loom.temporal.keywords import MANY, keyword, tag_text
from loom.temporal.query_client import PATIENT_S, in_time
from loom.temporal.rows import card_in_memo, row_of_card

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.store.records import RunQuery, RunRow
    from loom.temporal.store_cluster import Cluster
    from loom.temporal.store_reading import Looked, Reading

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
"""A run is created by the clock of whoever started it, and its execution starts by the server's."""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _moment(at: float) -> str:
    return _quoted(datetime.fromtimestamp(max(0.0, at), tz=UTC).isoformat())


def _one_of(field: str, values: tuple[str, ...]) -> str:
    return f"{field} IN ({', '.join(_quoted(value) for value in values)})"


def condition(query: RunQuery, task_queue: str, has_attributes: bool) -> str:
    """A condition of the visibility store that all executions meet whose runs match the query."""
    terms = [f"TaskQueue = {_quoted(task_queue)}", f"WorkflowType != {_quoted(names.ENTRIES)}"]
    statuses = query.statuses
    if query.idle or query.idle_before is not None or query.waiting_for is not None or query.parked or query.stuck:
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
    """What search attributes can rule out. Runs that have none were started before the cluster had them."""
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
        # What a run waits for is told when it is idle; one that is not may wait for something too.
        words = _one_of(waiting, (keyword(query.waiting_for), MANY))
        terms.append(f"({tags} IS NULL OR {idle} IS NULL OR {words})")
    return terms


class Candidate(NamedTuple):
    """A run that may match, by what its memo and the visibility store say."""

    created_at: float
    run_id: str
    row: RunRow
    """Only what is fixed about it counts."""
    closed: bool = False


def _candidate(row: RunRow, closed: bool = False) -> Candidate:
    return Candidate(row.created_at, row.run_id, row, closed)


class _Listed(NamedTuple):
    """The candidates of a list, which are good for its next pages for a while."""

    filters: RunQuery
    candidates: list[Candidate]
    until: float


class Visibility:
    """Lists and counts runs."""

    def __init__(self, cluster: Cluster, reading: Reading) -> None:
        self._cluster = cluster
        self._reading = reading
        self.has_attributes = False
        self._listed: _Listed | None = None
        """For the next page of the last list."""

    async def find(self, query: RunQuery) -> list[RunRow]:
        """The rows that match, in order, behind `query.after`."""
        if query.statuses == () or query.workflows == () or query.limit <= 0:
            return []
        candidates = await self._candidates(query)
        found: list[RunRow] = []
        ask = True
        for start in range(0, len(candidates), _AT_ONCE):
            part = candidates[start : start + _AT_ONCE]
            looked = await asyncio.gather(*(self._look(each, ask) for each in part))
            found += [each.row for each in looked if each is not None and matches(each.row, query)]
            if len(found) >= query.limit:
                break
            silent = [each for each in looked if each is not None and not each.told]
            # Nobody is there to answer: the rest need not wait for it too.
            ask = ask and not (silent and len(silent) == sum(not each.closed for each in part))
        return found[: query.limit]

    async def _look(self, candidate: Candidate, ask: bool) -> Looked | None:
        return await self._reading.look(candidate.run_id, ask=ask, closed=candidate.closed)

    async def _candidates(self, query: RunQuery) -> list[Candidate]:
        """Runs that may match, in the order that is asked for, each once."""
        filters = replace(query, after=None, limit=0)
        known_list = self._listed if query.after is not None else None
        if known_list is None or known_list.filters != filters or known_list.until < time.monotonic():
            by_id = {row.run_id: _candidate(row) for row in self._reading.lately()}
            async for candidate in self.listed(condition(query, self._cluster.address.task_queue, self.has_attributes)):
                known = by_id.get(candidate.run_id)
                # A run that was retried has a closed execution and another one behind it.
                by_id[candidate.run_id] = candidate if known is None or known.closed else known
            listed = sorted(by_id.values(), key=lambda each: each[:2], reverse=not query.oldest_first)
            until = time.monotonic() + _LISTED_S
            self._listed = _Listed(filters, listed, until) if len(listed) > query.limit else None
        else:
            listed = known_list.candidates
        fixed = replace(
            query, status=None, idle=None, idle_before=None, waiting_for=None, paused=None, parked=None, stuck=None
        )
        return [each for each in listed if matches(each.row, fixed)]

    async def listed(self, where: str) -> AsyncIterator[Candidate]:
        """The executions of Loom runs that meet a condition."""
        with self._cluster.calling("list runs"):
            found = self._cluster.client.list_workflows(where, page_size=_PAGE, rpc_timeout=_PATIENCE)
            while (execution := await in_time(anext(found, None))) is not None:
                card = await card_in_memo(execution)
                if card is not None:
                    yield _candidate(row_of_card(card), execution.status is not WorkflowExecutionStatus.RUNNING)

    async def ended_before(self, ended_before: float) -> AsyncIterator[str]:
        """The ids of runs that may have ended before a time."""
        where = (
            f"TaskQueue = {_quoted(self._cluster.address.task_queue)} AND CloseTime < {_moment(ended_before)} "
            'AND ExecutionStatus != "Running" AND ExecutionStatus != "ContinuedAsNew"'
        )
        async for candidate in self.listed(where):
            yield candidate.run_id

    async def failed_since(self, at: float) -> AsyncIterator[str]:
        """The ids of runs that failed at a time or later."""
        failed = _one_of("ExecutionStatus", _STATUSES["failed"])
        where = f"TaskQueue = {_quoted(self._cluster.address.task_queue)} AND CloseTime >= {_moment(at)} AND {failed}"
        async for candidate in self.listed(where):
            yield candidate.run_id

    async def counts(self) -> dict[str, int]:
        """How many executions there are by status; those that are idle, where the cluster has search attributes.

        All workflows on the task queue count, and a run that was retried counts with each of its executions.
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

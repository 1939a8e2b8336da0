"""Reads runs on a cluster: rows, streams, journals, histories.

Closed runs are read from their history. Open ones are asked by queries, which a worker answers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from temporalio.common import RawValue

from loom.runtime.lru_cache import LruCache
from loom.store.errors import HistoryGone
from loom.store.records import RunRow
from loom.temporal.client.cluster import NoAnswer, NoSuchQuery, NotOpen, NotThere, failed_tasks, is_open
from loom.temporal.client.records import (
    ending_in,
    is_closing,
    metadata_in_memo,
    row_closed_otherwise,
    row_of_metadata,
    row_unanswered,
)
from loom.temporal.names import MEMO_ENDING, QUERY_CHUNKS, QUERY_ROW
from loom.temporal.payloads import ChunkQuery, Chunks, Ending, value_of
from loom.temporal.rpc import PATIENT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from temporalio.client import WorkflowHistory

    from loom.store.records import Chunk
    from loom.temporal.client.cluster import Cluster

ROW_PATIENCE_S = 2.0
"""Seconds that an open run may take to answer with its row; after that the cluster's own knowledge must do."""
_LATELY_S = 5.0
"""Seconds; visibility follows within one as a rule."""

_deleted: LruCache[tuple[str, str], str] = LruCache(10_000)
"""The newest executions of runs that this process has deleted, by namespace and run id.

The server goes on to show them for up to a minute. All stores of the process share this."""


class ObservedRow(NamedTuple):
    """A row, and whether it comes from the run itself or its close event; else the cluster has put it together."""

    row: RunRow
    told: bool = True


class _JournalPart(NamedTuple):
    """Where the part of a journal begins that one execution has, and which execution has the part before."""

    first_tick: int
    first_cursor: int
    previous: str

    def has(self, asked: ChunkQuery) -> bool:
        """Say whether the requested part begins here. Before the first execution there is nothing to read."""
        if not self.previous:
            return True
        if asked.cursor is not None:
            return self.first_cursor <= asked.cursor
        return self.first_tick <= asked.first_tick


class RunReader:
    """Reads runs, and remembers a little of what it has read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.rows: LruCache[str, RunRow] = LruCache(1000)
        """The rows that were read last; `row` renews them."""
        self._touched: LruCache[str, float] = LruCache(100)
        """When this process has started or read runs, by `time.monotonic`."""
        self._endings: LruCache[str, Ending] = LruCache(200)
        self._parts: LruCache[str, _JournalPart] = LruCache(10_000)
        """Parts of closed executions by Temporal run id: they do not change any more."""

    def forget(self, run_id: str) -> None:
        """Drop what was read of a run: it may have changed."""
        self.rows.drop(run_id)
        self._endings.drop(run_id)

    def hide(self, run_id: str, execution: str) -> None:
        """Note that the run was deleted with this execution as its newest one: the server may still show it."""
        self.forget(run_id)
        _deleted.put(self._place(run_id), execution)

    def _place(self, run_id: str) -> tuple[str, str]:
        # Not the host: a cluster has many, and no execution has the id of another one.
        return self._cluster.address.namespace, run_id

    def is_hidden(self, run_id: str) -> bool:
        """Say whether this process has deleted an execution of this run."""
        return _deleted.peek(self._place(run_id)) is not None

    async def is_deleted(self, run_id: str) -> bool:
        """Say whether this process has deleted what the server still shows of a run. `NotThere`."""
        deleted = _deleted.get(self._place(run_id))
        return deleted is not None and (await self._cluster.describe(run_id)).run_id == deleted

    # -- rows ---------------------------------------------------------------------------------------------------------

    async def row(self, run_id: str) -> RunRow | None:
        """Return a run as it is now; None if there is none of this id, or it is not a Loom run."""
        observed = await self.observe(run_id)
        if observed is None:
            return None
        self._touched.put(run_id, time.monotonic())
        return observed.row

    def began(self, row: RunRow) -> None:
        """Note that this process has started a run."""
        self.forget(row.run_id)
        self.rows.put(row.run_id, row)
        self._touched.put(row.run_id, time.monotonic())

    def lately(self) -> list[RunRow]:
        """Return the runs that this process has started or read a moment ago: lists may not have them yet."""
        since = time.monotonic() - _LATELY_S
        rows = [self.rows.get(run_id) for run_id, at in self._touched.items() if at > since]
        return [row for row in rows if row is not None]

    async def observe(self, run_id: str, *, ask: bool = True, closed: bool = False) -> ObservedRow | None:
        """Return a run as it is now, and where that comes from; None as for `row`.

        With `closed` the close event is looked for first. Without `ask` no worker is asked.
        """
        try:
            observed = None if await self.is_deleted(run_id) else await self._observe(run_id, ask, closed)
        except NotThere:
            observed = None
        if observed is None:
            self.forget(run_id)
            return None
        self.rows.put(run_id, observed.row)
        if observed.row.head.status == "running":
            self._endings.drop(run_id)
        return observed

    async def _observe(self, run_id: str, ask: bool, closed: bool) -> ObservedRow | None:
        why: str | None = "others did not either"
        if closed and (found := await self._closed(run_id)) is not None:
            return found
        if ask:
            try:
                row = await self._cluster.query(run_id, QUERY_ROW, RunRow, only_open=True, patience_s=ROW_PATIENCE_S)
                return ObservedRow(row)
            except NotOpen:
                if (found := await self._closed(run_id)) is not None:
                    return found
            except NoAnswer as error:
                why = str(error.__cause__)
            except NoSuchQuery:
                why = None  # it has not begun, or it is not a Loom run
        return await self._unanswered(run_id, why)

    async def _unanswered(self, run_id: str, why: str | None) -> ObservedRow | None:
        """Return what the cluster itself knows of a run for which no worker answers."""
        description = await self._cluster.describe(run_id)
        metadata = await metadata_in_memo(description)
        if metadata is None:
            return None
        if not is_open(description) and (found := await self._closed(run_id)) is not None:
            return found
        if why is None:
            return ObservedRow(row_of_metadata(metadata))
        queue, failures = self._cluster.address.task_queue, failed_tasks(description)
        if failures:
            unknown = f"perhaps none of them knows {metadata.workflow!r}"
            why = f"what it was given last has failed {failures} times, so {unknown}"
        return ObservedRow(row_unanswered(metadata, f"No worker of task queue {queue!r} answers: {why}."), told=False)

    async def _closed(self, run_id: str) -> ObservedRow | None:
        """Return a closed run, by its close event; None if it is open. `NotThere` if it is not a Loom run."""
        event = await self._cluster.last_event(run_id)
        if event is None or not is_closing(event):
            return None
        ending = await ending_in(self._cluster, event)
        if ending is None:
            description = await self._cluster.describe(run_id)
            metadata = await metadata_in_memo(description)
            if metadata is None:
                raise NotThere(run_id)
            kept = await description.memo_value(MEMO_ENDING, None, type_hint=RawValue)
            if kept is None:
                return ObservedRow(row_closed_otherwise(metadata, event))
            ending = value_of(kept.payload, Ending)
        self._endings.put(run_id, ending)
        return ObservedRow(ending.row)

    # -- journals and streams -----------------------------------------------------------------------------------------

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Return chunks with events, from the one that holds this cursor. The last event of a closed run needs no
        worker."""
        ending = self._endings.get(run_id)
        if ending is not None and _deleted.get(self._place(run_id)) is None:
            if cursor >= ending.row.head.events:
                return []
            if ending.last.events and cursor >= ending.last.first_cursor:
                return [ending.last]
        return list(await self._read(run_id, ChunkQuery(cursor=cursor, limit=limit)))

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Return chunks, from the one that holds this tick."""
        return list(await self._read(run_id, ChunkQuery(first_tick=max(0, first_tick), limit=limit)))

    async def _read(self, run_id: str, asked: ChunkQuery) -> tuple[Chunk, ...]:
        """Ask the newest execution, then earlier ones, until one has the requested part."""
        execution = ""
        while True:
            part = self._parts.get(execution) if execution else None
            if part is None or part.has(asked):
                found = await self._ask(run_id, asked, execution)
                if found is None:
                    return ()
                part = _JournalPart(found.first_tick, found.first_cursor, found.previous)
                if part.has(asked):
                    return found.chunks
                if execution:
                    self._parts.put(execution, part)
            execution = part.previous

    async def _ask(self, run_id: str, asked: ChunkQuery, execution: str) -> Chunks | None:
        try:
            return await self._cluster.query(
                run_id, QUERY_CHUNKS, Chunks, asked, execution=execution, patience_s=PATIENT_S
            )
        except NotThere as error:
            if not execution:
                return None
            raise HistoryGone(
                run_id, f"its execution {execution} was deleted on Temporal and its part cannot be read any more"
            ) from error
        except NoSuchQuery:
            row = self.rows.get(run_id)
            if row is None or row.head.ticks:
                raise
            return None  # it has not begun

    async def histories(self, run_id: str) -> AsyncIterator[WorkflowHistory]:
        """Yield the histories of a run, newest first, as far back as the cluster has them. `NotThere`."""
        execution, is_first = "", True
        while is_first or execution:
            try:
                history = await self._cluster.history(run_id, execution)
            except NotThere:
                if is_first:
                    raise
                return  # the cluster has deleted it: what is left was read
            yield history
            started = history.events[0].workflow_execution_started_event_attributes
            execution, is_first = started.continued_execution_run_id, False

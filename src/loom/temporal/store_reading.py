"""Reading runs on a cluster: rows, streams, journals.

Closed runs are read from their history, open ones are asked by queries, which a worker answers. May import
loom.store, temporalio and the modules beside it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from temporalio.common import RawValue

from loom.store.errors import HistoryGone
from loom.store.records import RunRow
from loom.temporal.names import QUERY_CHUNKS, QUERY_ROW
from loom.temporal.payloads import ChunkQuery, Chunks, Ending, value_of
from loom.temporal.query_client import PATIENT_S
from loom.temporal.rows import (
    MEMO_ENDING,
    card_in_memo,
    ending_in,
    is_closing,
    row_closed_otherwise,
    row_of_card,
    row_unanswered,
)
from loom.temporal.store_cluster import NoAnswer, NoSuchQuery, NotOpen, NotThere, failed_tasks, is_open
from loom.temporal.store_recent import Recent

if TYPE_CHECKING:
    from loom.store.records import Chunk
    from loom.temporal.store_cluster import Cluster

ROW_PATIENCE_S = 2.0
"""How long an open run may take to tell its row, before the cluster's own knowledge has to do."""
_LATELY_S = 5.0
"""Visibility follows within a second as a rule."""

_deleted: Recent[tuple[str, str], str] = Recent(10_000)
"""The runs that this process has deleted, by namespace and id, with their newest execution: the server goes on to show
them for up to a minute. All stores of the process share it."""


class Looked(NamedTuple):
    """A row, and whether the run itself has told it, or its end."""

    row: RunRow
    told: bool = True


class _Part(NamedTuple):
    """Where the part of a journal begins that one execution has, and which execution has the part before."""

    first_tick: int
    first_cursor: int
    previous: str

    def has(self, asked: ChunkQuery) -> bool:
        """Whether what is asked for begins here. Before the first execution nothing is left to be read."""
        if not self.previous:
            return True
        if asked.cursor is not None:
            return self.first_cursor <= asked.cursor
        return self.first_tick <= asked.first_tick


class Reading:
    """Reads runs, and remembers a little of what it has read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.rows: Recent[str, RunRow] = Recent(1000)
        """The last rows that were read of runs; `get` renews them."""
        self._touched: Recent[str, float] = Recent(100)
        """The runs that this process has begun or looked at last, and when."""
        self._endings: Recent[str, Ending] = Recent(200)
        self._parts: Recent[str, _Part] = Recent(10_000)
        """By Temporal run id, of executions that are over: they do not change any more."""

    def forget(self, run_id: str) -> None:
        """What was read of a run may not be so any more."""
        self.rows.forget(run_id)
        self._endings.forget(run_id)

    def hide(self, run_id: str, execution: str) -> None:
        """The run was deleted with this execution as its newest one, although the server may still show it."""
        self.forget(run_id)
        _deleted.keep(self._place(run_id), execution)

    def _place(self, run_id: str) -> tuple[str, str]:
        # Not the host: a cluster has many, and no execution has the id of another one.
        return self._cluster.address.namespace, run_id

    async def is_deleted(self, run_id: str) -> bool:
        """Whether what the server still has of a run was deleted by this process. `NotThere`."""
        deleted = _deleted.get(self._place(run_id))
        return deleted is not None and (await self._cluster.describe(run_id)).run_id == deleted

    # -- rows ---------------------------------------------------------------------------------------------------------

    async def row(self, run_id: str) -> RunRow | None:
        """A run as it is now; None if there is none of this id, or it is none of Loom's."""
        looked = await self.look(run_id)
        if looked is None:
            return None
        self._touched.keep(run_id, time.monotonic())
        return looked.row

    def began(self, row: RunRow) -> None:
        """A run was started by this process."""
        self.forget(row.run_id)
        self.rows.keep(row.run_id, row)
        self._touched.keep(row.run_id, time.monotonic())

    def lately(self) -> list[RunRow]:
        """The runs that this process has begun or looked at a moment ago: lists may not have heard of them yet."""
        since = time.monotonic() - _LATELY_S
        rows = [self.rows.get(run_id) for run_id, at in self._touched.items() if at > since]
        return [row for row in rows if row is not None]

    async def look(self, run_id: str, *, ask: bool = True, closed: bool = False) -> Looked | None:
        """The same, with who told it. With `closed` its end is looked for first; without `ask` nobody is asked."""
        try:
            looked = None if await self.is_deleted(run_id) else await self._look(run_id, ask, closed)
        except NotThere:
            looked = None
        if looked is None:
            self.forget(run_id)
            return None
        self.rows.keep(run_id, looked.row)
        if looked.row.head.status == "running":
            self._endings.forget(run_id)
        return looked

    async def _look(self, run_id: str, ask: bool, closed: bool) -> Looked | None:
        why: str | None = "others did not either"
        if closed and (found := await self._closed(run_id)) is not None:
            return found
        if ask:
            try:
                row = await self._cluster.query(run_id, QUERY_ROW, RunRow, only_open=True, patience_s=ROW_PATIENCE_S)
                return Looked(row)
            except NotOpen:
                if (found := await self._closed(run_id)) is not None:
                    return found
            except NoAnswer as error:
                why = str(error.__cause__)
            except NoSuchQuery:
                why = None  # it has not begun, or it is none of Loom's
        return await self._unanswered(run_id, why)

    async def _unanswered(self, run_id: str, why: str | None) -> Looked | None:
        """What the cluster itself knows of a run, when nobody answers for it."""
        description = await self._cluster.describe(run_id)
        card = await card_in_memo(description)
        if card is None:
            return None
        if not is_open(description) and (found := await self._closed(run_id)) is not None:
            return found
        if why is None:
            return Looked(row_of_card(card))
        queue, failures = self._cluster.address.task_queue, failed_tasks(description)
        if failures:
            why = f"what it was given last has failed {failures} times, so perhaps none of them knows {card.workflow!r}"
        return Looked(row_unanswered(card, f"No worker of task queue {queue!r} answers: {why}."), told=False)

    async def _closed(self, run_id: str) -> Looked | None:
        """A closed run, by the event that closed it; None if it is open, or none of Loom's."""
        event = await self._cluster.last_event(run_id)
        if event is None or not is_closing(event):
            return None
        ending = await ending_in(self._cluster, event)
        if ending is None:
            description = await self._cluster.describe(run_id)
            card = await card_in_memo(description)
            if card is None:
                raise NotThere(run_id)
            kept = await description.memo_value(MEMO_ENDING, None, type_hint=RawValue)
            if kept is None:
                return Looked(row_closed_otherwise(card, event))
            ending = value_of(kept.payload, Ending)
        self._endings.keep(run_id, ending)
        return Looked(ending.row)

    # -- journals and streams -----------------------------------------------------------------------------------------

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """Chunks with events, from the one that holds this cursor. The last event of a closed run needs no worker."""
        ending = self._endings.get(run_id)
        if ending is not None and _deleted.get(self._place(run_id)) is None:
            if cursor >= ending.row.head.events:
                return []
            if ending.last.events and cursor >= ending.last.first_cursor:
                return [ending.last]
        return list(await self._read(run_id, ChunkQuery(cursor=cursor, limit=limit)))

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """Chunks from the one that holds this tick."""
        return list(await self._read(run_id, ChunkQuery(first_tick=max(0, first_tick), limit=limit)))

    async def _read(self, run_id: str, asked: ChunkQuery) -> tuple[Chunk, ...]:
        """What the execution tells that has what is asked for: the newest one, or one before it."""
        execution = ""
        while True:
            part = self._parts.get(execution) if execution else None
            if part is None or part.has(asked):
                found = await self._ask(run_id, asked, execution)
                if found is None:
                    return ()
                part = _Part(found.first_tick, found.first_cursor, found.previous)
                if part.has(asked):
                    return found.chunks
                if execution:
                    self._parts.keep(execution, part)
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

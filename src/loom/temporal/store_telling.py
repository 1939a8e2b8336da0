"""Telling runs on a cluster something, and deleting them. May import loom.core, loom.store and what is beside it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.ticks import TickAddEvent, TickContinueRun
from loom.store import codec
from loom.store.operations import Posted
from loom.temporal.names import QUERY_SEEN, SIGNAL_MAIL
from loom.temporal.payloads import Letter
from loom.temporal.rows import origin_of
from loom.temporal.store_cluster import NoAnswer, NoSuchQuery, NotOpen, NotThere, is_open

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.ticks import WorkflowTick
    from loom.store.operations import PostMail
    from loom.store.records import RunRow
    from loom.temporal.payloads import NewCode
    from loom.temporal.store_cluster import Cluster
    from loom.temporal.store_reading import Reading

_SEEN_PATIENCE_S = 2.0


def tick_of(mail: PostMail) -> WorkflowTick:
    """What mail tells, with the id by which the run knows it if it comes again."""
    tick = codec.decode_tick(mail.data, mail.run_id)
    if mail.event_id is not None and isinstance(tick, TickAddEvent):
        return replace(tick, event_id=mail.event_id)
    return tick


class Telling:
    """Sends letters, and knows what became of them."""

    def __init__(self, cluster: Cluster, reading: Reading, code_of: Callable[[str], NewCode | None]) -> None:
        self._cluster = cluster
        self._reading = reading
        self._code_of = code_of

    async def post(self, mail: PostMail) -> Posted:
        """Let something reach a run."""
        run_id = mail.run_id
        row = self._reading.rows.get(run_id)
        if row is None:  # it may be a workflow that is none of Loom's
            row = await self._reading.row(run_id)
        if row is None:
            return Posted("no_run")
        if mail.event_id is not None and row.head.status == "running" and await self._has_seen(run_id, mail.event_id):
            return Posted("repeated")
        if mail.limit is not None and row.head.kept >= mail.limit:
            return Posted("full", kept=row.head.kept)
        try:
            await self._cluster.signal(run_id, SIGNAL_MAIL, self._letter(tick_of(mail), row))
        except NotThere:
            return await self._refused(mail)
        return Posted("posted")

    def _letter(self, tick: WorkflowTick, row: RunRow) -> Letter:
        """Who continues a parked run brings the code that it may go on with."""
        code = self._code_of(row.workflow) if isinstance(tick, TickContinueRun) else None
        return Letter(tick, code.config, keeps_timeout=code.keeps_timeout) if code is not None else Letter(tick)

    async def _has_seen(self, run_id: str, event_id: str, *, only_open: bool = True) -> bool:
        """Whether a run has had an event. If nobody can tell, it is sent: the run drops what it has had."""
        try:
            return await self._cluster.query(
                run_id, QUERY_SEEN, bool, event_id, only_open=only_open, patience_s=_SEEN_PATIENCE_S
            )
        except (NoAnswer, NoSuchQuery, NotOpen, NotThere):
            return False

    async def _refused(self, mail: PostMail) -> Posted:
        """Why the cluster did not take a letter."""
        row = await self._reading.row(mail.run_id)
        if row is None:
            return Posted("no_run")
        if mail.event_id is not None and await self._has_seen(mail.run_id, mail.event_id, only_open=False):
            return Posted("repeated")
        return Posted("finished", status=row.head.status)


class Purging:
    """Deletes closed runs, with all their executions.

    The server deletes when it has put everything in order that belongs to a close, which may take it a minute. In this
    process the run is gone at once, and its id is free.
    """

    def __init__(self, cluster: Cluster, reading: Reading) -> None:
        self._cluster = cluster
        self._reading = reading

    async def purge(self, run_id: str, ended_before: float | None = None) -> bool:
        """Delete a run that has ended. False if there is none, it goes on, or it has not ended before the time."""
        looked = await self._reading.look(run_id, closed=True)
        if looked is None or looked.row.ended_at is None:
            return False
        if ended_before is not None and looked.row.ended_at >= ended_before:
            return False
        try:
            executions = await self._executions(run_id)
        except NotThere:
            return False  # somebody else has deleted it in this moment
        if not executions:
            return False
        for execution in executions:
            with suppress(NotThere):  # somebody else has deleted it, or the server by its retention
                await self._cluster.delete(run_id, execution)
        self._reading.hide(run_id, executions[0])
        return True

    async def _executions(self, run_id: str) -> list[str]:
        """The Temporal run ids of a run, the newest first, as far back as they are kept. None if it goes on."""
        newest = await self._cluster.describe(run_id)
        if is_open(newest):
            return []  # somebody has let it go on, or has begun another one, since it was looked at
        found = [newest.run_id or ""]
        while True:
            try:
                previous = (await origin_of(self._cluster, run_id, found[-1])).previous
            except NotThere:
                return found
            if not previous:
                return found
            found.append(previous)

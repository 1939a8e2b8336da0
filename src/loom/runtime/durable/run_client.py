"""The calls on stored runs that any process may make: each returns once what it says is in the store."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from loom.api.trace_context import caller
from loom.core.ticks import TickAddEvent, TickCancelRun, TickContinueRun, TickPauseRun, TickRetryRun, TickSkip
from loom.runtime.durable import history, run_copies, run_tags
from loom.runtime.durable.catalog import Catalog
from loom.runtime.durable.fork_changes import ForkChanges
from loom.runtime.durable.info import RunInfo, info_of
from loom.runtime.durable.metrics import RuntimeMetrics
from loom.runtime.durable.names import can_be_kept, can_match, check_event, check_name
from loom.runtime.durable.readers import DecodedChunks, RecentEnds, Watchers
from loom.runtime.durable.settings import JOURNAL_KEYS
from loom.runtime.durable.skips import check_skip
from loom.runtime.durable.stored_definitions import DefinitionNumbers
from loom.runtime.run_head import stored_waiter
from loom.runtime.stored_run import program_of_row
from loom.runtime.why import attempts_of
from loom.steps.ports import check_max_depth
from loom.store import codec
from loom.store.committer import Committer
from loom.store.encrypted import check_readable
from loom.store.errors import RunActive, RunBusy, RunFinished, RunNotFound, StoreUnavailable, WrongKeys
from loom.store.hash_chain import Links
from loom.store.keyring import check_key_markers, heads_signed_since
from loom.store.loop_time import until_look
from loom.store.operations import Posted, PostMessage, StartRun
from loom.store.records import place_of
from loom.store.run_filters import run_query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime

    from typing_extensions import Unpack

    from loom.api.attempts import Attempts
    from loom.api.bulk import Bulk, BulkAction
    from loom.api.changes import RunChange
    from loom.api.counts import Counts
    from loom.api.problems import RunStatus
    from loom.api.requests import RunFilters
    from loom.api.views import RunGraph, Timeline
    from loom.api.why import Why
    from loom.api.workers import Worker
    from loom.core.records import EventRecord
    from loom.core.reducer import FieldReader
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.effects.stored_codec import StoredEventCodec
    from loom.runtime.durable.active_run import ActiveRun
    from loom.runtime.durable.change_feed import ChangeFeed
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.durable.readers import News
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.workers import WorkerFacts
    from loom.runtime.views.reader import RunTraces
    from loom.steps.events import Event
    from loom.store.ports import Store
    from loom.store.records import RunRow, StoredRun

_PAGE = 200
_POLL_S, _MAX_POLL_S = 0.05, 2.0
_KEEP_UNCLAIMED = 1000
_PROBE_S = 1.0
_PROBE_KEPT_S = 60.0
_PROBE = "commit-probe"
_PROBE_BYTES = 64 * 1024
"""A disk that has room for so much has room for most commits."""


class RunClient:
    """Runs in a store, from outside."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store = store
        self.now = clock
        self.watchers = Watchers()
        """Who wants to know of every commit of a run."""
        self.endings = Watchers()
        """Who waits for ends only: a run may commit a thousand times before."""
        self.recent = RecentEnds()
        self.decoded = DecodedChunks()
        """What readers of streams have read last."""
        self.committer: Committer
        """Made when the store is opened."""
        self.codes: dict[str, Registration] = {}
        self._probed_at = float("-inf")
        self._wrong_keys: str | None = None
        """Why this process may not write journals."""
        self.links = Links()
        """How the journals of runs are chained."""
        self.metrics = RuntimeMetrics()
        """What this process counts and measures."""
        self.definitions = DefinitionNumbers(store, clock)
        """The flows in the store."""
        self.caller: Callable[[], str | None] = caller
        """Gives the span that starts and events are linked to, as a `traceparent`; None for no link."""
        self._change_feed: ChangeFeed | None = None
        self.catalog = Catalog(store, clock, self.codes)
        """What the store tells of workflows in Python."""

    @cached_property
    def traces(self) -> RunTraces:
        """What was read of runs for the views of their past."""
        from loom.runtime.views.reader import RunTraces

        return RunTraces(self)

    async def ready(self) -> None:
        """Wait until calls can be made."""

    async def commits_work(self) -> bool:
        """Tell whether the last commit was written. After one that was not, a probe finds out, at most every second."""
        committer, now = self.committer, asyncio.get_running_loop().time()
        if committer.failing is not None and now - self._probed_at >= _PROBE_S:
            self._probed_at = now
            try:
                await self.store.put_entry(_PROBE, "-", bytes(_PROBE_BYTES), expires_at=self.now() + _PROBE_KEPT_S)
            except StoreUnavailable as error:
                committer.failing = str(error)
            else:
                committer.failing = None
        return committer.failing is None

    def short_of_memory(self) -> str | None:
        """Tell why this process claims no runs, if it has too little memory."""
        return None

    async def row(self, run_id: str) -> RunRow:
        """What is stored about a run in one row."""
        row = await self.store.get(run_id) if can_be_kept(run_id) else None
        if row is None:
            raise RunNotFound(run_id)
        self.saw(row)
        return row

    def saw(self, row: RunRow) -> None:
        """Let the handles of a run know its row, which was read or written just now."""

    async def news(self, future: News, waits: int = 0) -> None:
        """Wait for news of a run. What other processes do is seen by looking again, less often the longer it takes."""
        await until_look(min(_POLL_S * 2 ** min(waits, 10), _MAX_POLL_S), future)

    def active_run(self, run_id: str) -> ActiveRun | None:
        """A run that is in memory here."""
        del run_id
        return None

    # Most calls do without the classes of events, which take longer to import than all the rest: a command that only
    # looks at a run, or tells it something, must start fast.

    def codec_for(self, workflow: str) -> StoredEventCodec:
        """How the events of a workflow's runs are stored."""
        code = self.codes.get(workflow)
        if code is not None:
            return code.codec
        from loom.effects.flow_codec import AnyEventCodec

        return AnyEventCodec()

    def codec_of(self, row: RunRow) -> StoredEventCodec:
        """Return how the events of a stored run are read: one with a document is a flow, under any name."""
        if row.document is None:
            return self.codec_for(row.workflow)
        from loom.effects.flow_codec import FLOW_CODEC

        return FLOW_CODEC

    def field_reader(self, row: RunRow) -> FieldReader:
        """What reads a field of a run's events, for a waiter that requires something of it."""
        codecs: list[StoredEventCodec] = []

        def read(record: EventRecord, name: str) -> Any:
            if not codecs:
                codecs.append(self.codec_of(row))
            return codecs[0].field(record, name)

        return read

    # -- asking -------------------------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunInfo:
        """A run as it is now; `RunNotFound` if there is none of this id."""
        await self.ready()
        return await self._info(await self.row(run_id))

    async def _info(self, row: RunRow) -> RunInfo:
        info = info_of(row)
        if not info.active_waiters:
            return info
        try:
            shown = await self.catalog.shown(row.workflow, info.active_waiters)
        except (KeyError, TypeError):
            return info  # a damaged row, whose other fields are true all the same
        return msgspec.structs.replace(info, active_waiters=shown)

    async def list(  # noqa: PLR0913 - one per filter, all by name
        self,
        *,
        status: RunStatus | None = None,
        workflow: str | None = None,
        idle: bool | None = None,
        idle_longer_than: float | None = None,
        waiting_for: str | type[Event] | None = None,
        tags: dict[str, str] | None = None,
        parent_id: str | None = None,
        paused: bool | None = None,
        parked: bool | None = None,
        stuck: bool | None = None,
        asleep: bool | None = None,
        waiting: bool | None = None,
        id_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        updated_after: datetime | None = None,
        order: Literal["created_at", "-created_at", "updated_at", "-updated_at"] = "-created_at",
        limit: int | None = None,
    ) -> AsyncIterator[RunInfo]:
        """The runs that match all that is given, newest first. `waiting_for` is an event type or its name; `stuck` are
        runs that are idle although they wait for nothing. See `loom.api.requests.RunFilters` for the others.
        """
        await self.ready()
        filters: RunFilters = {
            "status": status,
            "workflow": workflow,
            "idle": idle,
            "idle_longer_than": idle_longer_than,
            "waiting_for": waiting_for if waiting_for is None or isinstance(waiting_for, str) else waiting_for.__name__,
            "tags": tags,
            "parent_id": parent_id,
            "paused": paused,
            "parked": parked,
            "stuck": stuck,
            "asleep": asleep,
            "waiting": waiting,
            "id_prefix": id_prefix,
            "created_after": created_after,
            "created_before": created_before,
            "updated_after": updated_after,
            "order": order,
        }
        query = run_query(filters, self.now(), _PAGE)
        if not can_match(query):
            return
        left = limit
        while left is None or left > 0:
            rows = await self.store.find(query)
            for row in rows[:left]:
                self.saw(row)
                yield await self._info(row)
            if len(rows) < _PAGE:
                return
            left = left - len(rows) if left is not None else None
            query = msgspec.structs.replace(query, after=place_of(rows[-1], query))

    async def counts(self, *, workflow: str | Sequence[str] | None = None) -> Counts:
        """Count the runs by status and by what holds them: of all workflows but Loom's own, or of these."""
        from loom.runtime.durable.run_counts import CountedWorkflows

        await self.ready()
        names = (workflow,) if isinstance(workflow, str) else workflow
        return await CountedWorkflows(self.store, self.now).get(names)

    async def changes(self, *, after: str | None = None, **filters: Unpack[RunFilters]) -> AsyncIterator[RunChange]:
        """The changes of the runs that `filters` mean, from now on or after the `id` of a change, for ever.

        First come the counts. Of runs that change faster than they are read, only the newest state is told.
        """
        from loom.runtime.durable.change_batch import FeedView

        await self.ready()
        if of_lists := {"order", "include", "idle_longer_than"} & filters.keys():
            raise TypeError(f"changes() has no filter {min(of_lists)!r}: it is for lists.")
        query = run_query(filters, self.now())
        async with aclosing(self.change_feed.changes(FeedView(query, counted=query.workflows), after)) as changes:
            async for change in changes:
                yield change

    @property
    def change_feed(self) -> ChangeFeed:
        """What all readers of changes in this process share."""
        if self._change_feed is None:
            from loom.runtime.durable.change_feed import ChangeFeed

            self._change_feed = ChangeFeed(self)
        return self._change_feed

    def _end_changes(self) -> None:
        """Tell the readers of changes that the runtime is closed."""
        if self._change_feed is not None:
            self._change_feed.close()

    async def workers(self) -> Sequence[Worker]:
        """The processes that work on runs, with what each tells of itself."""
        from loom.runtime.durable.workers import rendered_workers

        await self.ready()
        return await rendered_workers(self.store, self.worker_name(), self.describe_worker())

    def worker_name(self) -> tuple[int | None, str] | None:
        """The fence and the name by which the store knows this process; None if it does not work on runs."""
        return None

    def describe_worker(self) -> WorkerFacts | None:
        """What this process knows of itself; None if it cannot work on runs."""
        return None

    async def history(self, run_id: str, *, start: int = 0) -> AsyncIterator[HistoryEntry]:
        """The ticks of a run in order: (seq, at, tick). Bodies of events are as they are stored."""
        await self.ready()
        await self.row(run_id)
        async for entry in history.history(self.store, run_id, start):
            yield entry

    async def state_at(self, run_id: str, tick: int | None = None) -> BrokerState:
        """The run as data, after the tick of a number as `history` counts, or now."""
        await self.ready()
        row = await self.row(run_id)
        return await history.state_at(self.store, row, self.field_reader(row), tick)

    async def attempts(self, run_id: str) -> Attempts:
        """Tell what a run is at work on now: the attempts under way, and those that failed and will be repeated."""
        state = await self.state_at(run_id)
        return attempts_of(state, await program_of_row(self, await self.row(run_id)))

    async def why(self, run_id: str) -> Why:
        """Tell what holds a run now: one sentence, and its causes as data. `RunNotFound`."""
        from loom.runtime.why import why

        await self.ready()
        return await why(self, await self.row(run_id))

    async def run_graph(self, run_id: str, *, tick: int | None = None) -> RunGraph:
        """The graph of the code that a run follows, with counts per step or action: now, or as they were at a tick."""
        from loom.runtime.render_views import rendered_graph

        await self.ready()
        return await rendered_graph(self, await self.row(run_id), tick)

    async def timeline(self, run_id: str, *, lane: str | None = None, offset: int = 0, limit: int = 2000) -> Timeline:
        """What a run did over time, as lanes of bars; `lane` gives a page of the bars of one step or action."""
        from loom.runtime.render_views import rendered_timeline
        from loom.runtime.views.timeline import Window

        await self.ready()
        return await rendered_timeline(self, await self.row(run_id), Window(None, None, lane, offset, limit))

    async def read_store(self, run_id: str) -> Any:
        """The state that the run's steps see as `ctx.store`: a copy, as of its last commit."""
        row = await self.row(run_id)
        state = await self.state_at(run_id)
        return await self.codec_of(row).store_from(state.store, state.store_type, state.store_version).get_state()

    async def waiters(self, run_id: str) -> tuple[dict[str, Any], ...]:
        """All that a run waits for, also where `RunInfo` shows only the first of many."""
        row = await self.row(run_id)
        program = await program_of_row(self, row)
        reports = (await self.state_at(run_id)).waiter_reports(asked=True)
        return tuple(await self.catalog.shown(row.workflow, [stored_waiter(program, report) for report in reports]))

    # -- telling ------------------------------------------------------------------------------------------------------

    async def send_event(
        self,
        run_id: str,
        event: Event,
        *,
        step: str | None = None,
        waiter_id: str | None = None,
        event_id: str | None = None,
    ) -> bool:
        """Let an event reach a run. Returns once it is stored; False if its `event_id` was there, which is no error."""
        await self.ready()
        check_event(event, event_id)
        row = await self.row(run_id)
        code = self.codes.get(row.workflow)
        if code is not None:
            code.definition.check_target(event, step)
        record = self.codec_of(row).sent(event, is_known=code is not None)
        taken = record.kind.name in row.head.waiting_for or (code is not None and code.accepts(record.kind, step))
        at = self.now()
        tick = TickAddEvent(
            at=at, event=record, step=step, waiter_id=waiter_id, accepted=True, traceparent=self.caller()
        )
        message = PostMessage(
            run_id, codec.encode_tick(tick), at, event_id=event_id, limit=None if taken else _KEEP_UNCLAIMED
        )
        return (await self._post(message, record.kind.label, row=row)).outcome == "posted"

    async def has_event(self, run_id: str, event_id: str) -> bool:
        """Whether a run was sent an event of this id before, ended or not. It asks with a message that has no room."""
        await self.ready()
        check_name("An event_id", event_id)
        answer = await self.committer.submit(PostMessage(run_id, b"", self.now(), event_id=event_id, limit=0))
        assert isinstance(answer, Posted)
        return answer.outcome == "repeated"

    async def cancel(self, run_id: str, *, reason: str = "", force: bool = False) -> None:
        """Ask a run to stop, with `force` without its clean-up. Returns once that is stored."""
        try:
            asked = TickCancelRun(at=self.now(), reason=reason, force=force)
            await self._tell(run_id, asked, "it cannot be cancelled any more")
        except RunFinished as error:
            if error.status != "cancelled":
                raise

    async def pause(self, run_id: str) -> None:
        """Let a run start nothing new; what it is sent while it is paused is kept."""
        await self._tell(run_id, TickPauseRun(at=self.now()), "it cannot be paused any more")

    async def resume(self, run_id: str, *, max_depth: int | None = None) -> None:
        """Let a paused run go on; a parked one is tried again, by the registered code and any higher `max_depth`."""
        check_max_depth(max_depth)
        await self._tell(run_id, TickContinueRun(at=self.now(), max_depth=max_depth), "it cannot be resumed any more")

    async def skip(self, run_id: str, timer: int | None = None) -> None:
        """End delays of a run now: back-offs of steps and actions, sleeps, `wait` actions, pauses between iterations.

        All of them, or the one with the number of a timer in its state. No timeout is touched. Returns once that is
        stored; `NothingToSkip` if the run has no such delay. What a paused run would do next waits for `resume`.
        """
        await self.ready()
        row = await self.row(run_id)
        if row.head.status == "running":
            check_skip(row, await self.state_at(run_id), timer, self.now())
        await self._tell(run_id, TickSkip(at=self.now(), timer=timer), "it has no delay any more")

    async def set_tags(self, run_id: str, tags: dict[str, str]) -> None:
        """Replace the tags of a run, whatever its status. Returns once that is stored. `RunNotFound`;
        `ValueError` for tags that cannot be, and for a run of Loom's own; `NotSupported` where a cluster keeps the run.
        """
        await run_tags.set_tags(self, run_id, tags)

    async def retry(self, run_id: str, *, event: Event | None = None) -> None:
        """Let a failed run go on from its failed step; with `event` in place of the one that failed it.

        That is the last event of the same type that the failed step had received, else the one that it works on;
        `CannotHeal`, a `ValueError`, if no event of this type did.
        """
        at = self.now()
        tick = TickRetryRun(at=at)
        if event is not None:
            from loom.runtime.durable.healing import healing_of

            check_event(event, None)
            tick = await healing_of(self, run_id, event)
        message = PostMessage(run_id, codec.encode_tick(tick), at, reopens=True)
        try:
            while not await self._has_reopened(message):
                pass  # it has gone on and failed again since it was read
        except RunFinished as error:
            if error.status == "running":
                raise RunActive(run_id, "only a failed run can be retried") from None
            raise
        await self.row(run_id)  # handlers here that have told of the failure wait for the next end

    async def _has_reopened(self, message: PostMessage) -> bool:
        """Let a failed run go on, with the signature of its row where there are keys.

        False if the run is not as it was read: it has failed again at another tick.
        """
        await self.ready()
        self.check_heads()
        too_late = "only a failed run can be retried"
        if self.links.ring is None:
            await self._post(message, "", too_late)
            return True
        row = await self.row(message.run_id)
        head = msgspec.structs.replace(row.head, status="running")
        mac = self.links.head_mac(row.run_id, row.workflow, row.document, head)
        message = msgspec.structs.replace(message, reopened=(row.head.ticks, mac))
        try:
            await self._post(message, "", too_late)
        except RunFinished as error:
            if error.status != "failed":
                raise
            return False
        return True

    async def _tell(self, run_id: str, tick: WorkflowTick, too_late: str) -> None:
        await self._post(PostMessage(run_id, codec.encode_tick(tick), tick.at), "", too_late)

    async def _post(
        self, message: PostMessage, what: str, too_late: str = "it takes no event any more", row: RunRow | None = None
    ) -> Posted:
        await self.ready()
        if not can_be_kept(message.run_id):
            raise RunNotFound(message.run_id)
        answer = self.committer.submit(message)
        if row is not None:
            self._expect_message(row)
        posted = await answer
        assert isinstance(posted, Posted)
        if posted.outcome == "no_run":
            raise RunNotFound(message.run_id)
        if posted.outcome == "finished":
            raise RunFinished(message.run_id, posted.status, too_late)
        if posted.outcome == "full":
            raise RunBusy(message.run_id, what, posted.kept)
        return posted

    def _expect_message(self, row: RunRow) -> None:
        """Note that the next transaction brings a run a message: a worker may claim the run in the same one."""

    # -- opening ------------------------------------------------------------------------------------------------------

    async def _open_store(self) -> None:
        """Open the store, and see whether this process may use it."""
        await self.store.open()
        try:
            await self._learn_of_keys()
        except BaseException:
            await self.store.close()
            raise
        self.committer = Committer(self.store, watch=self.metrics)

    # -- copying and deleting -----------------------------------------------------------------------------------------

    async def _learn_of_keys(self) -> None:
        """See whether this process has the keys of the store. A client that only reads and sends needs none to sign."""
        await check_readable(self.store)
        try:
            await check_key_markers(self.store, "journal", self.links.ring, JOURNAL_KEYS)
            self._wrong_keys = None
        except WrongKeys as error:
            self._wrong_keys = str(error)
        self.links.heads_since = await heads_signed_since(self.store)

    def check_keys(self) -> None:
        """Raise if this process lacks the keys that others sign and check journals with."""
        if self._wrong_keys is not None:
            raise WrongKeys(self._wrong_keys)

    def check_heads(self) -> None:
        """Raise if every row is signed and this process lacks the keys to sign the row of a new run."""
        if self.links.heads_since is not None and (self._wrong_keys is not None or self.links.ring is None):
            raise WrongKeys(
                "Every run of this store is signed from its start: to start or retry one, the keys are needed that "
                f"the store is signed with. {self._wrong_keys or f'Give them in {JOURNAL_KEYS}.'}"
            )

    def signed_start(self, start: StartRun) -> StartRun:
        """A start with the signature of its row, if there are keys; `WrongKeys` if it must have one and cannot."""
        self.check_heads()
        return start if self._wrong_keys is not None else self.links.signed_start(start)

    async def store_fork(
        self,
        source_id: str,
        /,
        *,
        tick: int,
        run_id: str | None = None,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        event: Event | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> str:
        """Store a new run that goes on from a past tick of another one, and return its id. See `WorkerRuntime.fork`."""
        return await run_copies.store_fork(self, source_id, tick, run_id, ForkChanges(input, event, store))

    async def downtime(self) -> float:
        """Return how long nobody was at work on the store so far, in seconds, as far as this process knows."""
        return 0.0

    async def purge(self, run_id: str | None = None, *, ended_before: float | None = None) -> int:
        """Delete an ended run with its child runs, or all that ended before a time. Returns how many."""
        return await run_copies.purge(self, run_id, ended_before)

    def bulk(
        self, action: BulkAction, filters: RunFilters, *, dry_run: bool = False, reason: str = ""
    ) -> AsyncIterator[Bulk]:
        """Do it to all runs that pass the filters, and tell how far it is. `ValueError`: delete needs a filter."""
        from loom.runtime.durable.bulk import run_bulk

        return run_bulk(self, action, filters, dry_run=dry_run, reason=reason)

    async def export_run(self, run_id: str) -> bytes:
        """Everything that is stored of a run, as JSON: `import_run` brings it back, here or in another store."""
        return await run_copies.export_run(self, run_id)

    async def import_run(self, data: bytes) -> str:
        """Store a run that was exported, and return its id. If it is not over, it goes on here."""
        return await run_copies.import_run(self, data)

    def signed_import(self, stored: StoredRun) -> StoredRun:
        """An imported run with the signature of this store. One that this store's keys had made must still fit."""
        mac, ring = stored.row.head.mac, self.links.ring
        if mac is not None and ring is not None and mac.partition(b":")[0].decode("utf-8", "replace") in ring.keys:
            self.links.check_head(stored.row)
        links = self.links if self._wrong_keys is None else Links()
        return msgspec.structs.replace(stored, row=links.signed_row(stored.row))

"""The calls on stored runs that any process may make, whether it works on runs or not.

Each returns once what it says is in the store. May import loom.core, loom.effects, loom.steps, loom.store and the rest
of loom.runtime.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

from loom.core.ticks import TickAddEvent, TickCancelRun, TickContinueRun, TickPauseRun, TickRetryRun
from loom.effects.kept import waiter_dict
from loom.runtime.attempts import attempts_of
from loom.runtime.details import program_of_row
from loom.runtime.durable import looking
from loom.runtime.durable.decoded import DecodedChunks
from loom.runtime.durable.definitions_numbers import DefinitionNumbers
from loom.runtime.durable.figures import Figures
from loom.runtime.durable.info import RunInfo, info_of
from loom.runtime.durable.names import can_be_kept, check_name, check_run_id
from loom.runtime.durable.settings import JOURNAL_KEYS
from loom.runtime.durable.watching import RecentEnds, Watchers
from loom.steps.errors import WorkflowRuntimeError
from loom.store import codec
from loom.store.chain import Links
from loom.store.committer import Committer
from loom.store.encrypted import check_readable
from loom.store.errors import (
    RunActive,
    RunBusy,
    RunExists,
    RunFinished,
    RunNotFound,
    StoreUnavailable,
    WrongKeys,
)
from loom.store.loop_time import until_look
from loom.store.marks import check_marks, heads_signed_since
from loom.store.operations import ImportRun, Posted, PostMail, PurgeRuns, StartRun
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loom.api.attempts import Attempts
    from loom.api.why import Why
    from loom.core.draft import FieldReader
    from loom.core.records import EventRecord
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.effects.stored import StoredBodies
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.resident import Resident
    from loom.runtime.durable.watching import News
    from loom.steps.events import Event
    from loom.store.ports import Store
    from loom.store.records import RunRow, RunStatus, StoredRun

_PAGE = 200
_POLL_S, _MAX_POLL_S = 0.05, 2.0
_KEEP_UNCLAIMED = 1000
_PROBE_S = 1.0
_PROBE_KEPT_S = 60.0
_PROBE = "commit-probe"
_PROBE_BYTES = 64 * 1024
"""A disk that has room for so much has room for most commits."""


class StoredRuns:
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
        self.codes: dict[str, Registered] = {}
        self._probed_at = float("-inf")
        self._wrong_keys: str | None = None
        """Why this process may not write journals."""
        self.links = Links()
        """How the journals of runs are chained."""
        self.measured = Figures()
        """What this process counts and measures."""
        self.definitions = DefinitionNumbers(store, clock)
        """The flows in the store."""

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

    def resident(self, run_id: str) -> Resident | None:
        """A run that is in memory here."""
        del run_id
        return None

    # Most calls do without the classes of events, which take longer to import than all the rest: a command that only
    # looks at a run, or tells it something, must start fast.

    def convert_for(self, workflow: str) -> StoredBodies:
        """How the events of a workflow's runs are stored."""
        code = self.codes.get(workflow)
        if code is not None:
            return code.convert
        from loom.effects.flow_convert import AnyBodies

        return AnyBodies()

    def convert_of(self, row: RunRow) -> StoredBodies:
        """How the events of a stored run are read: one with a document is a flow, whoever knows it by that name."""
        if row.document is None:
            return self.convert_for(row.workflow)
        from loom.effects.flow_convert import FLOW

        return FLOW

    def field_reader(self, row: RunRow) -> FieldReader:
        """What reads a field of a run's events, for a waiter that requires something of it."""
        converts: list[StoredBodies] = []

        def read(record: EventRecord, name: str) -> Any:
            if not converts:
                converts.append(self.convert_of(row))
            return converts[0].field(record, name)

        return read

    # -- asking -------------------------------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunInfo:
        """A run as it is now; `RunNotFound` if there is none of this id."""
        await self.ready()
        return info_of(await self.row(run_id))

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
        limit: int | None = None,
    ) -> AsyncIterator[RunInfo]:
        """The runs that match all that is given, newest first. `waiting_for` is an event type or its name; `stuck` are
        runs that are idle although they wait for nothing.
        """
        await self.ready()
        waited = waiting_for if waiting_for is None or isinstance(waiting_for, str) else waiting_for.__name__
        query = RunQuery(
            status=status,
            workflow=workflow,
            idle=idle,
            idle_before=self.now() - idle_longer_than if idle_longer_than is not None else None,
            waiting_for=waited,
            tags=tags or {},
            parent=parent_id,
            paused=paused,
            parked=parked,
            stuck=stuck,
            limit=_PAGE,
        )
        named = (workflow, waited, parent_id, *query.tags, *filter(None, query.tags.values()))
        if not all(can_be_kept(name) for name in named if name is not None):
            return
        left = limit
        while left is None or left > 0:
            rows = await self.store.find(query)
            for row in rows[:left]:
                self.saw(row)
                yield info_of(row)
            if len(rows) < _PAGE:
                return
            left = left - len(rows) if left is not None else None
            query = msgspec.structs.replace(query, after=(rows[-1].created_at, rows[-1].run_id))

    async def history(self, run_id: str, *, start: int = 0) -> AsyncIterator[HistoryEntry]:
        """The ticks of a run in order: (seq, at, tick). Bodies of events are as they are stored."""
        await self.ready()
        await self.row(run_id)
        async for entry in looking.history(self.store, run_id, start):
            yield entry

    async def state_at(self, run_id: str, tick: int | None = None) -> BrokerState:
        """The run as data, after the tick of a number as `history` counts, or now."""
        await self.ready()
        row = await self.row(run_id)
        return await looking.state_at(self.store, row, self.field_reader(row), tick)

    async def attempts(self, run_id: str) -> Attempts:
        """Tell what a run is at work on now: the attempts under way, and those that failed and will be repeated."""
        state = await self.state_at(run_id)
        return attempts_of(state, await program_of_row(self, await self.row(run_id)))

    async def why(self, run_id: str) -> Why:
        """Tell what holds a run now: one sentence, and its causes as data. `RunNotFound`."""
        from loom.runtime.why import why

        await self.ready()
        return await why(self, await self.row(run_id))

    async def read_store(self, run_id: str) -> Any:
        """The state that the run's steps see as `ctx.store`: a copy, as of its last commit."""
        row = await self.row(run_id)
        state = await self.state_at(run_id)
        convert = self.convert_of(row)
        return await convert.store_from(state.store, state.store_type, state.store_version).get_state()

    async def waiters(self, run_id: str) -> tuple[dict[str, Any], ...]:
        """All that a run waits for, also where `RunInfo` shows only the first of many."""
        return tuple(waiter_dict(report) for report in (await self.state_at(run_id)).waiter_reports())

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
            code.workflow._check_target(event, step)
        record = self.convert_of(row).sent(event, is_known=code is not None)
        taken = record.kind.name in row.head.waiting_for or (code is not None and code.accepts(record.kind, step))
        at = self.now()
        tick = TickAddEvent(at=at, event=record, step=step, waiter_id=waiter_id, accepted=True)
        mail = PostMail(
            run_id, codec.encode_tick(tick), at, event_id=event_id, limit=None if taken else _KEEP_UNCLAIMED
        )
        return (await self._post(mail, record.kind.label, row=row)).outcome == "posted"

    async def has_event(self, run_id: str, event_id: str) -> bool:
        """Whether a run was sent an event of this id before, ended or not."""
        await self.ready()
        check_name("An event_id", event_id)
        # A letter for which there is no room: it tells a repetition from what is new, and leaves nothing.
        answer = await self.committer.submit(PostMail(run_id, b"", self.now(), event_id=event_id, limit=0))
        assert isinstance(answer, Posted)
        return answer.outcome == "repeated"

    async def cancel(self, run_id: str, *, reason: str = "") -> None:
        """Ask a run to stop. Returns once that is stored; a cancelled run stays cancelled."""
        try:
            await self._tell(run_id, TickCancelRun(at=self.now(), reason=reason), "it cannot be cancelled any more")
        except RunFinished as error:
            if error.status != "cancelled":
                raise

    async def pause(self, run_id: str) -> None:
        """Let a run start nothing new; what it is sent meanwhile is kept."""
        await self._tell(run_id, TickPauseRun(at=self.now()), "it cannot be paused any more")

    async def resume(self, run_id: str) -> None:
        """Let a paused run go on; one that is parked is tried again with the code at hand."""
        await self._tell(run_id, TickContinueRun(at=self.now()), "it cannot be resumed any more")

    async def retry(self, run_id: str, *, event: Event | None = None) -> None:
        """Let a failed run go on from its failed step; with `event` in place of the one that failed it.

        That is the last event of the same type that the failed step had received, else the one that it works on;
        `CannotHeal`, a `ValueError`, if no event of this type did.
        """
        at = self.now()
        tick = TickRetryRun(at=at) if event is None else await self._healing(run_id, event)
        mail = PostMail(run_id, codec.encode_tick(tick), at, reopens=True)
        try:
            while not await self._has_reopened(mail):
                pass  # it has gone on and failed again since it was read
        except RunFinished as error:
            if error.status == "running":
                raise RunActive(run_id, "only a failed run can be retried") from None
            raise
        await self.row(run_id)  # handlers here that have told of the failure wait for the next end

    async def _has_reopened(self, mail: PostMail) -> bool:
        """Let a failed run go on, with the signature of its row where there are keys.

        False if the run is not as it was read: it has failed again at another tick.
        """
        await self.ready()
        self._check_heads()
        too_late = "only a failed run can be retried"
        if self.links.ring is None:
            await self._post(mail, "", too_late)
            return True
        row = await self.row(mail.run_id)
        head = msgspec.structs.replace(row.head, status="running")
        mac = self.links.head_mac(row.run_id, row.workflow, row.document, head)
        mail = msgspec.structs.replace(mail, reopened=(row.head.ticks, mac))
        try:
            await self._post(mail, "", too_late)
        except RunFinished as error:
            if error.status != "failed":
                raise
            return False
        return True

    async def _healing(self, run_id: str, event: Event) -> TickRetryRun:
        """The tick that lets a failed run go on with another event."""
        from loom.runtime.durable.healing import healing_tick

        await self.ready()
        check_event(event, None)
        row = await self.row(run_id)
        if row.head.status != "failed":
            return TickRetryRun(at=self.now())  # what is said of it without an event holds for it
        record = self.convert_of(row).record(event)
        code = self.codes.get(row.workflow)
        if record.checked is not None and code is not None:
            record = code.convert.checked(record)
        return await healing_tick(run_id, await self.state_at(run_id), record, self.history(run_id), self.now())

    async def _tell(self, run_id: str, tick: WorkflowTick, too_late: str) -> None:
        await self._post(PostMail(run_id, codec.encode_tick(tick), tick.at), "", too_late)

    async def _post(
        self, mail: PostMail, what: str, too_late: str = "it takes no event any more", row: RunRow | None = None
    ) -> Posted:
        await self.ready()
        if not can_be_kept(mail.run_id):
            raise RunNotFound(mail.run_id)
        answer = self.committer.submit(mail)
        if row is not None:
            self._summon(row)
        posted = await answer
        assert isinstance(posted, Posted)
        if posted.outcome == "no_run":
            raise RunNotFound(mail.run_id)
        if posted.outcome == "finished":
            raise RunFinished(mail.run_id, posted.status, too_late)
        if posted.outcome == "full":
            raise RunBusy(mail.run_id, what, posted.kept)
        return posted

    def _summon(self, row: RunRow) -> None:
        """A run gets mail in the next transaction: who works on runs may take it up with the same."""

    # -- opening ------------------------------------------------------------------------------------------------------

    async def _open_store(self) -> None:
        """Open the store, and see whether this process may use it."""
        await self.store.open()
        try:
            await self._learn_of_keys()
        except BaseException:
            await self.store.close()
            raise
        self.committer = Committer(self.store, watch=self.measured)

    # -- copying and deleting -----------------------------------------------------------------------------------------

    async def _learn_of_keys(self) -> None:
        """See whether the keys at hand are those of the store. Who only reads, starts and sends needs none to sign."""
        await check_readable(self.store)
        try:
            await check_marks(self.store, "journal", self.links.ring, JOURNAL_KEYS)
            self._wrong_keys = None
        except WrongKeys as error:
            self._wrong_keys = str(error)
        self.links.heads_since = await heads_signed_since(self.store)

    def check_keys(self) -> None:
        """Whoever writes journals must have the keys that others sign and check them with."""
        if self._wrong_keys is not None:
            raise WrongKeys(self._wrong_keys)

    def _check_heads(self) -> None:
        """Whoever makes the row of a run must have the keys, where every row is signed."""
        if self.links.heads_since is not None and (self._wrong_keys is not None or self.links.ring is None):
            raise WrongKeys(
                "Every run of this store is signed from its start: to start or retry one, the keys are needed that "
                f"the store is signed with. {self._wrong_keys or f'Give them in {JOURNAL_KEYS}.'}"
            )

    def signed_start(self, start: StartRun) -> StartRun:
        """A start with the signature of its row, if there are keys; `WrongKeys` if it must have one and cannot."""
        self._check_heads()
        return start if self._wrong_keys is not None else self.links.signed_start(start)

    async def store_fork(self, source_id: str, /, *, tick: int, run_id: str | None = None) -> str:
        """Store a new run that goes on from a past tick of another one, and return its id."""
        await self.ready()
        run_id = run_id if run_id is not None else uuid.uuid4().hex
        check_run_id(run_id)
        self.check_keys()
        row = await self.row(source_id)
        # Who has not joined does not know better than what the other run was told last.
        downtime = max(await self._downtime(), row.head.downtime)
        stored = await looking.forked(
            self.store, row, self.field_reader(row), tick, run_id, self.now(), downtime, self.links
        )
        if not await self.committer.submit(ImportRun(stored)):
            raise RunExists(run_id, "so it cannot be the name of a fork")
        return run_id

    async def _downtime(self) -> float:
        return 0.0

    async def purge(self, run_id: str | None = None, *, ended_before: float | None = None) -> int:
        """Delete an ended run with its child runs, or all that ended before a time. Returns how many."""
        await self.ready()
        if run_id is None and ended_before is None:
            raise ValueError("purge() needs a run_id, or ended_before=... as a time in seconds since the epoch.")
        if run_id is not None and (await self.row(run_id)).head.status == "running":
            raise RunActive(run_id, "cancel it before you purge it")
        total = 0
        if run_id is not None:
            # A run that begins again under this id will have children of the same ids.
            async for child in self.list(parent_id=run_id):
                total += await self.purge(child.run_id)
        while True:
            gone = await self.committer.submit(PurgeRuns(run_id=run_id, ended_before=ended_before, limit=_PAGE))
            assert isinstance(gone, int)
            total += gone
            if gone < _PAGE:
                return total

    async def export_run(self, run_id: str) -> bytes:
        """Everything that is stored of a run, as JSON: `import_run` brings it back, here or in another store."""
        await self.ready()
        stored = await self.store.export(run_id) if can_be_kept(run_id) else None
        if stored is None:
            raise RunNotFound(run_id)
        return looking.packed(stored, self.now(), await self._downtime())

    async def import_run(self, data: bytes) -> str:
        """Store a run that was exported, and return its id. If it is not over, it goes on here."""
        await self.ready()
        self._check_heads()
        stored = self._signed_import(looking.unpacked(data, self.now(), await self._downtime()))
        if not await self.committer.submit(ImportRun(stored)):
            why, advice = "so the exported one cannot take its place", "Delete that one first, or use another store"
            raise RunExists(stored.row.run_id, why, advice)
        return stored.row.run_id

    def _signed_import(self, stored: StoredRun) -> StoredRun:
        """An imported run with the signature of this store. One that this store's keys had made must still fit."""
        mac, ring = stored.row.head.mac, self.links.ring
        if mac is not None and ring is not None and mac.partition(b":")[0].decode("utf-8", "replace") in ring.keys:
            self.links.check_head(stored.row)
        links = self.links if self._wrong_keys is None else Links()
        return msgspec.structs.replace(stored, row=links.signed_row(stored.row))


def check_event(event: object, event_id: str | None) -> None:
    """Raise, if this cannot be sent into a run."""
    from loom.steps.events import Event

    if not isinstance(event, Event):
        raise WorkflowRuntimeError(f"Only events can be sent into a run, not {type(event).__name__}.")
    if event_id is not None:
        check_name("An event_id", event_id)

"""The runs that are in memory: taken up when something happens to them, released when nothing can.

Whatever comes from outside goes through the store, so nothing is lost if it comes while a run is released: the store
refuses to release a run that has mail. May import loom.core, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace
from pydantic import ValidationError

from loom.core.patience import Patience, TooCostly
from loom.core.ticks import TickCancelRun
from loom.effects.child_runs import MAX_NESTING
from loom.effects.threads import OFF_LOOP_BYTES, aside
from loom.runtime.control_loop import PATIENCE
from loom.runtime.durable.adapter import Fenced
from loom.runtime.durable.background import Background
from loom.runtime.durable.families import Families
from loom.runtime.durable.figures import OTHER
from loom.runtime.durable.held_back import HeldBack, Loans
from loom.runtime.durable.lease import Lease
from loom.runtime.durable.memory_limit import MemoryLimit
from loom.runtime.durable.probation import Probation, is_let_go, is_poison, reason_of
from loom.runtime.durable.problems import is_notice, problem_of
from loom.runtime.durable.resident import Resident
from loom.runtime.durable.resting import Resting
from loom.runtime.durable.takeup import parked_again, read_mail, recovered, restored
from loom.runtime.guard import Guard
from loom.runtime.lifecycle_log import released
from loom.runtime.logs import about
from loom.runtime.tracing import find_tracing
from loom.runtime.watchdog import rouse
from loom.steps.texts import described
from loom.store.errors import CorruptRecord, StoreUnavailable
from loom.store.operations import ClaimRun, ForgetDeaths, ParkRun, PurgeRuns, ReleaseRun
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from loom.runtime.durable.calls import StoredRuns
    from loom.runtime.durable.problems import Problems
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.settings import Settings
    from loom.runtime.durable.takeup import Recovered
    from loom.runtime.live import LiveRun
    from loom.steps.events import StopEvent
    from loom.store.operations import Operation, Result
    from loom.store.records import Member, RunRow, StoredRun

_log = logging.getLogger("loom.durable")

_MANY = 10_000
"""More runs than are ever taken up at once."""
_CHILDREN = 100
"""So many children of a run, and in all, are looked for at a time."""


class Residents:
    """Keeps the runs of one process. It is their `Keeper`."""

    def __init__(
        self,
        stored: StoredRuns,
        settings: Settings,
        member: Member,
        problems: Problems,
        on_end: Callable[[str, StopEvent | BaseException], None],
        on_release: Callable[[str, float], None],
        on_room: Callable[[], None],
    ) -> None:
        self.fence, self.downtime, self.prune = member.fence, member.downtime, settings.prune
        self.limits = settings.limits
        self.problems = problems
        self.lease = Lease(settings.lease, stored.now, asyncio.get_running_loop())
        self.families = Families(stored.store, stored.now)
        self.submit: Callable[[Operation], asyncio.Future[Result]] = stored.committer.submit
        self.committed: Callable[[str], None] = stored.watchers.wake
        self.figures, self.links = stored.measured, stored.links
        self.tracing = find_tracing() if settings.tracing else None
        self._endings, self._recent = stored.endings, stored.recent
        self._saw = stored.saw
        self._store = stored.store
        self._codes = stored.codes
        self._clock = stored.now
        limits = settings.idle_s, settings.max_in_memory, settings.max_memory
        self._releases = any(limit is not None for limit in limits)
        self.memory = MemoryLimit(None)
        """While it is over its limit, no run comes into memory, and those that rest leave it."""
        self.is_safe = settings.safe
        """Nothing is taken up but to be cancelled."""
        self._limit = settings.max_in_memory
        self._on_end = on_end
        self.is_awaited: Callable[[str], bool] = lambda _run_id: True
        """Says whether a handler of a run in this process wants its result as an object."""
        self._on_release = on_release
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._guard: Guard | None = None
        self.runs: dict[str, Resident] = {}
        self.stranded: set[str] = set()
        """Runs that this process owns but had to drop, because the store failed them."""
        self.complained_of: set[str] = set()
        """Those of them that the log has told of, until a look at the store finds none."""
        self._held_back = HeldBack()
        self._loans = Loans()
        self._coming: dict[str, asyncio.Task[None] | None] = {}
        """Runs that are being taken up, or started by whoever began them here."""
        self._promised: dict[str, Registered] = {}
        """Those of them that have a place in memory, with their code."""
        self._again: set[str] = set()
        """Those of them that something has come for meanwhile."""
        self._last_words: dict[str, asyncio.Future[Result]] = {}
        """Commits of runs that have left memory meanwhile: who takes such a run up again waits for them."""
        self._background = Background(self._loop)
        self._spawn = self._background.spawn
        self.probation = Probation(settings.probation, self.fence, self.submit, self._spawn, self._clock, self._loop)
        self._resting = self._make_resting(settings)
        self._closing = False

    def _make_resting(self, settings: Settings) -> Resting:
        return Resting(
            self._loop,
            settings.idle_s,
            lambda run_id: self._spawn(self._release(run_id)),
            settings.suspended_s if settings.suspended_s != settings.idle_s else None,
            settings.max_suspended,
        )

    # -- taking up ----------------------------------------------------------------------------------------------------

    def wake(self, run_id: str) -> None:
        """Something has come for a run: tell it if it is here, else take it up if it can be."""
        if self._closing:
            return
        resident = self.runs.get(run_id)
        if resident is not None:
            resident.wanted = resident.releasing
            self._spawn(self._fetch(resident))
        elif run_id in self._coming:
            self._again.add(run_id)
        else:
            self._come(run_id, self._take_up(run_id, self.figures.clock()))

    def is_own_end(self, run_id: str) -> bool:
        """Whether news of a run tell what this process knows: that it has just stored the end of the run itself."""
        resident = self.runs.get(run_id)
        if resident is None or resident.end_told or not resident.is_over:
            return False
        resident.end_told = True  # what comes next is something else
        return True

    def summon(self, row: RunRow) -> None:
        """Mail is on its way to a run: if the run is nobody's, it is claimed in the same transaction, and taken up."""
        run_id, code = row.run_id, self._codes.get(row.workflow)
        if self._closing or code is None or row.owner is not None or row.head.status != "running":
            return
        if self.expect(run_id, code):
            claim = self.submit(ClaimRun(run_id, self.fence))
            self._come(run_id, self._take_up(run_id, self.figures.clock(), claim))

    def _come(self, run_id: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Do something with a run that is not in memory; what comes for it meanwhile waits until that is done."""
        task = self._loop.create_task(coroutine)
        self._coming[run_id] = task
        task.add_done_callback(lambda _done: self.arrived(run_id))

    def expect(self, run_id: str, code: Registered) -> bool:
        """Whoever starts a run here sets it in motion itself: `begin`, then `arrived`.

        False if there is no room for it, or if it is on its way already.
        """
        if self.is_safe or run_id in self.runs or run_id in self._coming or not self.room_for(code):
            return False
        self._coming[run_id] = None
        self._promised[run_id] = code
        return True

    def arrived(self, run_id: str) -> None:
        """A run is in memory, or will not be. What has come for it meanwhile is brought to it."""
        self._coming.pop(run_id, None)
        if self._promised.pop(run_id, None) is not None and run_id not in self.runs:
            self._loans.end(run_id)
            self._let_in()  # it has not taken its place
        if run_id in self._again:
            self._again.discard(run_id)
            self.wake(run_id)

    def room_for(self, code: Registered) -> int:
        """How many more runs of a workflow may be in memory."""
        limit = code.workflow._num_concurrent_runs
        own = every = _MANY
        if limit is not None:
            loans = self._loans
            own = limit - sum(run.code is code and run_id not in loans for run_id, run in self.runs.items())
            own -= sum(promised is code and run_id not in loans for run_id, promised in self._promised.items())
        if self._limit is not None:
            every = self._limit - len(self.runs) - len(self._promised)
        return max(0, min(own, every, int(self.memory.has_room) if self.memory.is_over else _MANY))

    def _lender(self, code: Registered, ancestors: tuple[str, ...]) -> str | None:
        """The run in memory that can lend its place to a run of the same workflow that descends from it."""
        if not self._is_full and not self.memory.is_over:
            for run_id in ancestors:
                resident = self.runs.get(run_id)
                if resident is not None and resident.code is code and not self._loans.is_lent(run_id):
                    return run_id
        return None

    def _has_place(self, run_id: str, code: Registered, ancestors: tuple[str, ...]) -> bool:
        """Whether a run may come: there is room, or a run that it descends from lends it its place from now on."""
        if self.room_for(code):
            return True
        lender = self._lender(code, ancestors)
        if lender is not None:
            self._loans.lend(run_id, lender)
        return lender is not None

    async def _ancestors(self, row: RunRow) -> tuple[str, ...]:
        """The runs of the same workflow that a run descends from, the nearest first."""
        found: list[str] = []
        parent = row.parent
        while parent is not None and len(found) < MAX_NESTING:
            resident = self.runs.get(parent)
            above = resident.row if resident is not None else await self._store.get(parent)
            if above is None:
                break
            if above.workflow == row.workflow:
                found.append(parent)
            parent = above.parent
        return tuple(found)

    async def children_without_place(self, code: Registered) -> list[str]:
        """Runs that nobody owns, which could use the place of a run of the same workflow that is in memory here."""
        found: list[str] = []
        for run_id, resident in list(self.runs.items()):
            if resident.code is code and resident.has_children and not self._loans.is_lent(run_id):
                above = [run_id]
                while above and len(found) < _CHILDREN:
                    query = RunQuery(parent=above.pop(), status="running", limit=_CHILDREN)
                    for row in await self._store.find(query):
                        if row.workflow != resident.row.workflow:
                            above.append(row.run_id)
                        elif row.owner is None and row.head.needs_worker:
                            found.append(row.run_id)
        return found

    def make_room(self) -> None:
        """Release the resting run that costs least."""
        if self.can_make_room:
            self._spawn(self._release(self._resting.take_oldest()))

    def relieve(self) -> None:
        """Let all runs leave memory that rest: there is too little of it."""
        while self._resting:
            self._spawn(self._release(self._resting.take_oldest()))

    def let_in(self, most: int) -> None:
        """Take up runs that were held back and for which there is room now, at most so many."""
        for _ in range(most):
            if not self._let_in_held_back():
                return

    @property
    def can_make_room(self) -> bool:
        """Whether memory is full, but not with runs that have something to do."""
        return self._is_full and bool(self._resting) and not self.memory.is_over

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and len(self.runs) + len(self._promised) >= self._limit

    async def _take_up(self, run_id: str, since: float, claim: asyncio.Future[Result] | None = None) -> None:
        try:
            code = await self._claimed(run_id) if claim is None else self._promised[run_id]
            if code is not None and (claim is None or await claim):
                await self._bring(run_id, code, since)
        except StoreUnavailable as error:
            # It may be ours by now: whoever looks after the stranded tries again.
            self._strand(run_id, "Run %s could not be taken up: %s", error)
        except CorruptRecord as error:
            _log.error("Run %s is parked: %s", run_id, error, extra=about(run_id))
            await self._park(run_id, str(error))
        except Exception as error:  # noqa: BLE001 - what is stored and the code at hand do not fit; other runs go on
            # What is wrong with an input, the message tells.
            seen = None if isinstance(error.__cause__, ValidationError) else error
            told = described(error)
            _log.error("Run %s is parked, not taken up: %s", run_id, told, exc_info=seen, extra=about(run_id))
            await self._park(run_id, f"It could not be taken up: {told}")

    async def _claimed(self, run_id: str) -> Registered | None:
        """The code of a run that is this process' now; None if it cannot be, or need not be."""
        row = await self._store.get(run_id)
        code = self._codes.get(row.workflow) if row is not None else None
        if row is None or code is None or row.head.status != "running":
            return None
        if row.owner is not None and row.owner != self.fence:
            return None  # if its owner is dead, the scanner will hear of it
        if self.is_safe and not await self._is_cancelled(run_id):
            return None
        ancestors = await self._ancestors(row) if row.parent is not None and not self.room_for(code) else ()
        if not self._has_place(run_id, code, ancestors):
            self._held_back.add(run_id, code, ancestors)
            self.make_room()
            if row.owner == self.fence:
                await self.submit(ReleaseRun(run_id, self.fence))
            return None
        self._promised[run_id] = code
        if row.owner is not None or await self.submit(ClaimRun(run_id, self.fence)):
            return code
        # A suspect waits for its turn, unless it is only taken up to end.
        if await self._is_cancelled(run_id) and await self.submit(ClaimRun(run_id, self.fence, suspected=True)):
            return code
        return None

    async def _is_cancelled(self, run_id: str) -> bool:
        """Say whether a run that is not in memory has been asked to stop."""
        mail, now = await self._store.mail(run_id, 0), self._clock()
        return any(isinstance(read_mail(run_id, piece, now), TickCancelRun) for piece in mail)

    async def _bring(self, run_id: str, code: Registered, since: float) -> None:
        """Set a run in motion that is this process'."""
        if run_id in self._last_words:
            await asyncio.wait([self._last_words[run_id]])
        stored = await self._store.load(run_id)
        if stored is None or run_id in self.runs:
            return
        if is_poison(stored):
            if not is_let_go([read_mail(run_id, piece, self._clock()) for piece in stored.mail]):
                await self._park_poison(stored, code)
                return
            await self.submit(ForgetDeaths(run_id, self.fence, unparks=True))
            stored = replace(stored, marked=UNSET)
        recovery = await self._recovered(stored, code)
        if run_id in self.runs:
            return
        if not self.begin(stored, code, recovery):
            await self._park(run_id, stored.row.head.parked or "")
        elif stored.row.head.ticks:
            self.figures.resume_seconds.observe(self.figures.clock() - since)

    async def _recovered(self, stored: StoredRun, code: Registered) -> Recovered | None:
        """The run as its journal leaves it; in a thread, if that costs more than the event loop can spare."""
        if self._closing or not stored.row.head.ticks:
            return None
        recover = partial(self._recover, stored, code.for_run(stored), self._clock(), self.downtime)
        if stored.size <= OFF_LOOP_BYTES:
            with suppress(TooCostly), Patience(PATIENCE):
                return recover()
        return await aside("reduce", recover)

    def _recover(self, stored: StoredRun, code: Registered, now: float, downtime: float) -> Recovered:
        self.links.check(stored)
        return recovered(stored, code, now, downtime)

    def begin(self, stored: StoredRun, code: Registered, recovery: Recovered | None = None) -> bool:
        """Set an owned run in motion. False if it is parked and would only be parked again."""
        run_id = stored.row.run_id
        if self._closing:
            return True  # whoever works for it next finds it in the store
        version = code.for_run(stored)
        state, ticks = recovery or self._recover(stored, version, self._clock(), self.downtime)
        if parked_again(state, ticks, version) or self.limits.still_hold(stored.row, state, ticks):
            return False
        if self._guard is None or self._guard.loop_ends:
            self._guard = Guard(self._loop)
            rouse()
        resident = Resident(stored, state, version, self, self._guard, self._clock, self._ended)
        resident.names = self._codes
        self.runs[run_id] = resident
        self.memory.let_in(run_id)
        self._promised.pop(run_id, None)
        if self._held_back:
            self._held_back.drop(run_id, code)
            self._loop.call_soon(self._let_in_held_back)  # it may lend its place to a child that waits
        self._guard.add(resident)
        resident.is_marked = stored.deaths is not None
        self.probation.begin(run_id, stored.deaths)
        self.figures.resumed += stored.row.head.ticks > 0
        try:
            resident.begin_with(ticks)
        except BaseException:
            self._forget(resident)
            raise
        return True

    async def _park_poison(self, stored: StoredRun, code: Registered) -> None:
        """Park a run that has killed its processes, or leave it parked."""
        run_id, reason = stored.row.run_id, stored.row.head.parked
        if is_new := reason is None:
            version = code.for_run(stored)
            state = restored(run_id, stored.snapshot, stored.chunks, version.planner, version.convert.field)
            assert stored.deaths is not None
            reason = reason_of(stored.deaths, state)
            _log.error("Run %s of %s is parked: %s", run_id, stored.row.workflow, reason, extra=about(run_id))
        await self._park(run_id, reason, is_poison=is_new)  # it explains the deaths before it, and none after
        self.probation.on_acquitted()

    async def _fetch(self, resident: Resident) -> None:
        """Bring a run its mail."""
        run_id = resident.run_id
        try:
            mail = await self._store.mail(run_id, resident.last_mail)
            if self.runs.get(run_id) is not resident:
                if mail:
                    self.wake(run_id)  # it has left memory meanwhile, and must come back
                return
            resident.deliver(mail)
            if resident.is_at_rest and run_id not in self._resting:
                self.at_rest(run_id)  # it could not leave when its turn had come
        except StoreUnavailable as error:
            self._strand(run_id, "The mail of run %s could not be read: %s", error)
        except CorruptRecord as error:
            await self._park_resident(resident, str(error))

    async def _park_resident(self, resident: Resident, reason: str) -> None:
        """Something is stored that the run cannot be told: it leaves memory, and nothing is deleted."""
        if self.runs.get(resident.run_id) is resident:
            _log.error("Run %s is parked: %s", resident.run_id, reason, extra=about(resident.run_id))
            self._forget(resident)
            resident.abort()
            await self._park(resident.run_id, reason)

    def _strand(self, run_id: str, message: str, error: StoreUnavailable) -> None:
        """The store has failed a run: it is tried again with every look at the store, but complained of once."""
        self.stranded.add(run_id)
        level = logging.DEBUG if run_id in self.complained_of else logging.ERROR
        _log.log(level, message, run_id, error, extra=about(run_id))
        self.complained_of.add(run_id)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _forget(self, resident: Resident) -> None:
        run_id = resident.run_id
        if self.runs.get(run_id) is resident:
            del self.runs[run_id]
        self._resting.drop(run_id)
        self.probation.left(run_id, is_over=resident.has_ended)
        self._loans.end(run_id)
        self._saw(resident.row_left())
        if (commit := resident.commit_under_way) is not None:
            self._last_words[run_id] = commit
            commit.add_done_callback(lambda _done: self._last_words.pop(run_id, None))
        if resident.guard.remove(resident) and self._guard is resident.guard:
            self._guard = None
        self._let_in()

    def _let_in(self) -> None:
        """There may be room: take up one that was held back, else see whether the store has one."""
        if not self._let_in_held_back():
            self._on_room()

    def _let_in_held_back(self) -> bool:
        """Take up a run that was held back, if one has a place now."""
        run_id = self._held_back.next(self.room_for, self._lender)
        if run_id is not None:
            self.wake(run_id)
        return run_id is not None

    def _ended(self, live: LiveRun) -> None:
        """A run has left memory: it is over, was released, or something went wrong."""
        resident = self.runs.get(live.run_id)
        if resident is not live:
            return
        self._forget(resident)
        run_id, ending = live.run_id, live.ending()
        if resident.parked is not None:
            _log.warning("Run %s is parked: %s", run_id, resident.parked, extra=about(run_id))
            self._come(run_id, self._park(run_id, resident.parked))
        elif isinstance(ending, StoreUnavailable):
            self._strand(run_id, "Run %s was stopped until the store is back, because its commit failed: %s", ending)
        elif isinstance(ending, Fenced):
            _log.warning("Run %s was given up: another process owns it now.", run_id, extra=about(run_id))
            self.figures.given_up += 1
            self.wake(run_id)
        elif not live._core.is_over and isinstance(ending, Exception):
            # It would only break again: like one that cannot be taken up, it waits for other code.
            _log.error("Run %s is parked: an error of the engine.", run_id, exc_info=ending, extra=about(run_id))
            self._come(run_id, self._park(run_id, f"An error of the engine: {described(ending)}"))
        elif live._core.is_over and ending is not None:
            self._on_end(run_id, ending)
            if is_notice(resident.row.workflow) and not isinstance(ending, BaseException):
                self._spawn(self._forget_notice(run_id))
        self.committed(run_id)
        ended = resident.ended_as()
        if ended is not None:
            self._recent.keep(*ended)
        self._endings.wake(run_id, ended[0] if ended is not None else None)

    async def _forget_notice(self, run_id: str) -> None:
        """Delete a notice that was taken. If that fails, the retention deletes it."""
        with suppress(StoreUnavailable):
            await self.submit(PurgeRuns(run_id=run_id))

    async def _park(self, run_id: str, reason: str, *, is_poison: bool = False) -> None:
        try:
            row = await self._readable_row(run_id)
            # A run that was parked for this reason before, or by its own commit, was told of then.
            if self.problems.channels and row is not None and row.head.parked != reason:
                problem = problem_of(row, row.head, "parked", reason)
                for notice in self.problems.notices(problem, self._clock(), self.downtime):
                    await self.submit(self.links.signed_start(notice))  # first: parked, the run is told of no more
            if await self.submit(ParkRun(run_id, self.fence, reason, is_poison)):
                self.figures.of_workflow(row.workflow if row is not None else OTHER).count("parked")
        except StoreUnavailable as error:
            self._strand(run_id, "Run %s could not be marked as parked: %s", error)

    async def _readable_row(self, run_id: str) -> RunRow | None:
        """The row of a run that is to be parked; None if the row itself is what cannot be read."""
        try:
            return await self._store.get(run_id)
        except CorruptRecord:
            return None

    # -- releasing ----------------------------------------------------------------------------------------------------

    def at_rest(self, run_id: str) -> None:
        """A run can only be moved from outside, or by a timer: after a while it leaves memory."""
        self.probation.acquit(run_id)
        if not self._releases:
            return
        if self.memory.is_over:
            self._spawn(self._release(run_id))
            return
        self._resting.add(run_id, self._is_worth_holding(run_id))
        if self._is_full and self._held_back:
            self.make_room()
        elif self._is_full:
            self._on_room()  # another one may wait for its place in the store

    def _is_worth_holding(self, run_id: str) -> bool:
        """Say whether a body would have to run again if the run left memory, and no other run waits for its place."""
        resident = self.runs.get(run_id)
        if resident is None or resident.code.workflow._num_concurrent_runs is not None:
            return False
        return resident.holds_body

    def stirred(self, run_id: str) -> None:
        """A run has something to do."""
        self._resting.drop(run_id)

    async def _release(self, run_id: str) -> None:
        resident = self.runs.get(run_id)
        if resident is None or resident.releasing or not resident.is_at_rest:
            return
        resident.releasing, resident.wanted = True, False
        due = resident.next_due()
        try:
            gone = await self.submit(ReleaseRun(run_id, self.fence))
        except StoreUnavailable as error:
            self._not_released(resident, error)
            return
        finally:
            resident.releasing = False
        if not gone:
            await self._fetch(resident)
        elif self.runs.get(run_id) is resident:
            moved = resident.wanted or not resident.is_at_rest
            self.figures.released += 1
            released(run_id, resident.workflow_name)
            self._forget(resident)
            resident.abort()
            if moved:
                self.wake(run_id)  # something came in between: it finds that again in the store
            elif due is not None:
                self._on_release(run_id, due)

    def _not_released(self, resident: Resident, error: StoreUnavailable) -> None:
        """The store failed. If nobody knows whose the run is now, it leaves memory here, and is looked for again."""
        run_id = resident.run_id
        if self.runs.get(run_id) is not resident:
            return
        if error.outcome_unknown:
            self._forget(resident)
            resident.abort()
        # If it is here still, it is brought its mail when the store is back, and rests again.
        self._strand(run_id, "Run %s could not be released: %s", error)

    async def close(self) -> None:
        """Let all runs leave memory; they stay in the store as they are."""
        self._closing = True
        self._resting.close()
        tasks = [task for task in [*self._coming.values(), *self._background] if task is not None]
        for task in tasks:
            task.cancel()
        leaving = list(self.runs.values())
        for resident in leaving:
            resident.abort()
        for resident in leaving:
            await resident.wait_done()
        await asyncio.gather(*tasks, return_exceptions=True)

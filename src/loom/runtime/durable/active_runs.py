"""The runs of one process: claimed and loaded when something happens to them, released when nothing can.

This is the shell around `residence`, which says what follows from what. Here are the tasks that claim, load, park and
release runs, and what the machine asks for. Everything from outside goes through the store, so nothing is lost if it
comes while a run is not in memory: the store refuses to release a run that has messages.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace
from pydantic import ValidationError

from loom.runtime.control_loop import LoopWatcher, Turns
from loom.runtime.durable.active_run import ActiveRun
from loom.runtime.durable.adapter import Fenced, SizeLimits
from loom.runtime.durable.admission import AdmissionQueue, Families
from loom.runtime.durable.background import Background
from loom.runtime.durable.idle_tracker import IdleTracker
from loom.runtime.durable.lease import Lease
from loom.runtime.durable.metrics import OTHER
from loom.runtime.durable.probation import Probation, is_let_go, is_poison, reason_of
from loom.runtime.durable.problems import forget_notice, is_notice, problem_of
from loom.runtime.durable.recovery import parked_again, read_message, replay, replay_aside
from loom.runtime.durable.residence import ABSENT, BUSY, Slot, transition
from loom.runtime.durable.unread import asks_to_end, end_unread
from loom.runtime.logs import about, log_release
from loom.runtime.tracing import find_tracing
from loom.runtime.watchdog import rouse
from loom.steps.errors import described
from loom.store.errors import CorruptRecord, StoreUnavailable
from loom.store.operations import ClaimRun, ForgetDeaths, ParkRun, ReleaseRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.admission import MemoryLimit
    from loom.runtime.durable.problems import Problems
    from loom.runtime.durable.recovery import Recovered
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.residence import Action, Fact
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.durable.settings import Settings
    from loom.runtime.live_run import LiveRun
    from loom.steps.events import StopEvent
    from loom.store.operations import Operation, Result
    from loom.store.ports import OwnedStore
    from loom.store.records import Member, RunRow, StoredRun

_log = logging.getLogger("loom.durable")

NotClaimed: TypeAlias = Literal["no room", "given up"]
"""Why a run could not be claimed, as a fact of its residence."""


class ActiveRuns:
    """Keeps the runs of one process. It is their `Keeper`."""

    def __init__(
        self,
        stored: RunClient,
        store: OwnedStore,
        settings: Settings,
        member: Member,
        problems: Problems,
        memory: MemoryLimit,
        on_end: Callable[[str, StopEvent | BaseException], None],
        on_release: Callable[[str, float], None],
    ) -> None:
        self._closing = False
        self.fence, self.downtime, self.prune = member.fence, member.downtime, settings.prune
        self.limits = SizeLimits(settings.max_state, None if settings.prune else settings.max_history)
        self.problems = problems
        self.lease = Lease(settings.lease, stored.now, asyncio.get_running_loop())
        self.families = Families(store, stored.now, settings.max_descendants)
        self.submit: Callable[[Operation], asyncio.Future[Result]] = stored.committer.submit
        self.committed: Callable[[str], None] = stored.watchers.wake
        self.metrics, self.links = stored.metrics, stored.links
        self.tracing = find_tracing() if settings.tracing else None
        self.decorate = settings.decorate
        self._endings, self._recent = stored.endings, stored.recent
        self._saw = stored.saw
        self._store, self._codes = store, stored.codes
        self._clock = stored.now
        limits = settings.idle_s, settings.max_in_memory, settings.max_memory
        self._releases = any(limit is not None for limit in limits)
        self.memory = memory
        """While the process is over its limit, no run comes into memory, and idle runs leave it."""
        self.is_safe = settings.safe
        """No run is recovered but to be cancelled."""
        self._on_end = on_end
        self.is_awaited: Callable[[str], bool] = lambda _run_id: True
        """Says whether a handler of a run in this process wants its result as an object."""
        self._on_release = on_release
        self.on_room: Callable[[], None] = lambda: None
        """Called when a place has become free that no run waits for here."""
        self._loop = asyncio.get_running_loop()
        self._watcher: LoopWatcher | None = None
        self._turns = Turns(self._loop)
        self.runs: dict[str, ActiveRun] = {}
        """The runs in memory: their slots are active, idle or releasing."""
        self._slots: dict[str, Slot] = {}
        """Where each run is that is not absent."""
        self._logged: set[str] = set()
        """Stranded runs already logged at ERROR; forgotten by a clean scan, unless they are on their way back."""
        self.admission = AdmissionQueue(self.runs, store, settings.max_in_memory, memory)
        self._background = Background(self._loop)
        self._spawn = self._background.spawn
        self.probation = Probation(settings.probation, self.fence, self.submit, self._spawn, self._clock, self._loop)
        held_s = settings.suspended_s if settings.suspended_s != settings.idle_s else None
        self._idle = IdleTracker(self._loop, settings.idle_s, self._release_soon, held_s, settings.max_suspended)
        self._actions = self._make_actions()

    # -- the machine --------------------------------------------------------------------------------------------------

    def _tell(self, run_id: str, fact: Fact) -> None:
        """Change a run's slot by a fact, and do what follows from that."""
        slot, actions = transition(self._slots.get(run_id, ABSENT), fact)
        if slot.state == "absent":
            self._slots.pop(run_id, None)
        else:
            self._slots[run_id] = slot
        for action in actions:
            self._actions[action](run_id)

    def _make_actions(self) -> dict[Action, Callable[[str], None]]:
        """Say how each action that the machine may ask for is done."""
        return {
            "claim": self._claim,
            "fetch": self._fetch_soon,
            "track": self._track,
            "untrack": self._idle.drop,
            "dequeue": self.admission.drop,
            "forget": self._forget,
            "free": self._free,
        }

    def _claim(self, run_id: str) -> None:
        if not self._closing:
            self._spawn(self._recover(run_id, self.metrics.clock()))

    def _fetch_soon(self, run_id: str) -> None:
        if not self._closing:
            self._spawn(self._fetch(self.runs[run_id]))

    def _track(self, run_id: str) -> None:
        self._idle.add(run_id, self._is_worth_holding(run_id))

    def _free(self, run_id: str) -> None:
        relative = self.families.places.free(run_id)
        if relative is not None:
            self.notify(relative)
        if self.admission.free_place(run_id):
            self._let_in()

    def notify(self, run_id: str) -> None:
        """Bring a run what has come for it, if it is in memory; else recover the run if that is possible."""
        if not self._closing:
            self._tell(run_id, "notified")

    def retry_stranded(self) -> bool:
        """Try again what the store had failed, now that it works; False if there was nothing."""
        stranded = [run_id for run_id, slot in self._slots.items() if slot.is_stranded]
        if not stranded:
            self._logged = set(filter(self._is_on_its_way, self._logged))
        for run_id in sorted(stranded):
            self._tell(run_id, "scanned")
        return bool(stranded)

    def _is_on_its_way(self, run_id: str) -> bool:
        """Say whether a run is being recovered, or commits: the store may fail it once more."""
        slot, run = self._slots.get(run_id, ABSENT), self.runs.get(run_id)
        return slot.state in BUSY or (run is not None and run.commit_under_way is not None)

    def _strand(self, run_id: str, fact: Fact, message: str, error: StoreUnavailable) -> None:
        """Tell that the store has failed a run. The next scan tries it again."""
        self._log_stranded(run_id, message, error)
        self._tell(run_id, fact)

    def _log_stranded(self, run_id: str, message: str, error: StoreUnavailable) -> None:
        """Log once that the store has failed a run, however often that happens before it works again."""
        level = logging.DEBUG if run_id in self._logged else logging.ERROR
        _log.log(level, message, run_id, error, extra=about(run_id))
        self._logged.add(run_id)

    # -- from callers -------------------------------------------------------------------------------------------------

    def expect_start(self, run_id: str, code: Registration) -> bool:
        """Reserve a place for a run whose start a caller is about to store; False if there is none, or a slot.

        The caller sets the run in motion itself: `begin`, and in any case `start_done`.
        """
        return self._reserve(run_id, code, "start expected")

    def start_done(self, run_id: str) -> None:
        """End what `expect_start` began. A run that is not in memory gives its place back."""
        self._tell(run_id, "start done")

    def start_unsure(self, run_id: str, *, is_expected: bool) -> None:
        """Look for a run whose start may be stored, although the store has failed."""
        self._tell(run_id, "store failed" if is_expected else "start unsure")

    def expect_message(self, row: RunRow) -> None:
        """Claim a run that nobody owns in the transaction that brings it a message, and recover it."""
        run_id, code = row.run_id, self._codes.get(row.workflow)
        if self._closing or code is None or row.owner is not None or row.head.status != "running":
            return
        # Whether its family has a place for a child is found out on the way of all others.
        if row.parent is None and self._reserve(run_id, code, "message expected"):
            claim = self.submit(ClaimRun(run_id, self.fence))
            self._spawn(self._recover(run_id, self.metrics.clock(), claim))

    def _reserve(self, run_id: str, code: Registration, fact: Fact) -> bool:
        if self.is_safe or run_id in self._slots or not self.admission.room_for(code):
            return False
        self.admission.take_place(run_id, code)
        self._tell(run_id, fact)
        return True

    def is_own_end(self, run_id: str) -> bool:
        """Say whether news of a run tell what this process knows: that it has just stored the end of the run itself."""
        run = self.runs.get(run_id)
        return run is not None and run.hears_of_its_end()

    # -- recovery -----------------------------------------------------------------------------------------------------

    async def _recover(self, run_id: str, since: float, claim: asyncio.Future[Result] | None = None) -> None:
        """Claim a run and load it, and tell how that has ended."""
        try:
            found = await (self._claimed(run_id) if claim is None else self._claimed_with_message(run_id, claim))
            if isinstance(found, str):
                self._tell(run_id, found)
            else:
                self._tell(run_id, "claimed")
                await self._load_or_end(run_id, found, since)
        except StoreUnavailable as error:
            # It may be ours by now: the next scan tries again.
            self._strand(run_id, "store failed", "Run %s could not be taken up: %s", error)
        except CorruptRecord as error:
            _log.error("Run %s is parked: %s", run_id, error, extra=about(run_id))
            await self._park(run_id, str(error))
        except Exception as error:  # noqa: BLE001 - what is stored and the registered code do not fit; other runs go on
            # What is wrong with an input, the message tells.
            seen = None if isinstance(error.__cause__, ValidationError) else error
            told = described(error)
            _log.error("Run %s is parked, not taken up: %s", run_id, told, exc_info=seen, extra=about(run_id))
            await self._park(run_id, f"It could not be taken up: {told}")

    async def _claimed_with_message(self, run_id: str, claim: asyncio.Future[Result]) -> Registration | NotClaimed:
        return self.admission.place_of(run_id) if await claim else "given up"

    async def _claimed(self, run_id: str) -> Registration | NotClaimed:
        """Return the code of a run that is owned and has a place now; else why it does not."""
        row = await self._store.get(run_id)
        code = self._codes.get(row.workflow) if row is not None else None
        if row is None or code is None or row.head.status != "running":
            return "given up"
        if row.owner is not None and row.owner != self.fence:
            return "given up"  # if its owner is dead, the scanner will hear of it
        if self.is_safe and not await self._is_cancelled(run_id, code if row.head.ticks else None):
            return "given up"
        if not await self.admission.admit(row, code):
            self.make_room()
            if row.owner == self.fence:
                await self.submit(ReleaseRun(run_id, self.fence))
            return "no room"
        if row.owner is not None or await self.submit(ClaimRun(run_id, self.fence)):
            # A run that waits for its family stays owned, or each look at the store would find it again.
            if await self.families.take_place(row, self._is_cancelled):
                return code
            self._yield_to_relatives(run_id)
            return "no room"
        # A suspect waits for its turn, unless it is only recovered to end.
        if await self._is_cancelled(run_id) and await self.submit(ClaimRun(run_id, self.fence, suspected=True)):
            return code
        return "given up"

    def _yield_to_relatives(self, run_id: str) -> None:
        """Let a run wait for a place in its family: idle runs of the family leave, and others may use its place."""
        for relative in self.families.places.relatives(run_id):
            if self._slots.get(relative, ABSENT).state == "idle":
                self._release_soon(relative)
        if self.admission.free_place(run_id):
            self._let_in()

    async def _is_cancelled(self, run_id: str, code: Registration | None = None) -> bool:
        """Say whether a run that is not in memory has been asked to stop; with its code, to stop without a clean-up."""
        return asks_to_end(run_id, await self._store.inbox(run_id, 0), code)

    async def _load_or_end(self, run_id: str, code: Registration, since: float) -> None:
        """Set a run in motion, or end one that cannot be read as it was asked to."""
        try:
            await self._load(run_id, code, since)
        except CorruptRecord as error:
            if not await end_unread(run_id, error, self, self._store, code, self._clock()):
                raise
            self._tell(run_id, "given up")
            self._endings.wake(run_id)

    async def _load(self, run_id: str, code: Registration, since: float) -> None:
        """Set a run in motion that this process owns."""
        stored = await self._store.load(run_id)
        if stored is None:
            self._tell(run_id, "given up")
            return
        if is_poison(stored):
            if not is_let_go([read_message(run_id, message, self._clock()) for message in stored.inbox]):
                await self._park_poison(stored, code)
                return
            await self.submit(ForgetDeaths(run_id, self.fence, unparks=True))
            stored = replace(stored, marked=UNSET)
        recovery = None
        if stored.row.head.ticks and not self._closing:
            recovery = await replay_aside(stored, code.for_run(stored), self.links, self._clock(), self.downtime)
        # One commit may bring hundreds of child runs, and each first transition takes a while.
        if not await self._turns.run(partial(self.begin, stored, code, recovery)):
            await self._park(run_id, stored.row.head.parked or "")
        elif stored.row.head.ticks:
            self.metrics.resume_seconds.observe(self.metrics.clock() - since)

    def begin(self, stored: StoredRun, code: Registration, recovery: Recovered | None = None) -> bool:
        """Set an owned run in motion. False if it is parked and would only be parked again."""
        run_id = stored.row.run_id
        if self._closing:
            return True  # the process that works for it next finds it in the store
        version = code.for_run(stored)
        state, ticks = recovery or replay(stored, version, self.links, self._clock(), self.downtime)
        if parked_again(state, ticks, version) or self.limits.still_hold(stored.row, state, ticks):
            return False
        if self._watcher is None or self._watcher.loop_ends:
            self._watcher = LoopWatcher(self._loop, self._turns)
            rouse()
        run = ActiveRun(stored, state, version, self, self._watcher, self._clock, self._ended)
        run.names = self._codes
        self.runs[run_id] = run
        self.memory.let_in(run_id)
        if self.admission:
            self._loop.call_soon(self.let_in)  # it may lend its place to a child that waits
        self._tell(run_id, "begun")
        self.admission.take_place(run_id, version)
        self._watcher.add(run)
        run.is_marked = stored.deaths is not None
        self.probation.begin(run_id, stored.deaths)
        self.metrics.resumed += stored.row.head.ticks > 0
        try:
            run.begin_with(ticks)
        except BaseException:
            self._tell(run_id, "begin failed")
            raise
        return True

    # -- messages -----------------------------------------------------------------------------------------------------

    async def _fetch(self, run: ActiveRun) -> None:
        """Bring a run its messages."""
        run_id = run.run_id
        try:
            messages = await self._store.inbox(run_id, run.last_message)
            if self.runs.get(run_id) is not run:
                if messages:
                    self.notify(run_id)  # it has left memory since, and must come back
                return
            run.deliver(messages)
            if run.is_at_rest and run_id not in self._idle:
                self.at_rest(run_id)  # it could not leave when its turn had come
        except StoreUnavailable as error:
            self._strand(run_id, "messages unread", "The mail of run %s could not be read: %s", error)
        except CorruptRecord as error:
            await self._park_active(run, str(error))

    # -- parking ------------------------------------------------------------------------------------------------------

    async def _park(self, run_id: str, reason: str, *, is_poison: bool = False) -> None:
        """Tell the store why a run cannot go on. It waits there for other code, or for an operator."""
        self._tell(run_id, "cannot go on")
        try:
            row = None
            with suppress(CorruptRecord):  # else the row itself is what cannot be read
                row = await self._store.get(run_id)
            # A run that was parked for this reason before, or by its own commit, was told of then.
            if self.problems.channels and row is not None and row.head.parked != reason:
                problem = problem_of(row, row.head, "parked", reason)
                for notice in self.problems.notices(problem, self._clock(), self.downtime):
                    await self.submit(self.links.signed_start(notice))  # first: parked, the run is told of no more
            if await self.submit(ParkRun(run_id, self.fence, reason, is_poison)):
                self.metrics.of_workflow(row.workflow if row is not None else OTHER).count("parked")
        except StoreUnavailable as error:
            self._strand(run_id, "store failed", "Run %s could not be marked as parked: %s", error)
        except BaseException:
            self._tell(run_id, "given up")
            raise
        else:
            self._tell(run_id, "parked")

    async def _park_poison(self, stored: StoredRun, code: Registration) -> None:
        """Park a run that has killed its processes, or leave it parked."""
        run_id, reason = stored.row.run_id, stored.row.head.parked
        if is_new := reason is None:
            reason = reason_of(stored, code.for_run(stored))
            _log.error("Run %s of %s is parked: %s", run_id, stored.row.workflow, reason, extra=about(run_id))
        await self._park(run_id, reason, is_poison=is_new)  # it explains the deaths before it, and none after
        self.probation.on_acquitted()

    async def _park_active(self, run: ActiveRun, reason: str) -> None:
        """Park a run that cannot be told what is stored for it. It leaves memory, and nothing is deleted."""
        if self.runs.get(run.run_id) is run:
            _log.error("Run %s is parked: %s", run.run_id, reason, extra=about(run.run_id))
            commit = run.commit_under_way
            self._tell(run.run_id, "cannot go on")
            run.abort()
            if commit is not None:
                await asyncio.wait([commit])  # the slot is busy with that, so nobody loads the run before
            await self._park(run.run_id, reason)

    # -- leaving memory -----------------------------------------------------------------------------------------------

    def _forget(self, run_id: str) -> None:
        """Drop what is held of a run that leaves memory."""
        run = self.runs.pop(run_id)
        self._idle.drop(run_id)
        self.probation.left(run_id, is_over=run.has_ended)
        self._saw(run.row_left())
        if run.watcher.remove(run) and self._watcher is run.watcher:
            self._watcher = None

    def _leave(self, run: ActiveRun, *, unsure: bool = False) -> None:
        """Tell that a run has left memory. It is recovered only after a commit that is in flight: see `residence`."""
        run_id, commit = run.run_id, run.commit_under_way
        if commit is None:
            self._tell(run_id, "release unsure" if unsure else "left")
        else:
            self._tell(run_id, "release unsure mid-commit" if unsure else "left mid-commit")
            commit.add_done_callback(lambda _done: self._tell(run_id, "commit settled"))

    def _ended(self, live: LiveRun) -> None:
        """See to a run whose control loop has stopped: it is over, or something went wrong."""
        run = self.runs.get(live.run_id)
        if run is not live:
            return
        run_id, ending = live.run_id, live.ending()
        if run.parked is not None:
            _log.warning("Run %s is parked: %s", run_id, run.parked, extra=about(run_id))
            self._park_soon(run_id, run.parked)
        elif isinstance(ending, StoreUnavailable):
            message = "Run %s was stopped until the store is back, because its commit failed: %s"
            self._strand(run_id, "commit failed", message, ending)
        elif isinstance(ending, Fenced):
            _log.warning("Run %s was given up: another process owns it now.", run_id, extra=about(run_id))
            self.metrics.given_up += 1
            self._tell(run_id, "fenced")
        elif not run.has_ended and isinstance(ending, Exception):
            # It would only break again: like one that cannot be recovered, it waits for other code.
            _log.error("Run %s is parked: an error of the engine.", run_id, exc_info=ending, extra=about(run_id))
            self._park_soon(run_id, f"An error of the engine: {described(ending)}")
        else:
            self._leave(run)
            if run.has_ended and ending is not None:
                self._on_end(run_id, ending)
                if is_notice(run.row.workflow) and not isinstance(ending, BaseException):
                    self._spawn(forget_notice(run_id, self.submit))
        self.committed(run_id)
        ended = run.ended_as()
        if ended is not None:
            self._recent.keep(*ended)
        self._endings.wake(run_id, ended[0] if ended is not None else None)

    def _park_soon(self, run_id: str, reason: str) -> None:
        self._tell(run_id, "cannot go on")
        self._spawn(self._park(run_id, reason))

    # -- idle runs and places ------------------------------------------------------------------------------------------

    def at_rest(self, run_id: str) -> None:
        """Note that only input from outside or a timer can move a run: after a while it leaves memory."""
        self.probation.acquit(run_id)
        if self.families.places.is_full(run_id) or (self._releases and self.memory.is_over):
            self._release_soon(run_id)
            return
        if not self._releases:
            return
        self._tell(run_id, "rested")
        if self.admission.is_full and self.admission:
            self.make_room()
        elif self.admission.is_full:
            self.on_room()  # another one may wait for its place in the store

    def stirred(self, run_id: str) -> None:
        """Note that a run has something to do."""
        slot = self._slots.get(run_id)
        if slot is not None and slot.state == "idle":
            self._tell(run_id, "stirred")

    def _is_worth_holding(self, run_id: str) -> bool:
        """Say whether a body would have to run again if the run left memory, and no other run waits for its place."""
        run = self.runs[run_id]
        return run.code.definition.limits.concurrent_runs is None and run.holds_body

    def _release_soon(self, run_id: str) -> None:
        self._spawn(self._release(run_id))

    async def _release(self, run_id: str) -> None:
        """Ask the store to release an idle run, and let it leave memory if the store does."""
        run = self.runs.get(run_id)
        if run is None or self._slots[run_id].state == "releasing" or not run.is_at_rest:
            return
        self._tell(run_id, "release wanted")
        due = run.next_due()
        try:
            gone = await self.submit(ReleaseRun(run_id, self.fence))
        except StoreUnavailable as error:
            self._not_released(run, error)
            return
        except BaseException:
            if self.runs.get(run_id) is run:
                self._tell(run_id, "release failed")
            raise
        if self.runs.get(run_id) is not run:
            if not gone:
                await self._fetch(run)
        elif gone:
            # One commit may release hundreds of runs, and each leaves a line in the log.
            await self._turns.run(partial(self._released, run, due))
        else:
            self._tell(run_id, "release refused")

    def _released(self, run: ActiveRun, due: float | None) -> None:
        """Let a run leave memory that the store has released; `due` is when its first timer was due, if it had one."""
        run_id = run.run_id
        if self.runs.get(run_id) is not run:
            return
        self.metrics.released += 1
        log_release(run_id, run.workflow_name)
        if not run.is_at_rest:
            self._tell(run_id, "stirred")  # what it is at work on is found again in the store
        moved = self._slots[run_id].wanted
        self._leave(run)
        run.abort()
        if due is not None and not moved:
            self._on_release(run_id, due)

    def _not_released(self, run: ActiveRun, error: StoreUnavailable) -> None:
        """See to a run that the store has failed to release. If nobody knows whose it is now, it leaves memory."""
        run_id = run.run_id
        if self.runs.get(run_id) is not run:
            return
        self._log_stranded(run_id, "Run %s could not be released: %s", error)
        if error.outcome_unknown:
            self._leave(run, unsure=True)
            run.abort()
        else:
            self._tell(run_id, "release failed")  # the next scan brings it its messages, and it is idle again

    def _let_in(self) -> None:
        """Recover a run that waits for a place, if there is one now; else see whether the store has one."""
        if not self.let_in():
            self.on_room()

    def let_in(self, most: int = 1) -> int:
        """Recover runs that wait for a place, as far as there are places now, at most this many; return how many."""
        for number in range(most):
            run_id = self.admission.next()
            if run_id is None:
                return number
            self.notify(run_id)
        return most

    @property
    def can_make_room(self) -> bool:
        """Say whether memory is full, but not with runs that have something to do."""
        return self.admission.is_full and bool(self._idle) and not self.memory.is_over

    def make_room(self) -> None:
        """Release the idle run that costs least."""
        if self.can_make_room:
            self._release_soon(self._idle.take_oldest())

    def relieve(self) -> None:
        """Release all idle runs: there is too little memory."""
        while self._idle:
            self._release_soon(self._idle.take_oldest())

    async def close(self) -> None:
        """Let all runs leave memory; they stay in the store as they are."""
        self._closing = True
        self._idle.close()
        tasks = list(self._background)
        for task in tasks:
            task.cancel()
        leaving = list(self.runs.values())
        for run in leaving:
            run.abort()
        for run in leaving:
            await run.wait_done()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Looks after the store from time to time: keeps the lease, finds runs that need a worker, wakes runs on time.

News tell most of it at once; this is the safety net, and the alarm clock of the runs that are not in memory.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.runtime.durable.workers import OwnEntry
from loom.store.errors import StoreUnavailable
from loom.store.loop_time import can_skip, keep_looking, until_look
from loom.store.operations import ClaimRuns, PurgeRuns, TryRun
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.active_runs import ActiveRuns
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.durable.settings import Settings
    from loom.store.ports import OwnedStore

_log = logging.getLogger("loom.durable")

_BATCH = 200
_PURGE_EVERY_S = 60.0
_PURGED_AT_ONCE = 1000
_JUMP_S = 1.0
"""If the clock and the event loop's time differ by so much more between two looks, the clock has jumped."""


class Scanner:
    """One background task of a process that works on runs."""

    def __init__(
        self,
        stored: RunClient,
        store: OwnedStore,
        active_runs: ActiveRuns,
        settings: Settings,
        on_lost: Callable[[], None],
    ) -> None:
        self._stored = stored
        self._store = store
        self._committer = stored.committer
        self._active_runs = active_runs
        self._codes = stored.codes
        self._clock = stored.now
        # The lease is prolonged with every look: one may fail, and the next one be late.
        self._interval_s = min(settings.poll_interval, settings.lease / 3)
        self._lease_s = settings.lease
        self._retention_s = settings.retention
        # So long may a member that has died still hold runs, which a look then finds.
        self._settles_s = 2 * settings.lease + self._interval_s
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._look = asyncio.Event()
        self._due: dict[str, float] = {}
        """Runs that are not in memory and have a timer due soon."""
        self._soonest: list[tuple[float, str]] = []
        """A heap of these times. An entry that differs from the one above is out of date."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        """The time for which the alarm is set."""
        self._distant: asyncio.TimerHandle | None = None
        self._purged_at = float("-inf")
        self._ahead = self._clock() - self._loop.time()
        """How far the clock was ahead of the event loop's time, which stands still while a machine sleeps."""
        self._is_failing = False
        self._is_short = False
        """Whether the last look found too little memory for more runs."""
        self._has_more = False
        """Whether there may be runs in the store that had no room here."""
        self._entry = OwnEntry(store, active_runs.fence, stored.describe_worker, stored.now)
        self._task: asyncio.Task[None] | None = None
        active_runs.lease.on_doubt = self._look.set
        active_runs.probation.on_acquitted = self.look_soon

    def start(self) -> None:
        """Begin."""
        self._task = self._loop.create_task(self._run(), name="loom scanner")

    async def close(self) -> None:
        """End."""
        for timer in (self._alarm, self._distant):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look_soon(self) -> None:
        """Look at everything, soon."""
        keep_looking(self._loop, self._settles_s)
        self._look.set()

    def on_room(self) -> None:
        """Another run has a place now."""
        if self._has_more:
            self.look_soon()

    async def _run(self) -> None:
        keep_looking(self._loop, self._settles_s)
        try:
            await self._look_on()
        finally:
            keep_looking(self._loop, self._settles_s)  # others may have to take over
            if not self._is_failing:
                await self._entry.drop()

    async def _look_on(self) -> None:
        while True:
            self._look_at_clock()
            try:
                if not await self.scan():
                    self._on_lost()
                    return
                self._is_failing = False
                await self._entry.tell()
            except StoreUnavailable as error:
                self._active_runs.metrics.store_failures += 1
                self._committer.failing = str(error)
                if not self._is_failing:
                    _log.error("The store fails, and is tried again every %s s: %s", self._interval_s, error)
                self._is_failing = True
            except Exception:  # noqa: BLE001 - whatever it is, the log tells it
                # Without this task the process would lose its lease, and nobody would know why.
                _log.exception("Looking at the store went wrong, and is tried again in %s s.", self._interval_s)
                self._is_failing = True
            if self._is_failing:
                keep_looking(self._loop, self._settles_s)
            await until_look(self._interval_s, self._look.wait())
            self._look.clear()

    def _look_at_clock(self) -> None:
        """If the clock was set, or the machine slept, runs in memory set their alarms by the new time."""
        before, self._ahead = self._ahead, self._clock() - self._loop.time()
        if abs(self._ahead - before) > _JUMP_S:
            for run in self._active_runs.runs.values():
                run.clock_changed()

    async def scan(self) -> bool:
        """Look once: the lease, what was stranded, missed messages, what needs a worker, what is due soon, what is old.

        False if the lease is lost: then nothing here is this process' own any more.
        """
        asked_at = self._active_runs.lease.now()
        if not await self._store.beat(self._active_runs.fence, self._lease_s):
            return False
        self._active_runs.lease.renewed(asked_at)
        await self._stored.commits_work()
        if self._is_failing:
            # What was asked for while the store failed may have happened: nothing that is ours shall be forgotten.
            for run_id in await self._store.owned(self._active_runs.fence):
                if run_id not in self._active_runs.runs:
                    self._active_runs.notify(run_id)
        if self._active_runs.retry_stranded():
            keep_looking(self._loop, self._settles_s)
        for run_id in await self._store.owned(self._active_runs.fence, with_messages=True):
            if run_id in self._active_runs.runs:
                self._found(run_id)  # the news of it may have been lost
        await self._active_runs.problems.look(self._clock())
        if not self._active_runs.is_safe:
            await self._find_work()
        await self._purge()
        return True

    async def _has_memory(self) -> bool:
        """Tell whether more runs may come into memory. While they may not, idle runs leave it."""
        memory = self._active_runs.memory
        if memory.look():
            self._has_more = False  # room that others leave is not enough
            if not self._is_short:
                _log.warning("%s Runs that wait leave memory.", memory.words)
            self._active_runs.relieve()
            await memory.tidy()
        memory.see(self._active_runs.runs)
        if self._is_short and not memory.look():
            _log.warning("There is enough memory again: runs are claimed and started.")
        self._is_short = memory.is_over
        return memory.has_room

    async def _find_work(self) -> None:
        """Recover what needs a worker, if there is memory for it, and set the alarm for what is due soon."""
        if await self._has_memory():
            self._active_runs.let_in(_BATCH)
            await self._claim()
        await self._set_alarms()

    def _found(self, run_id: str) -> None:
        """Wake a run that was found by looking."""
        keep_looking(self._loop, self._settles_s)
        self._active_runs.notify(run_id)

    async def _claim(self) -> None:
        """Claim what needs a worker: for all workflows at once, but one by one where `num_concurrent_runs` is set."""
        self._has_more = False
        codes = list(self._codes.items())
        with_room = tuple(name for name, code in codes if self._active_runs.admission.room_for(code))
        # In the transaction of the claims, which do not take suspects.
        trying = (
            self._committer.submit(TryRun(self._active_runs.fence, with_room, self._clock())) if with_room else None
        )
        unlimited = [(name, code) for name, code in codes if code.definition.limits.concurrent_runs is None]
        if unlimited:
            await self._claim_of(tuple(name for name, _ in unlimited), unlimited[0][1])
        for name, code in codes:
            if code.definition.limits.concurrent_runs is not None:
                await self._claim_of((name,), code)
        tried = await trying if trying is not None else []
        assert isinstance(tried, list)
        for run_id in tried:
            self._found(run_id)

    async def _claim_of(self, names: tuple[str, ...], code: Registration) -> None:
        """Recover runs for which there is as much room as for this code. Without any, one is tried, if others may
        leave for it.
        """
        while True:
            self._active_runs.memory.look()  # what was claimed just now may have taken much
            wanted = min(_BATCH, self._active_runs.admission.room_for(code) or int(self._active_runs.can_make_room))
            if not wanted:
                self._has_more = True
                for run_id in await self._active_runs.admission.children_without_place(code):
                    self._found(run_id)
                return
            found = await self._claimed(ClaimRuns(self._active_runs.fence, names, self._clock(), wanted))
            for run_id in found:
                self._found(run_id)
            if len(found) < wanted:
                return
            if wanted < _BATCH:
                self._has_more = True
                return

    async def _claimed(self, claim: ClaimRuns) -> list[str]:
        found = await self._committer.submit(claim)
        assert isinstance(found, list)
        return found

    async def retry_parked(self, name: str) -> None:
        """The code of a workflow has come: see whether it can go on with runs that are parked.

        In safe mode any run may be one that was cancelled, and can be ended now.
        """
        parked = None if self._active_runs.is_safe else True
        query = RunQuery(status="running", workflow=name, parked=parked, limit=_BATCH)
        while rows := await self._store.find(query):
            for row in rows:
                self._active_runs.notify(row.run_id)
            query = replace(query, after=(rows[-1].created_at, rows[-1].run_id))

    # -- timers of runs that are not in memory ------------------------------------------------------------------------

    def expect(self, run_id: str, due: float) -> None:
        """A run was released that has a timer; only those due soon are kept in mind."""
        if due <= self._clock() + 2 * self._interval_s:
            self._note_due(run_id, due)
            if self._alarm is None or due < self._alarm_at:
                self._arm()

    def _note_due(self, run_id: str, due: float) -> None:
        known = self._due.get(run_id)
        if known is None or due < known:
            self._due[run_id] = due
            heapq.heappush(self._soonest, (due, run_id))

    async def _set_alarms(self) -> None:
        horizon = self._clock() + 2 * self._interval_s
        for run_id, due in await self._store.timers_due(tuple(self._codes), horizon, 10 * _BATCH):
            if run_id not in self._due:
                self._note_due(run_id, due)
        self._arm()  # in any case: the clock may have jumped since
        if can_skip(self._loop):
            await self._look_in_time()

    async def _look_in_time(self) -> None:
        """On a virtual clock, set a timer for when the next run is due.

        The timer does nothing. Before it the clock makes a look, which finds the run and sets its alarm.
        """
        if self._distant is not None:
            self._distant.cancel()
            self._distant = None
        for _, due in await self._store.timers_due(tuple(self._codes), math.inf, 1):
            seconds = due - self._clock()
            if seconds > 2 * self._interval_s:  # else this look has set the alarm
                self._distant = self._loop.call_later(seconds, _nothing)

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        soonest = self._soonest
        while soonest and self._due.get(soonest[0][1]) != soonest[0][0]:
            heapq.heappop(soonest)  # it has an earlier entry, or has been notified
        if soonest:
            self._alarm_at = soonest[0][0]
            self._alarm = self._loop.call_later(max(0.0, self._alarm_at - self._clock()), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock()
        while self._soonest and self._soonest[0][0] <= now:
            due, run_id = heapq.heappop(self._soonest)
            if self._due.get(run_id) == due:
                del self._due[run_id]
                self._active_runs.notify(run_id)
        self._arm()

    async def _purge(self) -> None:
        """Delete entries that have expired, and ended runs that are older than they shall be.

        Of many only the first: before the next ones the lease is prolonged, and runs are looked after.
        """
        now = self._clock()
        if 0 <= now - self._purged_at < _PURGE_EVERY_S:
            return
        self._purged_at = now
        gone = await self._store.drop_expired(now, _PURGED_AT_ONCE)
        if max(gone, await self._purge_runs(now)) == _PURGED_AT_ONCE:
            self._purged_at = float("-inf")
            self.look_soon()

    async def _purge_runs(self, now: float) -> int:
        if self._retention_s is None:
            return 0
        gone = await self._committer.submit(PurgeRuns(ended_before=now - self._retention_s, limit=_PURGED_AT_ONCE))
        assert isinstance(gone, int)
        if gone:
            _log.info("%s ended runs were deleted: they were older than %s s.", gone, self._retention_s)
        return gone


def _nothing() -> None:
    pass

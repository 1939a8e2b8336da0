"""A store that goes wrong on purpose, the same way for the same seed.

    plan = FaultPlan(seed=7, fail_before=0.05, fail_after=0.05, slow=0.2, drop_news=0.3, crash_at=40)
    store = FaultyStore(MemoryStore(database), plan)

All of it could happen with a real database. Writes fail, or take place although the caller is told that they failed.
The disk is slow. Notifications come late, twice, in another order or not at all. A member sleeps past its lease. A
process stands still, or dies between two writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import msgspec

from loom.store.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.api.counts import WorkflowCounts
    from loom.store.changes import ChangeReader
    from loom.store.operations import Operation, Result
    from loom.store.ports import OwnedStore
    from loom.store.records import (
        Chunk,
        Entry,
        HeldRuns,
        Holder,
        InboxMessage,
        Member,
        MemberState,
        RunQuery,
        RunRow,
        StoredRun,
    )


class Crash(BaseException):
    """The death of the process. No program catches it, as none catches the end of its process."""


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities, from 0 to 1, of the things that go wrong. By default nothing does."""

    seed: int = 0
    fail_before: float = 0.0
    """A write fails, and nothing of it was written."""
    fail_after: float = 0.0
    """A write fails, but all of it was written: the caller cannot know."""
    slow: float = 0.0
    """A write takes up to `slow_s` seconds."""
    slow_s: float = 1.0
    fail_read: float = 0.0
    """A read fails."""
    slow_read: float = 0.0
    """A read takes up to `slow_read_s` seconds."""
    slow_read_s: float = 0.05
    drop_news: float = 0.0
    repeat_news: float = 0.0
    delay_news: float = 0.0
    """Notifications come up to `delay_s` seconds late, after later ones."""
    delay_s: float = 5.0
    shuffle_news: float = 0.0
    """The ids of one call come in another order."""
    lose_lease: float = 0.0
    """A beat is late by a lease and up to one more."""
    stall: float = 0.0
    """At a write the process stands still for one to three leases, and goes on as if nothing had been."""
    crash: float = 0.0
    """The process dies at a write: before it or after it, one as often as the other."""
    crash_at: int | None = None
    """The number of the write, from 1, at which the process dies; None: at none."""
    crash_after: bool = False
    """True if it dies after that write, False if before."""


_CALM = FaultPlan()


class FaultyStore:
    """A store around another one, in which things go wrong by a plan. `injected` counts them."""

    def __init__(self, inner: OwnedStore, plan: FaultPlan) -> None:
        self.inner = inner
        self.exclusive = inner.exclusive
        self.keyed = inner.keyed
        self.on_notification: Callable[[Sequence[str]], None] = _ignore
        self.injected: Counter[str] = Counter()
        self.writes = 0
        """Number of groups that were given to it."""
        self.crashed = False
        self.on_crash: Callable[[], None] = _nothing
        """Called once, at the moment of the crash."""
        self._plan = plan
        self._chance = Random(plan.seed)  # noqa: S311 - chance that can be repeated
        self._turn = asyncio.Lock()
        self._lease_s = 0.0
        self._stalled_until = float("-inf")
        inner.on_notification = self._hear

    def calm(self) -> None:
        """Stop all faults, so that a test can see whether everything comes to an end."""
        self._plan = _CALM

    def crash(self) -> None:
        """Let the process die now: nothing is read, written or heard any more."""
        if not self.crashed:
            self.crashed = True
            self.inner.on_notification = _ignore
            self.on_crash()

    def _happens(self, what: str, probability: float) -> bool:
        # A number is drawn in any case, so that one probability does not change what another one brings.
        happens = self._chance.random() < probability
        if happens:
            self.injected[what] += 1
        return happens

    def _living(self) -> OwnedStore:
        if self.crashed:
            raise Crash
        return self.inner

    def change_reader(self, after: str | None = None) -> ChangeReader:
        """See the port. Looks do not fail by the plan."""
        return self._living().change_reader(after)

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """See the port. The transaction may be slow, fail, seem to fail, or be the last one."""
        async with self._turn:
            await self._awake()
            plan, number = self._plan, self.writes + 1
            self.writes = number
            delay = self._chance.uniform(0.0, plan.slow_s)
            if self._happens("slow", plan.slow):
                await asyncio.sleep(delay)
            dies, late = self._chance.random() < plan.crash, self._chance.random() < 0.5  # noqa: PLR2004 - a coin
            dies, late = dies or number == plan.crash_at, plan.crash_after if number == plan.crash_at else late
            self._crash_if(dies and not late)
            fails, seems_to = self._happens("fail_before", plan.fail_before), self._chance.random() < plan.fail_after
            if fails:
                raise StoreUnavailable(f"Write {number} failed on purpose. Nothing was written.")
            results = await self._living().apply(group)
            self._crash_if(dies)
            self._stall()
            if seems_to:
                self.injected["fail_after"] += 1
                raise StoreUnavailable(f"Write {number} was lost from sight on purpose.", outcome_unknown=True)
            return results

    def _stall(self) -> None:
        length = self._lease_s * (1.0 + 2.0 * self._chance.random())
        if self._happens("stall", self._plan.stall):
            self._stalled_until = asyncio.get_running_loop().time() + length

    async def _awake(self) -> OwnedStore:
        """Return the inner store, once the process does not stand still any more."""
        left = self._stalled_until - asyncio.get_running_loop().time()
        if left > 0:
            await asyncio.sleep(left)
        return self._living()

    async def _reading(self) -> OwnedStore:
        """Return the inner store, for a read that may be slow or fail."""
        await self._awake()
        plan = self._plan
        if plan.slow_read:
            delay = self._chance.uniform(0.0, plan.slow_read_s)
            if self._happens("slow_read", plan.slow_read):
                await asyncio.sleep(delay)
        if plan.fail_read and self._happens("fail_read", plan.fail_read):
            raise StoreUnavailable("A read failed on purpose.")
        return self._living()

    def _crash_if(self, is_time: bool) -> None:
        if is_time:
            self.injected["crash"] += 1
            self.crash()
        self._living()

    def _hear(self, run_ids: Sequence[str]) -> None:
        plan, heard = self._plan, list(run_ids)
        delay = self._chance.uniform(0.0, plan.delay_s)
        if self._happens("shuffle_news", plan.shuffle_news):
            self._chance.shuffle(heard)
        is_repeated = self._happens("repeat_news", plan.repeat_news)
        is_late = self._happens("delay_news", plan.delay_news)
        if self._happens("drop_news", plan.drop_news):
            return
        loop = asyncio.get_running_loop()
        if is_late or is_repeated:
            loop.call_later(delay, self._tell, heard)
        if not is_late:
            self._tell(heard)

    def _tell(self, run_ids: list[str]) -> None:
        if not self.crashed:
            self.on_notification(run_ids)

    async def open(self) -> None:
        """See the port."""
        await self._living().open()

    async def close(self) -> None:
        """See the port. A process that has crashed does not take leave."""
        if not self.crashed:
            await self.inner.close()

    async def join(self, name: str, lease_s: float) -> Member:
        """See the port."""
        self._lease_s = lease_s
        return await (await self._awake()).join(name, lease_s)

    async def beat(self, fence: int, lease_s: float) -> bool:
        """See the port. Now and then the member sleeps past its lease before."""
        delay = lease_s * (1.0 + self._chance.random())
        if self._happens("lose_lease", self._plan.lose_lease):
            await asyncio.sleep(delay)
        return await (await self._awake()).beat(fence, lease_s)

    async def owned(self, fence: int, *, with_messages: bool = False) -> list[str]:
        """See the port."""
        return await (await self._reading()).owned(fence, with_messages=with_messages)

    async def holder(self, row: RunRow) -> Holder | None:
        """See the port."""
        return await (await self._reading()).holder(row)

    async def get(self, run_id: str) -> RunRow | None:
        """See the port."""
        return await (await self._reading()).get(run_id)

    async def find(self, query: RunQuery) -> list[RunRow]:
        """See the port."""
        return await (await self._reading()).find(query)

    async def load(self, run_id: str) -> StoredRun | None:
        """See the port."""
        return await (await self._reading()).load(run_id)

    async def export(self, run_id: str) -> StoredRun | None:
        """See the port."""
        return await (await self._reading()).export(run_id)

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        """See the port."""
        return await (await self._reading()).inbox(run_id, after)

    async def chunks(self, run_id: str, first_tick: int, limit: int) -> list[Chunk]:
        """See the port."""
        return await (await self._reading()).chunks(run_id, first_tick, limit)

    async def stream(self, run_id: str, cursor: int, limit: int) -> list[Chunk]:
        """See the port."""
        return await (await self._reading()).stream(run_id, cursor, limit)

    async def timers_due(self, workflows: tuple[str, ...], before: float, limit: int) -> list[tuple[str, float]]:
        """See the port."""
        return await (await self._reading()).timers_due(workflows, before, limit)

    async def next_timers(self, run_ids: Sequence[str]) -> dict[str, float]:
        """See the port."""
        return await (await self._reading()).next_timers(run_ids)

    async def descendants(self, run_id: str, limit: int) -> int:
        """See the port."""
        return await (await self._reading()).descendants(run_id, limit)

    async def document(self, digest: str) -> bytes | None:
        """See the port."""
        return await (await self._reading()).document(digest)

    async def save_document(self, digest: str, data: bytes) -> None:
        """See the port."""
        await (await self._awake()).save_document(digest, data)

    async def put_entry(
        self, kind: str, key: str, data: bytes, *, expires_at: float | None = None, expect: int | None = None
    ) -> int | None:
        """See the port."""
        return await (await self._awake()).put_entry(kind, key, data, expires_at=expires_at, expect=expect)

    async def entry(self, kind: str, key: str) -> Entry | None:
        """See the port."""
        return await (await self._reading()).entry(kind, key)

    async def entries(self, kind: str, after: str = "", limit: int = 100) -> list[Entry]:
        """See the port."""
        return await (await self._reading()).entries(kind, after, limit)

    async def drop_entry(self, kind: str, key: str, expect: int | None = None) -> bool:
        """See the port."""
        return await (await self._awake()).drop_entry(kind, key, expect)

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        """See the port."""
        return await (await self._awake()).drop_expired(now, limit)

    async def counts(self) -> dict[str, int]:
        """See the port."""
        return await (await self._reading()).counts()

    async def members(self) -> list[MemberState]:
        """See the port."""
        return await (await self._reading()).members()

    async def workflow_counts(self) -> list[WorkflowCounts]:
        """See the port."""
        return await (await self._reading()).workflow_counts()

    async def held_counts(self) -> dict[str, HeldRuns]:
        """See the port."""
        return await (await self._reading()).held_counts()

    async def size(self) -> int | None:
        """See the port."""
        return await (await self._reading()).size()


def _ignore(_run_ids: Sequence[str]) -> None:
    """Drop a notification."""


def _nothing() -> None:
    """Do nothing at a crash."""

"""Entries that have expired go while somebody works on the store."""

from __future__ import annotations

import asyncio

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

COUNT = 450


class Nothing(Workflow):
    @step
    async def end(self, _ev: StartEvent) -> StopEvent:
        return StopEvent()


async def _expire() -> None:
    database = MemoryDatabase()
    store = MemoryStore(database)
    async with loom.connect(store) as runtime:
        runtime.register(Nothing(), name="nothing")
        await runtime.ready()
        now = runtime.now()
        for number in range(COUNT):
            await store.put_entry("answer", f"{number}", b"", expires_at=now + 100.0)
        await store.put_entry("key", "for good", b"")
        await asyncio.sleep(300)
        # All of them are gone already, more than one look takes at a time.
        assert await store.drop_expired(now + 1000.0) == 0
        assert await store.entry("key", "for good") is not None


def test_expired_entries_are_dropped_now_and_then() -> None:
    run_virtual(_expire())


class Slow(MemoryStore):
    """A store that takes its time to drop something."""

    async def drop_expired(self, now: float, limit: int = 1000) -> int:
        await asyncio.sleep(limit / 200)
        return await super().drop_expired(now, limit)


async def _expire_many() -> int:
    store = Slow(MemoryDatabase())
    async with loom.connect(store, lease=15.0) as runtime:
        runtime.register(Nothing(), name="nothing")
        await runtime.ready()
        now = runtime.now()
        for number in range(6000):
            await store.put_entry("answer", f"{number}", b"", expires_at=now + 10.0)
        for _ in range(4):  # in one go, the looks in between would be left out
            await asyncio.sleep(60)
        assert await MemoryStore.drop_expired(store, now + 1000.0) == 0
        return runtime.metrics.lease_losses


def test_many_expired_entries_do_not_cost_the_lease() -> None:
    assert run_virtual(_expire_many()) == 0


async def _end_many() -> int:
    async with loom.connect(MemoryStore(MemoryDatabase()), retention=100.0) as runtime:
        runtime.register(Nothing(), name="nothing")
        for number in range(2100):
            await runtime.start("nothing", run_id=f"{number}")
        await asyncio.sleep(170)
        return sum([1 async for _ in runtime.list()])


def test_all_runs_that_are_too_old_go_however_many_they_are() -> None:
    assert run_virtual(_end_many()) == 0

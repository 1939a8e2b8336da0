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

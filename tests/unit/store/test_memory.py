"""What is particular to the store in memory. What every store does is in tests/conformance/stores."""

from __future__ import annotations

import asyncio

import pytest

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import CommitRun, PostMessage, StartRun
from loom.store.records import Chunk, RunHead
from loom.testing import run_virtual


async def opened(database: MemoryDatabase | None = None) -> MemoryStore:
    store = MemoryStore(database)
    await store.open()
    return store


def commit(fence: int, ticks: int, chunk: Chunk) -> CommitRun:
    return CommitRun("r", fence, RunHead("running", ticks, 0, 1.0), chunk=chunk)


def test_leases_follow_the_date_of_the_event_loop() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        crashed, alive = await opened(database), await opened(database)
        old = (await crashed.join("crashed", 30.0)).fence
        await crashed.apply([StartRun("r", "w", b"", 0.0, owner=old)])
        new = (await alive.join("alive", 60.0)).fence
        await asyncio.sleep(29.0)
        assert await alive.beat(new, 60.0)
        row = await alive.get("r")
        assert row is not None
        assert row.owner == old
        await asyncio.sleep(1.0)
        assert await alive.beat(new, 60.0)
        row = await alive.get("r")
        assert row is not None
        assert row.owner is None
        assert not await crashed.beat(old, 30.0)

    run_virtual(main())


def test_a_store_that_was_thrown_away_leaves_its_database_as_it_was() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        crashed = await opened(database)
        member = await crashed.join("crashed", 10.0)
        await crashed.apply([StartRun("r", "w", b"in", 0.0, owner=member.fence)])
        del crashed
        await asyncio.sleep(100.0)
        store = await opened(database)
        again = await store.join("next", 10.0)
        # Nobody has lived since the only member joined, as far as anybody knows.
        assert (again.fence, again.downtime) == (member.fence + 1, 100.0)
        row = await store.get("r")
        assert row is not None
        assert row.owner is None

    run_virtual(main())


async def test_databases_are_apart() -> None:
    one, other = await opened(), await opened()
    await one.apply([StartRun("r", "w", b"", 0.0)])
    assert await other.get("r") is None


async def test_before_open_everything_is_refused() -> None:
    store = MemoryStore()
    with pytest.raises(StoreUnavailable):
        await store.apply([StartRun("r", "w", b"", 0.0)])
    with pytest.raises(StoreUnavailable):
        await store.get("r")


async def test_a_chunk_that_does_not_follow_is_refused() -> None:
    store = await opened()
    fence = (await store.join("m", 60.0)).fence
    await store.apply([StartRun("r", "w", b"", 0.0, owner=fence)])
    await store.apply([commit(fence, 2, Chunk(0, 2, 0, 0, b""))])
    for first_tick in (0, 1, 3):
        with pytest.raises(StoreError, match="does not follow"):
            await store.apply([PostMessage("r", b"", 0.0), commit(fence, 9, Chunk(first_tick, 1, 0, 0, b""))])
    assert await store.inbox("r", 0) == []


async def test_a_reader_keeps_its_moment() -> None:
    store = await opened()
    await store.apply([StartRun("r", "w", b"", 0.0)])
    before = store.database.tables
    await store.apply([PostMessage("r", b"", 0.0), StartRun("s", "w", b"", 0.0)])
    assert list(before.runs) == ["r"]
    assert not before.runs["r"].inbox


async def test_a_listener_that_has_closed_hears_nothing_more() -> None:
    database = MemoryDatabase()
    heard: list[str] = []
    store, other = await opened(database), await opened(database)
    other.on_notification = heard.extend
    await store.apply([StartRun("r", "w", b"", 0.0)])
    await other.close()
    await asyncio.sleep(0)
    assert heard == []

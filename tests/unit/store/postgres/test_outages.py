"""A server that goes away: nothing that was acknowledged is lost, nothing is doubled, and the store comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from postgres_server import OwnServer, own_server, with_fresh_schema

from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import CommitRun, PostMessage, StartRun
from loom.store.postgres import PostgresStore
from loom.store.records import Chunk, RunHead

Opener = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture(scope="module")
def server() -> Iterator[OwnServer]:
    with own_server() as server:
        yield server


@pytest.fixture
def url(server: OwnServer) -> str:
    return with_fresh_schema(server.url)


class Writer:
    """Commits tick after tick of one run, and after a failure finds out where it stands."""

    def __init__(self, store: PostgresStore, run_id: str, fence: int) -> None:
        self.store = store
        self.run_id = run_id
        self.fence = fence
        self.acknowledged = 0

    async def work(self, until: asyncio.Event) -> None:
        tick = 0
        while not until.is_set():
            commit = CommitRun(
                self.run_id, self.fence, RunHead("running", tick + 1, 0, 1.0), chunk=Chunk(tick, 1, 0, 0, b"%d" % tick)
            )
            try:
                assert await self.store.apply([commit]) == [True]
                tick += 1
                self.acknowledged = tick
            except StoreUnavailable:
                tick = await self._stored()

    async def _stored(self) -> int:
        while True:
            try:
                row = await self.store.get(self.run_id)
            except StoreUnavailable:
                await asyncio.sleep(0.02)
                continue
            assert row is not None
            return row.head.ticks


async def test_a_server_stopped_hard_under_load(server: OwnServer, opened: Opener) -> None:
    stores = [await opened() for _ in range(3)]
    writers: list[Writer] = []
    for number, store in enumerate(stores):
        fence = (await store.join("m", 3600.0)).fence
        run_id = f"r{number}"
        await store.apply([StartRun(run_id, "w", b"", 1.0, owner=fence)])
        writers.append(Writer(store, run_id, fence))
    done = asyncio.Event()
    tasks = [asyncio.create_task(writer.work(done)) for writer in writers]

    async def progress(by: int) -> None:
        goals = [writer.acknowledged + by for writer in writers]
        while any(writer.acknowledged < goal for writer, goal in zip(writers, goals, strict=True)):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)

    async with asyncio.timeout(100):
        await progress(5)
        for _ in range(3):
            await asyncio.to_thread(server.stop_hard)
            await asyncio.to_thread(server.start)
            await progress(5)
        done.set()
        await asyncio.gather(*tasks)

    for writer in writers:
        run = await writer.store.export(writer.run_id)
        assert run is not None
        assert [chunk.first_tick for chunk in run.chunks] == list(range(run.row.head.ticks))
        assert [chunk.data for chunk in run.chunks] == [b"%d" % tick for tick in range(run.row.head.ticks)]
        assert run.row.head.ticks >= writer.acknowledged


async def test_while_the_server_is_away_every_call_says_so_and_the_next_one_heals(
    server: OwnServer, opened: Opener
) -> None:
    heard: asyncio.Queue[Sequence[str]] = asyncio.Queue()
    store = await opened(heard.put_nowait)
    other = await opened()
    fence = (await store.join("m", 3600.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    await asyncio.to_thread(server.stop_hard)
    try:
        for call in (
            store.get("r"),
            store.beat(fence, 60.0),
            store.apply([PostMessage("r", b"", 1.0)]),
            store.apply([CommitRun("r", fence, RunHead("running", 1, 0, 1.0))]),
        ):
            with pytest.raises(StoreUnavailable, match=store.address.place):
                await call
        # Connecting has failed, so nothing can have been written.
        with pytest.raises(StoreUnavailable, match="Nothing was written"):
            await store.apply([PostMessage("r", b"", 1.0)])
    finally:
        await asyncio.to_thread(server.start)

    assert await store.apply([PostMessage("r", b"again", 1.0)])
    assert await store.beat(fence, 60.0) is True
    assert [message.data for message in await store.inbox("r", 0)] == [b"again"]
    # The listener is back too: first it says that something may have been missed, then it hears others.
    async with asyncio.timeout(60):
        while await heard.get() != []:
            pass
        await other.apply([StartRun("from-other", "w", b"", 1.0)])
        while await heard.get() != ["from-other"]:
            pass


async def test_a_store_can_be_closed_while_the_server_is_away(server: OwnServer, url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.join("m", 3600.0)
    await asyncio.to_thread(server.stop_hard)
    try:
        await store.close()
        with pytest.raises(StoreError, match="not open"):
            await store.get("r")
    finally:
        await asyncio.to_thread(server.start)

"""What stores hear of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from loom.store.operations import CommitRun, PostMessage, StartRun
from loom.store.postgres import PostgresStore
from loom.store.records import RunHead

Opener = Callable[..., Awaitable[PostgresStore]]


class Ear:
    """Keeps what it hears, call by call."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[list[str]] = asyncio.Queue()

    def __call__(self, run_ids: Sequence[str]) -> None:
        self.calls.put_nowait(list(run_ids))

    async def next(self) -> list[str]:
        async with asyncio.timeout(60):
            return await self.calls.get()


async def test_another_store_hears_of_starts_mail_and_ends_with_one_call_per_group(opened: Opener) -> None:
    ear = Ear()
    await opened(ear)
    writer = await opened()
    fence = (await writer.join("m", 60.0)).fence
    await writer.apply([StartRun("a", "w", b"", 1.0), StartRun("b", "w", b"", 1.0), PostMessage("a", b"", 1.0)])
    assert sorted(await ear.next()) == ["a", "b"]
    await writer.apply([StartRun("mine", "w", b"", 1.0, owner=fence)])
    await writer.apply([CommitRun("mine", fence, RunHead("completed", 1, 0, 1.0))])
    assert await ear.next() == ["mine"]


async def test_what_a_store_wrote_itself_it_hears_once_and_at_once(opened: Opener) -> None:
    ear, other_ear = Ear(), Ear()
    store = await opened(ear)
    other = await opened(other_ear)
    await store.apply([StartRun("a", "w", b"", 1.0)])
    assert ear.calls.get_nowait() == ["a"]
    # Its own notification came before this one, and was not told a second time.
    assert await other_ear.next() == ["a"]
    await other.apply([StartRun("b", "w", b"", 1.0)])
    assert await ear.next() == ["b"]


async def test_stores_in_other_schemas_hear_nothing(opened: Opener, url: str) -> None:
    ear = Ear()
    store = await opened(ear)
    stranger = await opened(at=f"{url}x")
    await stranger.apply([StartRun("theirs", "w", b"", 1.0)])
    friend = await opened()
    await friend.apply([StartRun("ours", "w", b"", 1.0)])
    assert await ear.next() == ["ours"]
    assert await store.get("theirs") is None


async def test_a_big_group_is_heard_whole(opened: Opener) -> None:
    ear = Ear()
    await opened(ear)
    writer = await opened()
    run_ids = [f"a-rather-long-id-of-a-run-{number:05}" for number in range(1000)]
    await writer.apply([StartRun(run_id, "w", b"", 1.0) for run_id in run_ids])
    heard: list[str] = []
    while len(heard) < len(run_ids):
        heard += await ear.next()
    assert sorted(heard) == run_ids

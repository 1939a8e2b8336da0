"""One group is one transaction, in order; and everybody hears of what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from applicable import not_on
from store_databases import Database
from store_samples import Owner, do, exported, messages_of, post, start, started

from loom.store.errors import StoreUnavailable
from loom.store.operations import ClaimRun, CommitRun, ImportRun, ReleaseRun, Started, StartRun
from loom.store.ports import Store
from loom.store.records import RunQuery, Snapshot

# --- groups ----------------------------------------------------------------------------------------------------------


async def test_an_empty_group_does_nothing(store: Store) -> None:
    assert await store.apply([]) == []


async def test_operations_of_one_group_see_each_other(store: Store, fence: int) -> None:
    run = Owner(store, "r", fence)
    results = await store.apply(
        [
            start("r"),
            start("r", "again"),
            ClaimRun("r", fence),
            run.next(events=1),
            post("r", b"1"),
            run.next(events=1),
            ReleaseRun("r", fence),
            run.next(head={"status": "completed"}),
            post("r", b"2"),
            run.next(),
        ]
    )
    assert results[:4] == [Started(True), Started(False, "w", b"input of r"), True, True]
    assert results[5:8] == [True, False, True]
    assert results[8].outcome == "finished"
    assert results[9] is False
    stored = await exported(store)
    assert [chunk.first_tick for chunk in stored.chunks] == [0, 1, 2]
    assert stored.row.head.status == "completed"


async def test_commits_of_many_runs_in_one_group(store: Store, fence: int) -> None:
    owners = [await started(store, f"r{number}", fence) for number in range(50)]
    strangers = {7, 23}
    for number in strangers:
        owners[number].fence += 1000
    for _ in range(2):
        results = await store.apply([owner.next(ticks=2, events=1) for owner in owners])
        assert results == [number not in strangers for number in range(50)]
    for number, owner in enumerate(owners):
        stored = await owner.everything()
        assert len(stored.chunks) == (0 if number in strangers else 2)
        assert all(chunk.data.startswith(f"r{number}:".encode()) for chunk in stored.chunks)


def _broken(name: str) -> Any:
    broken: Any = object()
    if name == "no operation":
        return broken
    if name == "start":
        return StartRun("broken", "w", broken, 1.0)
    return CommitRun("r", 0, broken)


@not_on(
    "memory",
    "encrypted",
    when=lambda given: given["name"] != "no operation",
    reason="Everything can be kept in memory.",
)
@pytest.mark.parametrize("name", ["no operation", "start", "import"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_group_that_fails_changes_nothing(
    database: Database, store: Store, owner: Owner, name: str, place: int
) -> None:
    broken = _broken(name)
    if name == "import":
        stored = await exported(store)
        from msgspec.structs import replace

        broken = ImportRun(replace(stored, row=replace(stored.row, run_id="i"), snapshot=Snapshot(0, broken)))
    await owner.commit()
    before, ticks = await exported(store), owner.ticks
    group = [start("new"), owner.next(sent=(start("child"), post("r")))]
    group.insert(place, broken)
    with pytest.raises(Exception):  # noqa: B017, PT011 - what it raises for nonsense is its own choice
        await store.apply(group)
    assert await exported(store) == before
    assert [row.run_id for row in await store.find(RunQuery())] == ["r"]
    # And it works on.
    owner.ticks = ticks
    assert await owner.commit() is True


async def test_groups_at_the_same_time_are_each_whole(database: Database, store: Store) -> None:
    stores = [store, await database.open()]
    await do(store, start("r"))

    async def post_pairs(one: Store, name: bytes) -> None:
        for number in range(10):
            text = name + str(number).encode()
            await one.apply([post("r", text + b"a"), post("r", text + b"b")])

    await asyncio.gather(*(post_pairs(one, name) for one in stores for name in (id(one).to_bytes(8, "big"), b"x")))
    messages = await messages_of(store)
    assert len(messages) == 80
    for first, second in zip(messages[::2], messages[1::2], strict=True):
        assert (first[:-1], first[-1:], second[-1:]) == (second[:-1], b"a", b"b")


async def test_groups_of_one_process_keep_their_order(store: Store) -> None:
    await do(store, start("r"))
    posts = [asyncio.ensure_future(store.apply([post("r", str(number).encode())])) for number in range(50)]
    await asyncio.gather(*posts)
    assert await messages_of(store) == [str(number).encode() for number in range(50)]


async def test_one_start_of_many_at_once_wins(database: Database, store: Store) -> None:
    stores = [store, await database.open(), await database.open()]
    starts = [do(one, start("r", f"w{number}")) for number, one in enumerate(stores * 4)]
    results = await asyncio.gather(*starts)
    assert sum(result.created for result in results) == 1
    row = await store.get("r")
    assert row is not None
    others = {result.workflow for result in results if not result.created}
    assert others == {row.workflow}


async def test_one_post_of_an_event_id_at_once_wins(database: Database, store: Store) -> None:
    await do(store, start("r"))
    stores = [store, await database.open()]
    results = await asyncio.gather(*(do(one, post(event_id="e")) for one in stores * 6))
    assert sorted(result.outcome for result in results) == ["posted"] + ["repeated"] * 11
    assert len(await messages_of(store)) == 1


async def test_release_and_mail_at_once_lose_nothing(database: Database, store: Store, fence: int) -> None:
    """Either the release sees the mail and is refused, or the mail is there for whoever claims the run next."""
    other = await database.open()
    for number in range(20):
        run = await started(store, f"r{number}", fence)
        await run.commit()
        operations = [do(store, ReleaseRun(run.run_id, fence)), do(other, post(run.run_id))]
        if number % 2:
            operations.reverse()
        await asyncio.gather(*operations)
        row = await store.get(run.run_id)
        assert row is not None
        assert await messages_of(store, run.run_id) == [b"mail"]


async def test_reads_see_whole_groups(database: Database, store: Store, owner: Owner) -> None:
    reader = await database.open()
    done = False

    async def write() -> None:
        nonlocal done
        for _ in range(30):
            await owner.commit(ticks=2, events=1)
        done = True

    async def read() -> None:
        while not done:
            stored = await reader.export("r")
            assert stored is not None
            assert sum(chunk.ticks for chunk in stored.chunks) == stored.row.head.ticks
            await asyncio.sleep(0)

    await asyncio.gather(write(), read())


# --- open and close --------------------------------------------------------------------------------------------------


async def test_what_was_applied_is_there_for_the_next_store(database: Database) -> None:
    store = await database.open()
    owner = await started(store, "r", (await store.join("m", 60.0)).fence)
    await owner.commit(ticks=3, events=2, snapshot=Snapshot(3, b"s"))
    await do(store, post(event_id="e"))
    before = await exported(store)
    await store.close()
    after = await exported(await database.open())
    assert after.row.head == before.row.head
    assert (after.chunks, after.snapshot, after.inbox) == (before.chunks, before.snapshot, before.inbox)
    assert after.event_ids == ("e",)


async def test_a_closed_store_refuses_and_can_be_closed_again(database: Database) -> None:
    store = await database.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.apply([start("r")])


async def test_closing_finishes_what_was_accepted(database: Database) -> None:
    store = await database.open()
    accepted = asyncio.ensure_future(store.apply([start("r")]))
    await asyncio.sleep(0)
    await store.close()
    assert await accepted == [Started(True)]
    assert await (await database.open()).get("r") is not None


# --- news ------------------------------------------------------------------------------------------------------------


class Listener:
    """Collects news, and waits for some of them."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, run_ids: Sequence[str]) -> None:
        self.heard.extend(run_ids)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def test_news_of_ones_own_operations(database: Database) -> None:
    listener = Listener()
    store = await database.open(listener)
    member = await store.join("m", 60.0)
    await do(store, start("r"))
    await listener.until(lambda: "r" in listener.heard)
    listener.heard.clear()
    await do(store, post("r"))
    await listener.until(lambda: "r" in listener.heard)
    listener.heard.clear()
    await do(store, ClaimRun("r", member.fence))
    owner = Owner(store, "r", member.fence)
    await owner.commit(sent=(start("child"), post("child")))
    await listener.until(lambda: "child" in listener.heard)
    await do(store, start("told", owner=member.fence, message=post("told")))
    await listener.until(lambda: "told" in listener.heard)
    listener.heard.clear()
    await owner.end()
    await listener.until(lambda: "r" in listener.heard)


async def test_news_of_ones_own_are_there_when_apply_returns_or_in_the_next_turn(database: Database) -> None:
    listener = Listener()
    store = await database.open(listener)
    await do(store, start("r"))
    await asyncio.sleep(0)
    assert "r" in listener.heard


async def test_no_news_of_what_was_refused(database: Database) -> None:
    listener = Listener()
    store = await database.open(listener)
    await do(store, start("r"))
    await do(store, post("r", event_id="e"))
    await listener.until(lambda: "r" in listener.heard)
    listener.heard.clear()
    await store.apply([start("r"), post("nobody"), post("r", event_id="e")])
    await do(store, start("last"))
    await listener.until(lambda: "last" in listener.heard)
    assert "nobody" not in listener.heard


async def test_a_member_hears_what_others_post_and_start(database: Database) -> None:
    listener = Listener()
    engine = await database.open(listener)
    fence = (await engine.join("engine", 60.0)).fence
    await started(engine, "r", fence)
    client = await database.open()
    await do(client, post("r"))
    await listener.until(lambda: "r" in listener.heard)
    await do(client, start("s"))
    await listener.until(lambda: "s" in listener.heard)


async def test_what_is_heard_is_already_there(database: Database) -> None:
    engine_news: asyncio.Queue[str] = asyncio.Queue()
    engine = await database.open(lambda run_ids: [engine_news.put_nowait(run_id) for run_id in run_ids] and None)
    await engine.join("engine", 60.0)
    client = await database.open()
    await do(client, start("r"))
    async with asyncio.timeout(60):
        while await engine_news.get() != "r":
            pass
    assert await engine.get("r") is not None

"""What is particular to writing to PostgreSQL."""

from __future__ import annotations

import asyncio

import asyncpg
import msgspec
import pytest

from loom.store.errors import CorruptRecord, StoreError
from loom.store.operations import CommitRun, PostMessage, StartRun
from loom.store.postgres import PostgresStore
from loom.store.postgres.transactions import payloads
from loom.store.records import Chunk, RunHead, Snapshot

HEAD = RunHead("running", 1, 0, 2.0)


async def change(store: PostgresStore, statement: str) -> None:
    address = store.address
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    await connection.execute(statement)
    await connection.close()


async def owned_run(store: PostgresStore, run_id: str = "r") -> int:
    fence = (await store.join("m", 60.0)).fence
    await store.apply([StartRun(run_id, "w", b"", 1.0, owner=fence)])
    return fence


async def test_a_damaged_chunk_is_named(store: PostgresStore) -> None:
    fence = await owned_run(store)
    await store.apply([CommitRun("r", fence, HEAD, chunk=Chunk(0, 1, 0, 0, b"good"), snapshot=Snapshot(0, b"good"))])
    await change(store, "UPDATE chunks SET data = 'evil'")
    for read in (store.load("r"), store.export("r"), store.chunks("r", 0, 10)):
        with pytest.raises(CorruptRecord, match="Run 'r': the chunk from tick 0"):
            await read
    await change(store, "UPDATE snapshots SET data = 'evil'")
    with pytest.raises(CorruptRecord, match="Run 'r': the snapshot"):
        await store.load("r")


@pytest.mark.parametrize("extra", [(), (PostMessage("r", b"", 1.0),)], ids=["plain", "mixed"])
async def test_a_commit_that_was_written_already_is_not_written_twice(
    store: PostgresStore, extra: tuple[PostMessage, ...]
) -> None:
    fence = await owned_run(store)
    await owned_run(store, "other")
    commit = CommitRun("r", fence, HEAD, chunk=Chunk(0, 1, 0, 0, b"tick"))
    assert await store.apply([commit]) == [True]
    before = await store.export("r")
    fresh = CommitRun("other", fence, HEAD, chunk=Chunk(0, 1, 0, 0, b"tick"))
    with pytest.raises(StoreError, match="does not follow"):
        await store.apply([fresh, commit, *extra])
    assert await store.export("r") == before
    other = await store.export("other")
    assert other is not None
    assert other.chunks == ()


async def test_words_for_people_may_hold_anything(store: PostgresStore) -> None:
    fence = await owned_run(store)
    strange = "nul \x00 and half a pair \ud800"
    head = msgspec.structs.replace(HEAD, parked=strange, error=strange)
    assert await store.apply([CommitRun("r", fence, head)]) == [True]
    row = await store.get("r")
    assert row is not None
    assert (row.head.parked, row.head.error) == (strange, strange)


@pytest.mark.parametrize("run_id", ["nul \x00", "half \ud800"])
async def test_an_id_that_text_cannot_hold_is_refused_alone(store: PostgresStore, run_id: str) -> None:
    with pytest.raises(StoreError, match=r"cannot be stored.*Nothing was written"):
        await store.apply([StartRun("good", "w", b"", 1.0), StartRun(run_id, "w", b"", 1.0)])
    assert await store.get("good") is None
    await store.apply([StartRun("good", "w", b"", 1.0)])


async def test_a_caller_that_is_cancelled_leaves_the_store_usable(store: PostgresStore) -> None:
    fence = await owned_run(store)
    for steps in range(1, 12):
        task = asyncio.create_task(store.apply([PostMessage("r", b"x", 1.0), StartRun(f"s{steps}", "w", b"", 1.0)]))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await store.apply([CommitRun("r", fence, HEAD)]) == [True]
    # Each group was written as a whole or not at all.
    started = [f"s{steps}" for steps in range(1, 12) if await store.get(f"s{steps}") is not None]
    assert len(await store.inbox("r", 0)) == len(started)


def test_notifications_are_small_and_whole() -> None:
    run_ids = [f"run-{number}" * 20 for number in range(500)]
    found = payloads(run_ids)
    assert all(len(payload.encode()) < 8000 for payload in found)
    assert [run_id for payload in found for run_id in msgspec.json.decode(payload)] == run_ids
    assert len(found) < 20


def test_an_id_that_is_too_long_for_a_notification_means_look_at_everything() -> None:
    assert payloads(["a", "x" * 9000, "b"]) == ["[]", '["a","b"]']


async def test_a_commit_of_a_busy_run_changes_no_index(store: PostgresStore) -> None:
    """Else each of them would add an entry to every index of runs: the update would not stay within its page."""
    await owned_run(store)
    address = store.address
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    count = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'runs' AND schemaname = $1"
    try:
        async with connection.transaction():
            for _ in range(10):
                await connection.execute("UPDATE runs SET ticks = ticks + 1, updated_at = updated_at + 1")
            assert tuple(await connection.fetchrow(count, address.schema)) == (10, 10)
            await connection.execute("UPDATE runs SET needs_worker = false, updated_at = updated_at + 1")
            assert tuple(await connection.fetchrow(count, address.schema)) == (11, 10)
    finally:
        await connection.close()

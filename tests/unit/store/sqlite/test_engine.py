"""The one engine of a file: its lock, its fence, its life; and the processes beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from loom.store.errors import StoreLocked, StoreUnavailable
from loom.store.operations import ClaimRun, PostMessage, StartRun
from loom.store.sqlite import SqliteStore


def in_another_process(path: Path, body: str) -> subprocess.Popen[str]:
    """Run the body of an async function with an open `store`; its first line of output tells that it got there."""
    program = f"""
import asyncio, sys
from loom.store.operations import *
from loom.store.sqlite import SqliteStore
async def main():
    store = SqliteStore({str(path)!r})
    await store.open()
{textwrap.indent(textwrap.dedent(body), "    ")}
    await store.close()
asyncio.run(main())
"""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


async def test_a_second_engine_is_told_who_the_first_is(store: SqliteStore, open_store, path: Path) -> None:
    await store.join("the first", 10.0)
    second = await open_store()
    with pytest.raises(StoreLocked, match=f"the first, process {os.getpid()} on .*, since ") as caught:
        await second.join("the second", 10.0)
    assert str(path) in str(caught.value)
    assert "other processes may read" in str(caught.value)
    # Beside the engine it can write and read.
    assert (await second.apply([StartRun("r", "w", b"", 1.0)]))[0].created
    assert (await second.get("r")).run_id == "r"


@pytest.mark.parametrize("first", ["real", "link"])
async def test_a_symbolic_link_leads_to_the_same_place(path: Path, tmp_path: Path, first: str) -> None:
    """By a link to the file, by one in another folder, and by a folder that is a link."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path, target_is_directory=True)
    names = [path, tmp_path / "link.db", tmp_path / "elsewhere" / "link.db", tmp_path / "folder" / path.name]
    for link in names[1:3]:
        link.symlink_to(path)
    stores = [SqliteStore(name) for name in (names if first == "real" else names[::-1])]
    try:
        for store in stores:
            await store.open()
        await stores[0].join("the first", 10.0)
        for other in stores[1:]:
            with pytest.raises(StoreLocked, match="the first, process"):
                await other.join("the second", 10.0)
        assert (await stores[1].apply([StartRun("r", "w", b"", 1.0)]))[0].created
        assert (await stores[-1].get("r")).run_id == "r"
    finally:
        for store in stores:
            await store.close()
    assert (tmp_path / "runs.db.lock").exists()
    assert not (tmp_path / "link.db.lock").exists()


async def test_a_file_with_two_names_is_refused(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    os.link(path, tmp_path / "second.db")
    refusal = r"the file has 2 names \(hard links\), and processes that open it by different ones would damage it"
    for name in (path, tmp_path / "second.db"):
        with pytest.raises(StoreUnavailable, match=refusal):
            await SqliteStore(name).open()
    with pytest.raises(StoreUnavailable, match=refusal):
        await store.join("engine", 10.0)  # it was open before the second name was made
    (tmp_path / "second.db").unlink()
    assert (await store.join("engine", 10.0)).fence == 1


async def test_the_place_is_free_again_after_close(store: SqliteStore, open_store) -> None:
    first = await store.join("the first", 10.0)
    second = await open_store()
    await store.close()
    assert (await second.join("the second", 10.0)).fence > first.fence


async def test_an_engine_that_is_closed_owns_nothing(store: SqliteStore, open_store) -> None:
    fence = (await store.join("engine", 10.0)).fence
    await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
    await store.close()
    assert (await (await open_store()).get("r")).owner is None


async def test_a_killed_engine_leaves_the_place_and_its_runs(store: SqliteStore, path: Path) -> None:
    body = """
        fence = (await store.join("doomed", 10.0)).fence
        await store.apply([StartRun("r", "w", b"", 1.0, owner=fence)])
        print(fence, flush=True)
        await asyncio.sleep(60)
    """
    with in_another_process(path, body) as process:
        old_fence = int(await asyncio.to_thread(process.stdout.readline))
        with pytest.raises(StoreLocked, match=f"doomed, process {process.pid}"):
            await store.join("heir", 10.0)
        process.kill()
        process.wait()
    assert (await store.get("r")).owner == old_fence
    fence = (await store.join("heir", 10.0)).fence
    assert fence > old_fence
    assert await store.apply([ClaimRun("r", fence)]) == [True]


async def test_downtime_is_the_time_between_engines(open_store) -> None:
    now = 1000.0

    async def engine() -> SqliteStore:
        return await open_store(clock=lambda: now)

    first = await engine()
    member = await first.join("first", 10.0)
    assert member.downtime == 0.0
    now = 1010.0
    assert await first.beat(member.fence, 10.0)
    now = 1015.0
    await first.close()
    now = 1115.0
    second = await engine()
    assert (await second.join("second", 10.0)).downtime == 100.0
    now = 1120.0
    await second.beat(member.fence + 1, 10.0)
    # As if it were killed: the last that was known of it is its beat.
    second._fence = None
    now = 1130.0
    await second.close()
    assert (await (await engine()).join("third", 10.0)).downtime == 110.0


async def test_a_clock_that_was_set_back_makes_no_negative_downtime(open_store) -> None:
    first = await open_store(clock=lambda: 1000.0)
    await first.join("first", 10.0)
    await first.close()
    second = await open_store(clock=lambda: 900.0)
    assert (await second.join("second", 10.0)).downtime == 0.0


def sizes(path: Path) -> tuple[int, int]:
    return path.stat().st_size, Path(f"{path}-wal").stat().st_size


async def test_commits_do_not_lengthen_the_log(store: SqliteStore, path: Path) -> None:
    """Each would cost the file system a second write."""
    await store.join("engine", 10.0)
    before = sizes(path)
    assert before[1] > 4_000_000
    for number in range(30):
        await store.apply([StartRun(f"r{number}", "w", b"x" * 2000, 1.0)])
    assert sizes(path) == before


async def test_a_foreign_fence_does_not_beat(store: SqliteStore) -> None:
    fence = (await store.join("engine", 10.0)).fence
    assert not await store.beat(fence - 1, 10.0)
    assert not await store.beat(fence + 1, 10.0)
    assert await store.beat(fence, 10.0)


async def test_news_of_another_process_arrive(open_store, path: Path) -> None:
    heard: list[str] = []
    arrived = asyncio.Event()

    def hear(run_ids: list[str]) -> None:
        heard.extend(run_ids)
        if "r" in heard and "new" in heard:
            arrived.set()

    store = await open_store()
    await store.join("engine", 10.0)
    await store.apply([StartRun("r", "w", b"", 1.0)])
    store.on_notification = hear
    body = """
        await store.apply([PostMessage("r", b"hello", 2.0), StartRun("new", "w", b"", 2.0)])
    """
    with in_another_process(path, body) as process:
        async with asyncio.timeout(60):
            await arrived.wait()
        assert process.wait() == 0
    assert [message.data for message in await store.inbox("r", 0)] == [b"hello"]


async def test_own_news_are_heard_once(open_store) -> None:
    heard: list[str] = []
    complete = asyncio.Event()

    def hear(run_ids: list[str]) -> None:
        heard.extend(run_ids)
        if "theirs" in heard:
            complete.set()

    store, second = await open_store(), await open_store()
    store.on_notification = hear
    await store.apply([StartRun("mine", "w", b"", 1.0)])
    assert heard == ["mine"]
    # The news of the other store come behind, so that by then the watcher has passed over its own.
    await second.apply([StartRun("theirs", "w", b"", 1.0), PostMessage("mine", b"", 1.0)])
    async with asyncio.timeout(60):
        await complete.wait()
    assert heard == ["mine", "theirs", "mine"]


async def test_old_news_are_forgotten(store: SqliteStore, other) -> None:
    await store.apply([StartRun("r", "w", b"", 1.0)])
    other.execute("UPDATE sqlite_sequence SET seq = 50000 WHERE name = 'news'")
    await store.apply([StartRun(f"r{number}", "w", b"", 1.0) for number in range(1001)])
    oldest, count = other.execute("SELECT MIN(id), COUNT(*) FROM news").fetchone()
    assert (oldest, count) == (50001, 1001)

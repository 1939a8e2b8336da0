"""Several processes on one database: leases, late writes, and what each of them may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from loom.store.operations import ClaimRun, ClaimRuns, CommitRun, PostMessage, ReleaseRun, StartRun
from loom.store.postgres import PostgresStore, ownership
from loom.store.records import Chunk, RunHead

Opener = Callable[..., Awaitable[PostgresStore]]


def start(run_id: str, owner: int | None = None) -> StartRun:
    return StartRun(run_id, "w", b"in", 1.0, owner=owner)


def commit(run_id: str, fence: int, tick: int = 0, status: str = "running", **more: object) -> CommitRun:
    head = RunHead(status, tick + 1, 0, 2.0)  # type: ignore[arg-type]
    return CommitRun(run_id, fence, head, chunk=Chunk(tick, 1, 0, 0, b"tick"), **more)  # type: ignore[arg-type]


async def end_lease(store: PostgresStore, fence: int) -> None:
    """As if the member had slept for a long time."""
    address = store.address
    connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
    await connection.execute(
        "UPDATE members SET lease_until = lease_until - interval '1 day', seen_at = seen_at - interval '1 day' "
        "WHERE fence = $1",
        fence,
    )
    await connection.close()


async def test_the_runs_of_a_member_that_slept_are_taken_over_and_its_late_writes_refused(opened: Opener) -> None:
    sleeper, other = await opened(), await opened()
    old = (await sleeper.join("worker", 30.0)).fence
    new = (await other.join("worker", 30.0)).fence
    await sleeper.apply([start("r", old), commit("r", old)])
    await end_lease(sleeper, old)

    assert await other.beat(new, 30.0) is True
    assert await other.apply([ClaimRun("r", new), commit("r", new, 1)]) == [True, True]

    late = commit("r", old, 1, sent=(start("child"), PostMessage("r", b"late", 2.0)))
    assert await sleeper.apply([late]) == [False]
    assert await sleeper.apply([commit("r", old, 1)]) == [False]
    assert await sleeper.beat(old, 30.0) is False
    run = await sleeper.export("r")
    assert run is not None
    assert [chunk.first_tick for chunk in run.chunks] == [0, 1]
    assert run.inbox == ()
    assert await sleeper.get("child") is None


async def test_a_member_that_is_stopped_amid_its_beat_can_be_expelled(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper, other = await opened(), await opened()
    old = (await sleeper.join("sleeper", 30.0)).fence
    new = (await other.join("other", 30.0)).fence
    await sleeper.apply([start("r", old)])
    stopped, goes_on = asyncio.Event(), asyncio.Event()

    class Stopped:
        """A connection whose process stands still after the first statement of a beat."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        async def fetchval(self, *query: Any) -> Any:
            found = await self._connection.fetchval(*query)
            stopped.set()
            await goes_on.wait()
            return found

    beat = ownership.beat
    monkeypatch.setattr(ownership, "beat", lambda connection, *asked: beat(Stopped(connection), *asked))
    beating = asyncio.create_task(sleeper.beat(old, 30.0))
    await stopped.wait()
    monkeypatch.undo()
    try:
        await asyncio.wait_for(end_lease(sleeper, old), 60)
        assert await other.beat(new, 30.0) is True
        assert await other.apply([ClaimRun("r", new)]) == [True]
    finally:
        goes_on.set()
        await beating


async def test_a_claim_by_a_member_that_is_gone_does_not_strand_the_run(opened: Opener) -> None:
    sleeper, other = await opened(), await opened()
    old = (await sleeper.join("a", 30.0)).fence
    new = (await other.join("b", 30.0)).fence
    await end_lease(sleeper, old)
    await other.beat(new, 30.0)
    await sleeper.apply([start("r"), ClaimRun("r", old)])
    await other.beat(new, 30.0)
    assert await other.apply([ClaimRuns(new, ("w",), 0.0)]) == [["r"]]


async def test_closing_frees_at_once_what_a_member_owns(opened: Opener) -> None:
    one, other = await opened(), await opened()
    fence = (await one.join("a", 3600.0)).fence
    await one.apply([start("r", fence)])
    await one.close()
    row = await other.get("r")
    assert row is not None
    assert row.owner is None


async def test_the_time_without_any_member_is_counted_once(opened: Opener) -> None:
    store, other = await opened(), await opened()
    first = await store.join("a", 30.0)
    assert first.downtime == 0.0
    await end_lease(store, first.fence)
    second = await other.join("b", 30.0)
    assert 86_400 <= second.downtime < 86_500
    third = await store.join("a", 30.0)
    assert third.downtime == second.downtime
    assert third.fence > second.fence > first.fence


async def test_claims_at_the_same_time_are_disjoint_and_leave_nothing(opened: Opener) -> None:
    stores = [await opened() for _ in range(4)]
    fences = [(await store.join("same name", 60.0)).fence for store in stores]
    await stores[0].apply([start(f"r{number}") for number in range(200)])

    async def claim_all(store: PostgresStore, fence: int) -> list[str]:
        mine: list[str] = []
        while True:
            [found] = await store.apply([ClaimRuns(fence, ("w",), 0.0, limit=7)])
            assert isinstance(found, list)
            if not found:
                return mine
            mine += found

    claimed = await asyncio.gather(*(claim_all(*pair) for pair in zip(stores, fences, strict=True)))
    everything = [run_id for mine in claimed for run_id in mine]
    assert sorted(everything) == sorted(f"r{number}" for number in range(200))


async def test_a_run_that_many_start_at_once_is_started_by_one(opened: Opener) -> None:
    stores = [await opened() for _ in range(4)]
    groups = [[start(f"r{number}") for number in numbers] for numbers in (range(20), range(19, -1, -1)) * 2]
    results = await asyncio.gather(*(store.apply(group) for store, group in zip(stores, groups, strict=True)))
    created = [result.created for group in results for result in group]  # type: ignore[union-attr]
    assert sum(created) == 20
    refused = [result for group in results for result in group if not result.created]  # type: ignore[union-attr]
    assert {(result.workflow, result.start) for result in refused} == {("w", b"in")}  # type: ignore[union-attr]


async def test_runs_that_write_to_each_other_do_not_lock_each_other_out(opened: Opener) -> None:
    one, other = await opened(), await opened()
    fences = [(await store.join("m", 60.0)).fence for store in (one, other)]
    await one.apply([start("a", fences[0]), start("b", fences[1])])

    async def talk(store: PostgresStore, fence: int, mine: str, peer: str) -> None:
        for tick in range(50):
            sent = (PostMessage(peer, b"hello", 1.0),)
            assert await store.apply([commit(mine, fence, tick, sent=sent), PostMessage(mine, b"note", 1.0)])

    await asyncio.gather(talk(one, fences[0], "a", "b"), talk(other, fences[1], "b", "a"))
    for run_id in "ab":
        assert len(await one.inbox(run_id, 0)) == 100


async def test_mail_that_was_accepted_before_the_end_came_before_it(opened: Opener) -> None:
    owner, poster = await opened(), await opened()
    fence = (await owner.join("m", 60.0)).fence
    for number in range(30):
        run_id = f"r{number}"
        await owner.apply([start(run_id, fence)])
        [ended], [posted] = await asyncio.gather(
            owner.apply([commit(run_id, fence, status="completed")]), poster.apply([PostMessage(run_id, b"x", 1.0)])
        )
        assert ended is True
        assert posted.outcome in ("posted", "finished")  # type: ignore[union-attr]
        run = await owner.export(run_id)
        assert run is not None
        assert run.inbox == ()


async def test_release_and_mail_at_the_same_time_lose_nothing(opened: Opener) -> None:
    owner, poster = await opened(), await opened()
    fence = (await owner.join("m", 60.0)).fence
    for number in range(30):
        run_id = f"r{number}"
        await owner.apply([start(run_id, fence), commit(run_id, fence)])
        [released], _ = await asyncio.gather(
            owner.apply([ReleaseRun(run_id, fence)]), poster.apply([PostMessage(run_id, b"x", 1.0)])
        )
        [found] = await owner.apply([ClaimRuns(fence, ("w",), 0.0)])
        assert found == ([run_id] if released else [])
        assert len(await owner.inbox(run_id, 0)) == 1


async def test_who_leaves_while_a_beat_is_under_way_is_gone_at_once(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat that is cancelled with its BEGIN on the way must leave no transaction that the goodbye becomes part of."""
    leaver, other = await opened(), await opened()
    fence = (await leaver.join("worker", 30.0)).fence
    await leaver.apply([start("r", fence)])
    execute = asyncpg.Connection.execute

    async def cancelled_amid_begin(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
        task = asyncio.current_task()
        if task is beating and query.startswith("BEGIN"):
            task.cancel()  # as soon as it waits for the answer
        return await execute(self, query, *arguments, **options)

    monkeypatch.setattr(asyncpg.Connection, "execute", cancelled_amid_begin)
    beating = asyncio.create_task(leaver.beat(fence, 30.0))
    with pytest.raises(asyncio.CancelledError):
        await beating
    await leaver.close()
    row = await other.get("r")
    assert row is not None
    assert row.owner is None, "its run is free, and nobody waits for its lease"
    new = (await other.join("worker", 30.0)).fence
    assert await other.apply([ClaimRun("r", new)]) == [True]

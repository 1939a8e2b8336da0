"""What is found by looking at the store from time to time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import ClaimRuns, CommitRun
from loom.testing import run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.operations import Operation, Result


class Word(HumanResponseEvent):
    text: str


class Nap(StartEvent):
    seconds: float = 0.0


class Sleeper(Workflow):
    @step
    async def rest(self, ctx: Context, ev: Nap) -> StopEvent:
        await ctx.sleep(ev.seconds)
        return StopEvent(result=ev.seconds)


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)


class Deaf(MemoryStore):
    """A store whose news are lost."""

    async def open(self) -> None:
        self.on_notification = _nothing
        await super().open()


def _nothing(_run_ids: Sequence[str]) -> None:
    pass


def now() -> float:
    return asyncio.get_running_loop().time()


async def _sleepers() -> None:
    async with loom.connect(MemoryStore(), idle_timeout=0) as runtime:
        runtime.register(Sleeper(timeout=None), name="sleeper")
        began = now()
        naps = (0.5, 3.0, 100.0, 900.0)
        handlers = [await runtime.start("sleeper", {"seconds": nap}) for nap in naps]
        await asyncio.sleep(0.1)
        assert runtime.figures["in_memory"] == 0
        for nap, handler in zip(naps, handlers, strict=True):
            assert await handler == nap
            assert nap <= now() - began < nap + 0.1


def test_released_sleepers_wake_on_time() -> None:
    run_virtual(_sleepers())


async def _overdue() -> float:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Sleeper(timeout=None), name="sleeper")
        await runtime.start("sleeper", {"seconds": 10}, run_id="a")
        await asyncio.sleep(1)
    await asyncio.sleep(1000)
    async with loom.connect(MemoryStore(database)) as runtime:
        began = now()
        runtime.register(Sleeper(timeout=None), name="sleeper")
        assert await (await runtime.handler("a")) == 10
        return now() - began


def test_timer_that_was_due_while_nobody_lived_fires_at_once() -> None:
    assert run_virtual(_overdue()) < 1.5


async def _lost_news() -> object:
    database = MemoryDatabase()
    async with loom.connect(Deaf(database)) as worker, loom.connect(MemoryStore(database)) as client:
        worker.register(Ask(timeout=None), name="ask")
        await worker.ready()
        handler = await client.start("ask", run_id="a")
        await asyncio.sleep(3)
        assert worker.active_run("a") is not None
        await client.send_event("a", Word(text="found"))
        async with asyncio.timeout(5):
            return await handler


def test_starts_and_events_are_found_though_their_news_were_lost() -> None:
    assert run_virtual(_lost_news()) == "found"


async def _lease_shorter_than_a_look() -> object:
    async with loom.connect(MemoryStore(), poll_interval=10.0, lease=3.0) as runtime:
        runtime.register(Ask(timeout=None), name="ask")
        handler = await runtime.start("ask", run_id="a")
        await asyncio.sleep(60)
        active = runtime.active_run("a")
        assert active is not None
        assert active.row.owner is None or runtime._member is not None
        assert runtime._member is not None
        assert runtime._member.fence == 1
        await runtime.send_event("a", Word(text="mine still"))
        return await handler


def test_lease_is_kept_also_if_it_is_shorter_than_the_time_between_looks() -> None:
    assert run_virtual(_lease_shorter_than_a_look()) == "mine still"


async def _retention() -> None:
    async with loom.connect(MemoryStore(), retention=100.0) as runtime:
        runtime.register(Sleeper(timeout=None), name="sleeper")
        await (await runtime.start("sleeper", run_id="old"))
        await runtime.start("sleeper", {"seconds": 10_000.0}, run_id="running")
        await asyncio.sleep(90)
        assert {info.run_id async for info in runtime.list()} == {"old", "running"}
        await asyncio.sleep(80)
        assert {info.run_id async for info in runtime.list()} == {"running"}


def test_ended_runs_are_deleted_when_they_are_old() -> None:
    run_virtual(_retention())


class Counting(MemoryStore):
    """A store that counts how often runs are looked for that need somebody."""

    claims = 0

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        self.claims += sum(isinstance(operation, ClaimRuns) for operation in group)
        return await super().apply(group)


async def _many_workflows() -> tuple[object, int]:
    store = Counting()
    async with loom.connect(store, poll_interval=1.0) as runtime:
        for number in range(100):
            runtime.register(Sleeper(timeout=None), name=f"sleeper-{number}")
        await runtime.ready()
        result = await (await runtime.start("sleeper-7", {"seconds": 3.0}))
        await asyncio.sleep(2)
        store.claims = 0
        await asyncio.sleep(10)
        return result, store.claims


def test_a_look_costs_the_same_however_many_workflows_there_are() -> None:
    _, claims = run_virtual(_many_workflows())
    assert claims <= 11


class Commits(MemoryStore):
    """Counts the commits of runs."""

    commits = 0

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        self.commits += sum(isinstance(operation, CommitRun) for operation in group)
        return await super().apply(group)


async def _woken() -> int:
    """Count the commits from an answer until the body that waited for it goes on."""
    store, seen = Commits(), []

    class Hear(Workflow):
        @step
        async def hear(self, ctx: Context, _ev: StartEvent) -> StopEvent:
            word = await ctx.wait_for_event(Word, timeout=None)
            seen.append(store.commits)
            return StopEvent(result=word.text)

    async with loom.connect(store, idle_timeout=0) as runtime:
        runtime.register(Hear(timeout=None), name="hear")
        handler = await runtime.start("hear")
        while not runtime.figures["released"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        before = store.commits
        await runtime.send_event(handler.run_id, Word(text="x"))
        assert await handler == "x"
        return seen[-1] - before


def test_a_woken_body_goes_on_after_the_commit_of_its_answer() -> None:
    assert run_virtual(_woken()) == 1, "no other commit has to tell the body what it was run with"

"""Controls, copies and deletions of runs in states where people seldom try them; and what they are told then."""

from __future__ import annotations

import asyncio

import pytest
from durable_looking import until

import loom
from loom import Context, HumanResponseEvent, RunFinished, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowCancelledByUser
from loom.store.errors import RunActive, StoreError
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual


class Numbered(StartEvent):
    number: int


class Double(Workflow):
    @step
    async def double(self, ev: Numbered) -> StopEvent:
        return StopEvent(result=2 * ev.number)


class Word(HumanResponseEvent):
    text: str


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)


class Parent(Workflow):
    @step
    async def begin(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child("double", number=4))


async def test_run_that_could_never_begin_can_be_cancelled() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client, loom.connect(MemoryStore(database)) as worker:
        worker.register(Double(), name="double")
        await worker.ready()
        handler = await client.start("double", {"number": "many"}, run_id="a")
        await until(client, "a", lambda info: info.parked)
        await client.cancel("a")
        with pytest.raises(WorkflowCancelledByUser):
            await asyncio.wait_for(_result(handler), 60)


async def _result(handler: loom.WorkflowHandler) -> object:
    return await handler


async def test_only_a_failed_run_is_retried_and_the_error_says_what_it_is() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Ask(timeout=None), name="ask")
        await runtime.start("ask", run_id="a")
        with pytest.raises(RunActive, match=r"^Run 'a' is running: only a failed run can be retried\.$"):
            await runtime.retry("a")
        await runtime.cancel("a")
        with pytest.raises(WorkflowCancelledByUser):
            await (await runtime.handler("a"))
        with pytest.raises(RunFinished, match=r"^Run 'a' has ended \(cancelled\): only a failed run can be retried\.$"):
            await runtime.retry("a")


async def test_run_that_nobody_has_begun_has_no_ticks_to_look_at() -> None:
    async with loom.connect("memory://") as client:
        await client.start("double", {"number": 1}, run_id="a")
        for look in (client.state_at("a", tick=0), client.fork("a", tick=0)):
            with pytest.raises(ValueError, match=r"^Run 'a' has no ticks yet: there is no tick 0\.$"):
                await look


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"loom_run": 1, "run": {}}', b'{"loom_run": "x", "run": 1}', b"\xff"]
)
async def test_what_is_no_exported_run_is_refused(data: bytes) -> None:
    async with loom.connect("memory://") as client:
        with pytest.raises(StoreError, match="not an exported run"):
            await client.import_run(data)


async def test_purged_run_may_begin_again_with_its_children() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Parent(), name="parent")
        runtime.register(Double(), name="double")
        for _ in range(2):
            handler = await runtime.start("parent", run_id="p")
            assert await asyncio.wait_for(_result(handler), 60) == 8
            assert await runtime.purge("p") == 2
        assert [info.run_id async for info in runtime.list()] == []


async def _moved(downtime_there: float, away_s: float) -> bool:
    """Export a run with 100 s, import it elsewhere after a while, and see whether it has 40 s left still."""
    here, there = MemoryDatabase(), MemoryDatabase()
    there.downtime = downtime_there
    async with loom.connect(MemoryStore(here)) as runtime:
        runtime.register(Ask(timeout=100), name="ask")
        await runtime.start("ask", run_id="a")
        await asyncio.sleep(50)
        data = await runtime.export_run("a")
        await runtime.cancel("a")
    await asyncio.sleep(away_s)
    async with loom.connect(MemoryStore(there)) as runtime:
        runtime.register(Ask(timeout=100), name="ask")
        await runtime.ready()
        await runtime.import_run(data)
        await asyncio.sleep(40)
        lives = (await runtime.get("a")).status == "running"
        await asyncio.sleep(20)
        return lives and (await runtime.get("a")).status == "failed"


@pytest.mark.parametrize(("downtime_there", "away_s"), [(0, 0), (0, 1000), (5000, 0), (5000, 1000)])
def test_time_of_a_run_stands_still_while_it_is_moved(downtime_there: float, away_s: float) -> None:
    assert run_virtual(_moved(downtime_there, away_s))


async def _forked_by_a_client() -> bool:
    database = MemoryDatabase()
    database.downtime = 5000.0
    async with loom.connect(MemoryStore(database)) as worker, loom.connect(MemoryStore(database)) as client:
        worker.register(Ask(timeout=100), name="ask")
        await worker.start("ask", run_id="a")
        await asyncio.sleep(50)
        await client.fork("a", tick=0, run_id="b")
        await asyncio.sleep(90)
        lives = (await client.get("b")).status == "running"
        await asyncio.sleep(20)
        return lives and (await client.get("b")).status == "failed"


def test_fork_has_the_time_that_the_other_one_had_at_that_tick() -> None:
    assert run_virtual(_forked_by_a_client())

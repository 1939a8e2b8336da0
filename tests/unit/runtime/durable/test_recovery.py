"""Runs are taken up whatever comes in between, and a run that cannot be is parked, not forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from durable_looking import until

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.operations import Operation, Result
    from loom.store.records import InboxMessage

RARELY = 3600.0
"""A safety net that looks so seldom that nothing in a test owes its rescue to it."""


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


class Broken(Workflow):
    """Fails until it is mended."""

    mended = False

    @step
    async def work(self, _ev: StartEvent) -> StopEvent:
        if not self.mended:
            raise ValueError("broken")
        return StopEvent(result="mended")


async def _input_that_the_code_refuses() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client:
        await client.start("double", {"number": "many"}, run_id="a")
        async with loom.connect(MemoryStore(database)) as worker:
            worker.register(Double(), name="double")
            await worker.ready()
            await asyncio.sleep(5)
            info = await client.get("a")
            assert info.parked is not None
            assert "number" in info.parked
            assert not info.in_memory


def test_run_whose_input_the_code_refuses_is_parked_with_the_reason() -> None:
    run_virtual(_input_that_the_code_refuses())


class SlowWriter(MemoryStore):
    """Takes its time to say that something was written."""

    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        results = await super().apply(group)
        await asyncio.sleep(1)
        return results


async def _start_that_is_given_up() -> object:
    async with loom.connect(SlowWriter(), poll_interval=RARELY) as runtime:
        runtime.register(Double(), name="double")
        await runtime.ready()
        starting = asyncio.create_task(runtime.start("double", {"number": 2}, run_id="a"))
        await asyncio.sleep(1.5)  # it has asked the store, which has not answered
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        async with asyncio.timeout(60):
            return await (await runtime.handler("a"))


def test_run_goes_on_though_whoever_started_it_has_left() -> None:
    assert run_virtual(_start_that_is_given_up()) == 4


class SlowReader(MemoryStore):
    """Takes its time to read mail."""

    async def inbox(self, run_id: str, after: int) -> list[InboxMessage]:
        found = await super().inbox(run_id, after)
        await asyncio.sleep(1)
        return found


async def _mail_while_the_run_leaves(store: MemoryStore) -> object:
    async with loom.connect(store, poll_interval=RARELY, idle_timeout=10.0) as runtime:
        runtime.register(Ask(timeout=None), name="ask")
        handler = await runtime.start("ask", run_id="a")
        await until(runtime, "a", lambda info: info.idle_since)
        runtime.active_runs._spawn(runtime.active_runs._release("a"))  # type: ignore[union-attr]
        await runtime.send_event("a", Word(text="late"))
        async with asyncio.timeout(60):
            return await handler


def test_event_that_comes_while_the_run_leaves_brings_it_back_at_once() -> None:
    for store in (MemoryStore(), SlowReader()):
        assert run_virtual(_mail_while_the_run_leaves(store)) == "late"


async def _retried_as_it_ends() -> object:
    workflow = Broken(timeout=None)
    store = SlowReader()
    async with loom.connect(store, poll_interval=RARELY) as runtime:
        runtime.register(workflow, name="broken")
        await runtime.start("broken", run_id="a")
        await until(runtime, "a", lambda info: info.status == "failed")
        workflow.mended = True
        await runtime.retry("a")
        async with asyncio.timeout(60):
            return await (await runtime.handler("a"))


def test_retry_as_a_run_ends_is_heard() -> None:
    assert run_virtual(_retried_as_it_ends()) == "mended"


async def _started_twice_at_once() -> None:
    async with loom.connect(MemoryStore(), poll_interval=RARELY) as runtime:
        runtime.register(Double(), name="double")
        handlers = await asyncio.gather(*(runtime.start("double", {"number": 4}, run_id="a") for _ in range(5)))
        assert [await handler for handler in handlers] == [8] * 5
        assert (await runtime.get("a")).ticks == 2
        assert runtime.figures["in_memory"] == 0


def test_the_same_start_many_times_at_once_is_one_run() -> None:
    run_virtual(_started_twice_at_once())


async def _started_though_it_cannot_be_set_in_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise RuntimeError("an error of the engine")

    async with loom.connect(MemoryStore(), poll_interval=RARELY) as runtime:
        runtime.register(Double(), name="double")
        await runtime.ready()
        with monkeypatch.context() as patched:
            patched.setattr("loom.runtime.durable.recovery.recovered", broken)
            handler = await runtime.start("double", {"number": 4}, run_id="a")
            parked = await until(runtime, "a", lambda info: info.parked is not None)
            assert "an error of the engine" in (parked.parked or "")
        await runtime.resume("a")
        assert await handler == 8


def test_a_run_that_is_stored_is_started_though_it_cannot_be_set_in_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parked, as any run that cannot be taken up, and whoever began it is told the truth: it is there."""
    run_virtual(_started_though_it_cannot_be_set_in_motion(monkeypatch))

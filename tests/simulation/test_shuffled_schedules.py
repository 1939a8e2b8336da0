"""Shuffled schedules that once broke the durable runtime, each as small as it gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from typing_extensions import override

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable import adapter
from loom.runtime.durable.handle import RunHandle
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import Operation, ReleaseRun, Result
from loom.store.records import Member, RunQuery, RunRow
from loom.testing import FaultPlan, FaultyStore
from loom.testing.simulation_world import ShuffledLoop


def run_shuffled(main: Coroutine[Any, Any, None]) -> None:
    """Under virtual time; something that goes round in circles is an error."""
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(Random(1))) as runner:
        runner.run(main)


class Letter(HumanResponseEvent):
    text: str


class Correspondent(Workflow):
    """Waits for two letters, and a while for the first."""

    @step
    async def read(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(Letter, timeout=100)
        second = await ctx.wait_for_event(Letter, timeout=None)
        return StopEvent(result=first.text + second.text)


def test_a_timer_that_is_cancelled_with_the_recovery_is_not_left_in_the_store() -> None:
    """The take-up asked for the timer again, the letter cancelled it: both left the queue, and the row stayed."""

    async def main() -> None:
        store = MemoryStore()
        async with loom.connect(store, idle_timeout=0.0) as runtime:
            runtime.register(Correspondent(timeout=None), name="letters")
            handler = await runtime.start("letters", run_id="r")
            await asyncio.sleep(1)
            assert runtime.figures["in_memory"] == 0
            assert len(store.database.tables.runs["r"].timers) == 1
            await runtime.send_event("r", Letter(text="a"))
            await asyncio.sleep(1)
            assert len(store.database.tables.runs["r"].timers) == 0
            await asyncio.sleep(300)
            resumed = runtime.figures["resumed"]
            await runtime.send_event("r", Letter(text="b"))
            assert await handler == "ab"
            assert runtime.figures["resumed"] == resumed + 1

    run_shuffled(main())


def test_mail_reaches_a_run_in_memory_without_news() -> None:
    """Nobody looked for the mail of runs in memory, but for the news of it."""

    async def main() -> None:
        database = MemoryDatabase()
        deaf = FaultyStore(MemoryStore(database), FaultPlan(drop_news=1.0))
        async with (
            loom.connect(deaf, idle_timeout=None) as worker,
            loom.connect(MemoryStore(database)) as client,
        ):
            worker.register(Correspondent(timeout=None), name="letters")
            handler = await worker.start("letters", run_id="r")
            await asyncio.sleep(1)
            await client.send_event("r", Letter(text="a"))
            await client.send_event("r", Letter(text="b"))
            async with asyncio.timeout(60):
                assert await handler == "ab"

    run_shuffled(main())


class Unsure(MemoryStore):
    """Releases runs, but says that it does not know."""

    failures = 1

    @override
    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        results = await super().apply(group)
        if self.failures and any(isinstance(operation, ReleaseRun) for operation in group):
            self.failures -= 1
            raise StoreUnavailable("The connection is gone.", outcome_unknown=True)
        return results


def test_a_release_of_unknown_outcome_leaves_no_run_behind_that_others_have_moved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It stayed in memory, was claimed again later, and wrote what did not follow its journal any more."""

    async def main() -> None:
        database = MemoryDatabase()
        async with (
            loom.connect(Unsure(database), idle_timeout=0.5, poll_interval=60) as unsure,
            loom.connect(MemoryStore(database), idle_timeout=0.0) as other,
        ):
            for runtime in (unsure, other):
                runtime.register(Correspondent(timeout=None), name="letters")
            handler = await unsure.start("letters", run_id="r")
            await asyncio.sleep(1)
            assert unsure.figures["in_memory"] == 0
            await other.send_event("r", Letter(text="a"))
            await asyncio.sleep(100)
            await unsure.send_event("r", Letter(text="b"))
            assert await handler == "ab"

    with caplog.at_level(logging.ERROR, logger="loom"):
        run_shuffled(main())
    assert [record for record in caplog.records if record.exc_info] == []


class Sleepy(MemoryStore):
    """A lease that is lost while the process looks for parked runs."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = False

    @override
    async def join(self, name: str, lease_s: float) -> Member:
        await asyncio.sleep(20 if self.lost else 0)
        return await super().join(name, lease_s)

    @override
    async def find(self, query: RunQuery) -> list[RunRow]:
        await asyncio.sleep(10)
        return await super().find(query)

    @override
    async def beat(self, fence: int, lease_s: float) -> bool:
        self.lost, was_lost = True, self.lost
        return was_lost and await super().beat(fence, lease_s)


def test_a_lease_that_is_lost_at_the_beginning_leaves_a_runtime_that_works() -> None:
    """Whoever was beginning to work went on with what was not there any more."""

    async def main() -> None:
        async with loom.connect(Sleepy()) as runtime:
            runtime.register(Correspondent(timeout=None), name="letters")
            await runtime.start("letters", run_id="r")
            await asyncio.sleep(60)
            assert (await runtime.get("r")).ticks > 0

    run_shuffled(main())


class Step(Event):
    number: int


class Talker(Workflow):
    """Writes much to its stream."""

    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(40):
            ctx.write_event_to_stream(Step(number=number))
            await ctx.once(f"{number}", lambda: None)
        return StopEvent()


def test_cursors_are_the_same_where_the_beginning_of_a_stream_was_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left was counted from where the reader had asked, and read again later."""
    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", 5)

    async def main() -> None:
        async with loom.connect("memory://", prune=True) as runtime:
            runtime.register(Talker(), name="talker")
            handler = await runtime.start("talker", run_id="r")
            await handler
            run = handler._run
            assert isinstance(run, RunHandle)
            read = [(cursor, event) async for cursor, event in run.read_stream(-1, True)]
            events = (await runtime.get("r")).events
            assert [cursor for cursor, _ in read] == list(range(events - len(read), events))
            assert 0 < len(read) < events

    run_shuffled(main())


class Busy(Workflow):
    """A body that takes its time."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(100)
        return StopEvent(result="done")


class Nap(Workflow):
    """A body that sleeps for a while."""

    @step
    async def sleep(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(10)
        return StopEvent(result="slept")


def test_a_run_that_is_due_waits_for_room_without_a_fuss() -> None:
    """Whoever found no room told the scanner that there was some, which found the run that was due, and so on."""

    async def main() -> None:
        async with loom.connect("memory://", idle_timeout=0.0, max_in_memory=1) as runtime:
            runtime.register(Busy(timeout=None), name="busy")
            runtime.register(Nap(timeout=None), name="nap")
            napping = [await runtime.start("nap", run_id=f"nap {number}") for number in range(3)]
            await asyncio.sleep(1)
            busy = await runtime.start("busy", run_id="busy")
            assert await busy == "done"
            assert [await handler for handler in napping] == ["slept"] * 3

    run_shuffled(main())

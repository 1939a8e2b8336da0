"""Which runs a process recovers, when, and what a cancel overtakes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from typing_extensions import override

import loom
from loom import (
    HumanResponseEvent,
    InputRequiredEvent,
    RunCancelledEvent,
    StartEvent,
    StopEvent,
    Workflow,
    on_cancel,
    step,
)
from loom.core.ticks import TickCancelRun, TickResume, TickStartRun
from loom.runtime.durable.probation import LONGEST_S, MAX_DEATHS, probation_s
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import ClaimRuns, Operation, Result, TryRun


class Once(Workflow):
    begun: list[str]

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        self.begun.append("work")
        return StopEvent(result="done")


class Asks(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent()

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result="taken")


def once() -> Once:
    workflow = Once()
    workflow.begun = []
    return workflow


async def ticks_of(runtime: Any, run_id: str) -> list[type]:
    return [type(entry.tick) async for entry in runtime.history(run_id)]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - a store tells nobody here
            await asyncio.sleep(0.01)


async def ended(runtime: Any, run_id: str, status: str) -> None:
    async def has_ended() -> bool:
        return bool((await runtime.get(run_id)).status == status)

    await until(has_ended)


async def test_a_cancel_overtakes_a_start_that_was_never_begun() -> None:
    database = MemoryDatabase()
    flow = loom.load({"definition": {"actions": {"Say": {"type": "Compose", "inputs": "@triggerBody()"}}}})
    async with loom.connect(MemoryStore(database)) as client:
        await client.start("flow", {"x": 1}, run_id="flow")
        await client.start("once", {}, run_id="once")
        for run_id in ("flow", "once"):
            await client.cancel(run_id, reason="not wanted")
    workflow = once()
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(flow, name="flow")
        runtime.register(workflow, name="once")
        for run_id in ("flow", "once"):
            await ended(runtime, run_id, "cancelled")
            assert await ticks_of(runtime, run_id) == [TickStartRun, TickCancelRun]
        [entry] = [entry async for entry in runtime.history("flow")][:1]
        assert entry.tick.event is None, "nothing was planned, so no expression was evaluated"
    assert workflow.begun == []


async def test_a_cancel_overtakes_what_came_before_it() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Asks(), name="asks")
        await runtime.start("asks", {}, run_id="r")

        async def is_idle() -> bool:
            return (await runtime.get("r")).idle_since is not None

        await until(is_idle)
    async with loom.connect(MemoryStore(database)) as client:
        await client.send_event("r", HumanResponseEvent())
        await client.cancel("r")
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Asks(), name="asks")
        await ended(runtime, "r", "cancelled")
        assert (await ticks_of(runtime, "r"))[-2:] == [TickResume, TickCancelRun]


async def _suspected(database: MemoryDatabase, run_id: str = "r") -> None:
    """Let two members die that were at work on a run."""
    store = MemoryStore(database)
    await store.open()
    for _ in range(3):
        fence = (await store.join("dies", 0.01)).fence
        await store.apply([ClaimRuns(fence, ("once",), 0.0)])
        await asyncio.sleep(0.02)
    stored = await store.load(run_id)
    assert stored is not None
    assert stored.deaths is not None
    assert stored.deaths.suspect
    # Not closed: that would be the orderly end of its members.


async def test_a_suspect_is_recovered_on_probation_and_forgotten_with_its_result() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client:
        await client.start("once", {}, run_id="r")
        await _suspected(database)
        why = await client.why("r")
        assert why.sentence == (
            "It waits for its turn to be recovered alone: it was at work in 2 processes that died, and 0 of these "
            "deaths count for it."
        )
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(once(), name="once")
        handler = await runtime.handler("r")
        assert await handler == "done"

        async def is_forgotten() -> bool:
            return database.tables.runs["r"].deaths is None

        await until(is_forgotten)


async def test_a_suspect_can_be_cancelled_before_its_turn() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client:
        for run_id in ("r", "other"):
            await client.start("once", {}, run_id=run_id)
        await _suspected(database)
        # Another member has one on probation; this is about the other.
        busy = MemoryStore(database)
        await busy.open()
        fence = (await busy.join("busy", 600.0)).fence
        [results] = await busy.apply([TryRun(fence, ("once",), 0.0)])
        assert isinstance(results, list)
        waiting = "r" if results == ["other"] else "other"
        await client.cancel(waiting)
        workflow = once()
        async with loom.connect(MemoryStore(database), safe=True) as runtime:
            runtime.register(workflow, name="once")
            await ended(runtime, waiting, "cancelled")
        assert workflow.begun == []
        await busy.close()


async def test_safe_mode_takes_what_comes_and_begins_nothing() -> None:
    database, workflow = MemoryDatabase(), once()
    async with loom.connect(MemoryStore(database), safe=True, poll_interval=0.01) as runtime:
        runtime.register(workflow, name="once")
        await runtime.start("once", {}, run_id="r")
        await runtime.cancel("r")
        await ended(runtime, "r", "cancelled")
        await runtime.start("once", {}, run_id="later")
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert workflow.begun == []
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(workflow, name="once")
        assert await (await runtime.handler("later")) == "done"


async def test_safe_mode_ends_a_run_with_a_clean_up_step_only_by_force() -> None:
    seen, at_work = [], asyncio.Event()

    class Cleans(Workflow):
        @step
        async def work(self, ev: StartEvent) -> StopEvent:
            at_work.set()
            await asyncio.Event().wait()
            return StopEvent()

        @on_cancel
        async def undo(self, ev: RunCancelledEvent) -> None:
            seen.append("undo")

    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Cleans(), name="cleans")
        for run_id in ("r", "s"):
            at_work.clear()
            await runtime.start("cleans", {}, run_id=run_id)
            await at_work.wait()
    async with loom.connect(MemoryStore(database), safe=True, poll_interval=0.01) as runtime:
        runtime.register(Cleans(), name="cleans")
        await runtime.cancel("r")
        await runtime.cancel("s", force=True)
        await ended(runtime, "s", "cancelled")
        assert (await runtime.get("r")).status == "running"
    assert seen == []
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Cleans(), name="cleans")
        await ended(runtime, "r", "cancelled")
    assert seen == ["undo"]


def test_probation_is_doubled_with_every_death_since_the_second() -> None:
    assert [probation_s(2.0, marks) for marks in (1, 2, 3, 4, 7)] == [2.0, 2.0, 4.0, 8.0, 64.0]
    assert probation_s(2.0, 10_000) == LONGEST_S
    assert MAX_DEATHS == 5


async def test_a_run_that_nothing_kills_writes_nothing_more() -> None:
    """The owner of a run is its mark: no step, and no start, costs another write."""
    written: list[str] = []

    class Watched(MemoryStore):
        @override
        async def apply(self, group: Sequence[Operation]) -> list[Result]:
            written.extend(type(operation).__name__ for operation in group)
            return await super().apply(group)

    async with loom.connect(Watched(MemoryDatabase()), poll_interval=600) as runtime:
        runtime.register(once(), name="once")
        await runtime.ready()
        for number in range(5):
            assert await (await runtime.start("once", {}, run_id=f"r{number}")) == "done"
    looking = {"ClaimRuns", "TryRun"}
    assert [name for name in written if name not in looking] == ["StartRun", "CommitRun", "CommitRun"] * 5

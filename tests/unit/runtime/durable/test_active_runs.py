"""A run leaves memory while a commit of it is on its way: who takes it up next begins behind that commit."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest
from typing_extensions import override

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.run import Run
from loom.effects.execution import StepExecution
from loom.runtime.durable.active_run import ActiveRun
from loom.store.memory import MemoryStore
from loom.store.operations import ClaimRun, CommitRun, Operation, ReleaseRun, Result


class Word(HumanResponseEvent):
    text: str


class Patient(Workflow):
    """Waits for a word, but not for ever."""

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            return StopEvent(result=(await ctx.wait_for_event(Word, timeout=0.2)).text)
        except TimeoutError:
            return StopEvent(result="nothing was said")


class Gated(MemoryStore):
    """A store whose writes can be held up."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.held: list[Operation] = []
        self.came = asyncio.Event()

    @override
    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        if not self.gate.is_set():
            self.held += group
            self.came.set()
            await self.gate.wait()
        return await super().apply(group)


async def test_a_commit_that_is_under_way_at_the_release_is_waited_for() -> None:
    store = Gated()
    async with loom.connect(store, idle_timeout=None) as runtime:
        runtime.register(Patient(timeout=None), name="patient")
        handler = await runtime.start("patient", run_id="p")
        while (active := runtime.active_run("p")) is None or not active.is_at_rest:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
        active_runs = runtime.active_runs
        assert active_runs is not None
        store.gate.clear()
        # The release, and somebody who claims the run for this very process, share a transaction.
        releasing = asyncio.create_task(active_runs._release("p"))
        await asyncio.sleep(0)
        claimed = runtime.committer.submit(ClaimRun("p", active_runs.fence))
        async with asyncio.timeout(60):
            await store.came.wait()
        assert [type(operation) for operation in store.held] == [ReleaseRun, ClaimRun]
        while active.commit_under_way is None:  # noqa: ASYNC110 - its timer fires, and is written behind them
            await asyncio.sleep(0.01)
        store.held.clear()
        store.came.clear()
        store.gate.set()
        store.gate.clear()  # lets those pass that have come, and no others
        async with asyncio.timeout(60):
            await store.came.wait()
        assert [type(operation) for operation in store.held] == [CommitRun]
        await releasing
        assert await claimed
        for _ in range(100):  # the run is taken up again meanwhile, as far as that goes
            await asyncio.sleep(0)
        store.gate.set()
        async with asyncio.timeout(60):
            assert await handler == "nothing was said"
        assert (await runtime.get("p")).parked is None


class Listens(Workflow):
    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)


_WAITS = {"actions": {"a": {"type": "waitForEvent", "inputs": {"event": "Go"}}}}
_CALLS = {"actions": {"a": {"type": "workflow", "inputs": {"workflow": "waits"}}}}


@pytest.mark.parametrize("workflow", ["listens", "waits", "calls"])
async def test_a_released_run_is_gone_without_a_collection(workflow: str) -> None:
    """Thousands may be released at once: a collection of them all would stop the process."""

    def left() -> list[str]:
        return [type(each).__name__ for each in gc.get_objects() if isinstance(each, ActiveRun | Run | StepExecution)]

    async with loom.connect(MemoryStore(), idle_timeout=0) as runtime:
        runtime.register(Listens(timeout=None), name="listens")
        runtime.register(loom.load(_WAITS), name="waits")
        runtime.register(loom.load(_CALLS), name="calls")
        gc.collect()
        gc.disable()
        try:
            before = left()
            await runtime.start(workflow, {}, run_id="r")
            async with asyncio.timeout(60):
                while runtime.metrics.released < 1 + (workflow == "calls") or left() != before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert runtime.active_runs is not None
            assert not runtime.active_runs.runs
        finally:
            gc.enable()

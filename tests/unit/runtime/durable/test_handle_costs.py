"""What handlers of stored runs cost: nothing while the run goes on, and nothing once nobody holds them."""

from __future__ import annotations

import gc

import loom
from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.store.memory import MemoryStore
from loom.store.records import RunRow

STEPS = 50


class Next(Event):
    n: int


class Chain(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Next:
        return Next(n=1)

    @step
    async def go_on(self, ev: Next) -> Next | StopEvent:
        return Next(n=ev.n + 1) if ev.n < STEPS else StopEvent(result=ev.n)


class CountingStore(MemoryStore):
    """Counts how often the row of a run is read."""

    reads = 0

    async def get(self, run_id: str) -> RunRow | None:
        self.reads += 1
        return await super().get(run_id)


async def test_awaiting_a_run_does_not_read_the_store_with_every_commit() -> None:
    store = CountingStore()
    async with loom.connect(store) as runtime:
        runtime.register(Chain(), name="chain")
        assert await (await runtime.start("chain")) == STEPS
    assert store.reads < STEPS / 5


async def test_handlers_that_nobody_holds_leave_nothing_behind() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Chain(), name="chain")
        handlers = [await runtime.start("chain") for _ in range(5)]
        assert len(runtime.handles) == 5
        assert [await handler for handler in handlers] == [STEPS] * 5
        del handlers
        gc.collect()
        assert not runtime.handles

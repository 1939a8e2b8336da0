"""`ctx.store` inside activities: read by queries, written in turn, and never written twice."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from activity_world import World
from pydantic import BaseModel
from temporalio.testing import ActivityEnvironment

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickEditStore
from loom.temporal.names import SIGNAL_LOCK


class Part(Event):
    number: int = 0


class Done(Event):
    number: int = 0


class Counting(Workflow):
    """Many bodies count at the same time."""

    @step
    async def begin(self, ev: StartEvent) -> list[Part]:
        return [Part(number=number) for number in range(6)]

    @step(num_workers=6)
    async def count(self, ev: Part, ctx: Context) -> Done:
        async with ctx.store.edit_state() as state:
            before = state.get("count", 0)
            await asyncio.sleep(0)
            state["count"] = before + 1
        return Done(number=ev.number)

    @step
    async def end(self, ev: list[Done], ctx: Context) -> StopEvent:
        return StopEvent(result=await ctx.store.get("count"))


async def test_bodies_that_edit_at_the_same_time_take_turns() -> None:
    world = World(Counting())
    world.start()
    await world.settle()
    assert world.result == 6
    assert world.made.host.core.state.store_version == 6
    assert world.made.host.lock.holder is None


class Written(BaseModel):
    """A state with fields of its own."""

    name: str = ""
    numbers: list[int] = []


async def test_all_ways_to_write_and_read() -> None:
    class Writing(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context[Written]) -> StopEvent:
            store = ctx.store
            await store.set("name", "a")
            async with store.edit_state() as state:
                state.numbers.append(1)
                seen_inside = await store.get("numbers")
            whole = await store.get_state()
            await store.set_state(Written(name="b", numbers=[2]))
            name = await store.get("name")
            await store.clear()
            return StopEvent(result=[seen_inside, whole.model_dump(), name, await store.get("name")])

    world = World(Writing())
    world.start()
    await world.settle()
    assert world.result == [[], {"name": "a", "numbers": [1]}, "b", ""]


async def test_what_a_body_wrote_before_it_left_is_not_written_again() -> None:
    class Waiting(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            await ctx.store.set("count", await ctx.store.get("count", default=0) + 1)
            async with ctx.store.edit_state() as state:
                state["edits"] = state.get("edits", 0) + 1
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent(result=[await ctx.store.get("count"), await ctx.store.get("edits")])

    world = World(Waiting())
    world.start()
    await world.settle()
    world.send(HumanResponseEvent(response=""))
    await world.settle()
    assert world.result == [1, 1]
    assert len(world.told(TickEditStore)) == 2


async def test_an_error_in_a_block_writes_nothing_and_lets_others_write() -> None:
    class Failing(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            async def fail() -> None:
                async with ctx.store.edit_state() as state:
                    state["lost"] = 1
                    raise KeyError("lost")

            with pytest.raises(KeyError):
                await fail()
            with pytest.raises(ValueError, match="cannot be stored"):
                await ctx.store.set("handle", object())
            await ctx.store.set("kept", 2)
            return StopEvent(result=(await ctx.store.get_state())._data)

    world = World(Failing())
    world.start()
    await world.settle()
    assert world.result == {"kept": 2}


async def test_a_writer_inside_a_block_is_an_error_that_says_what_to_do() -> None:
    class Nesting(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            async with ctx.store.edit_state():
                with pytest.raises(RuntimeError, match="mutate the yielded state"):
                    await ctx.store.set("a", 1)
            return StopEvent(result="said so")

    world = World(Nesting())
    world.start()
    await world.settle()
    assert world.result == "said so"


async def test_a_sync_body_may_use_the_store_on_a_loop_of_its_own() -> None:
    class Threaded(Workflow):
        @step
        def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            async def use() -> int:
                await ctx.store.set("a", 1)
                return await ctx.store.get("a")

            return StopEvent(result=asyncio.run(use()))

    world = World(Threaded())
    world.start()
    await world.settle()
    assert world.result == 1


async def test_a_writer_that_is_cancelled_does_not_keep_the_others_out() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Holding(Workflow):
        @step
        async def begin(self, ev: StartEvent) -> list[Part]:
            return [Part(number=0), Part(number=1)]

        @step(num_workers=2)
        async def write(self, ev: Part, ctx: Context) -> Done:
            async with ctx.store.edit_state() as state:
                state[f"by{ev.number}"] = True
                if ev.number == 0:
                    begun.set()
                    await go_on.wait()
            return Done(number=ev.number)

        @step
        async def end(self, ev: list[Done], ctx: Context) -> StopEvent:
            return StopEvent(result=sorted((await ctx.store.get_state())._data))

    world, env = World(Holding()), ActivityEnvironment()
    world.start()
    await world.perform()
    first, second = world.scheduled
    holding = asyncio.create_task(world.perform(first, env=env))
    await begun.wait()
    asked = asyncio.Event()
    world.on_signal = lambda name, value: asked.set() if name == SIGNAL_LOCK else None
    waiting = asyncio.create_task(world.perform(second, worker=world.worker()))
    await asked.wait()
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    await waiting
    go_on.set()
    world.scheduled = []
    await world.perform(first, attempt=2)
    await world.settle()
    assert world.result == ["by0", "by1"]

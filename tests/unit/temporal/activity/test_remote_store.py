"""`ctx.store` inside activities: read by queries, written in turn, and never written twice."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from activity_world import QUICK, World
from hand_made import signal
from msgspec.structs import replace
from pydantic import BaseModel
from temporalio.testing import ActivityEnvironment

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickEditStore
from loom.steps.errors import ContextStateError
from loom.temporal.names import SIGNAL_EFFECTS, SIGNAL_LOCK
from loom.temporal.payloads import Effects, LockRequest
from loom.temporal.rpc import RunUnreachable
from loom.temporal.workflow.hosted_run import StoreLock


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


async def test_writers_whose_worker_died_do_not_hold_each_other_up() -> None:
    world = World(Counting())
    world.start()
    await world.perform()
    first, second, *others = world.scheduled
    world.scheduled = []
    for asked in (first, second):  # by a worker that is killed before it writes
        await world.signal(SIGNAL_LOCK, LockRequest(int(asked.schedule_activity.activity_id)))
    async with asyncio.timeout(60):
        # The new worker begins with the one that stood behind the other.
        await asyncio.gather(world.perform(second, attempt=2), world.perform(first, attempt=2))
        await asyncio.gather(*[world.perform(other) for other in others])
        await world.settle()
    assert world.result == 6
    assert world.made.host.lock.holder is None


async def test_a_writer_that_is_dead_and_finds_no_room_to_begin_again_does_not_hold_up_the_others() -> None:
    world = World(Counting(), settings=replace(QUICK, lock_renew_s=0.01))
    world.start()
    await world.perform()
    dead, *others = world.scheduled
    world.scheduled = []
    await world.signal(SIGNAL_LOCK, LockRequest(int(dead.schedule_activity.activity_id)))
    asked = asyncio.Event()
    world.on_signal = lambda name, value: asked.set() if name == SIGNAL_LOCK else None
    async with asyncio.timeout(60):
        waiting = asyncio.gather(*[world.perform(other) for other in others])
        await asked.wait()
        world.made.now += 31
        await waiting
        await world.perform(dead, attempt=2)
        await world.settle()
    assert world.result == 6


def test_a_writer_keeps_its_turn_as_long_as_it_is_heard_of() -> None:
    lock = StoreLock()
    lock.ask(1, 0.0)
    for now in (20.0, 40.0, 60.0):
        lock.ask(1, now)
        lock.ask(2, now + 5)
        assert lock.holder == 1
    lock.ask(3, 91.0)
    assert lock.holder == 2, "it was silent for more than 30 seconds, and is passed over by who stood behind it"
    lock.ask(3, 110.0)
    assert lock.holder == 2, "its time begins with its turn"
    assert 1 not in lock


class TwoWriters(Workflow):
    """Two bodies of one step want to write what shows who did, in their order."""

    @step
    async def begin(self, ev: StartEvent) -> list[Part]:
        return [Part(number=0), Part(number=1)]

    @step
    async def end(self, ev: list[Done], ctx: Context) -> StopEvent:
        return StopEvent(result=await ctx.store.get("writers"))


async def both_writers(world: World) -> list[Any]:
    """Begin the run; the commands of the two, which nobody has taken yet."""
    world.start()
    await world.perform()
    writers, world.scheduled = world.scheduled, []
    return writers


async def test_an_edit_by_a_writer_that_has_lost_its_turn_does_not_undo_what_others_wrote() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(TwoWriters):
        @step(num_workers=2)
        async def write(self, ev: Part, ctx: Context) -> Done:
            async with ctx.store.edit_state() as state:
                before = state.get("writers", [])
                if ev.number == 0 and not go_on.is_set():
                    begun.set()
                    await go_on.wait()
                state["writers"] = [*before, ev.number]
            return Done(number=ev.number)

    world = World(Slow())
    first, second = await both_writers(world)
    async with asyncio.timeout(60):
        cut_off = asyncio.create_task(world.result_of(first))
        await begun.wait()
        world.made.now += 31
        await world.perform(second, worker=world.worker())
        go_on.set()
        await cut_off  # the cluster does not take its result: it has given the step to another worker
        await world.perform(first, attempt=2, worker=world.worker())
        await world.settle()
    assert world.result == [1, 0]


@pytest.mark.parametrize("awaits", [False, True])
async def test_a_writer_whose_event_loop_was_blocked_begins_again_if_another_one_had_its_turn(awaits: bool) -> None:
    blocked = 0

    class Blocked(TwoWriters):
        @step(num_workers=2)
        async def write(self, ev: Part, ctx: Context) -> Done:
            nonlocal blocked
            async with ctx.store.edit_state() as state:
                state["writers"] = [*state.get("writers", []), ev.number]
                if not blocked:
                    blocked += 1
                    time.sleep(0.05)  # noqa: ASYNC251 - that is the trouble
                    world.made.now += 31
                    number = int(second.schedule_activity.activity_id)
                    world.made.activate(signal(SIGNAL_LOCK, LockRequest(number)))
                    world.made.activate(signal(SIGNAL_EFFECTS, Effects((), unlocks=number)))
                    if awaits:  # so that it can say that it still wants the store
                        await asyncio.sleep(0.03)
            return Done(number=ev.number)

    world = World(Blocked(), settings=replace(QUICK, lock_renew_s=0.02))
    first, second = await both_writers(world)
    async with asyncio.timeout(60):
        with pytest.raises(RunUnreachable, match="begins again"):
            await world.result_of(first)
        await world.perform(second, worker=world.worker())
        await world.perform(first, attempt=2, worker=world.worker())
        await world.settle()
    assert world.result == [1, 0]


async def test_a_body_that_goes_on_after_it_was_stopped_does_not_ask_for_the_store() -> None:
    refused: list[str] = []

    class Stubborn(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            try:
                await ctx.wait_for_event(HumanResponseEvent)
            except asyncio.CancelledError:
                with pytest.raises(ContextStateError) as error:
                    await ctx.store.set("late", True)
                refused.append(str(error.value))
            return StopEvent()

    world = World(Stubborn())
    world.start()
    await world.settle()
    assert refused == ["Step 'only' was stopped: nothing that it does counts any more."]
    assert SIGNAL_LOCK not in [name for name, _ in world.signals]


async def test_a_writer_that_was_taken_for_dead_does_not_write_in_the_turn_of_its_next_attempt() -> None:
    begun, go_on, again, over = (asyncio.Event() for _ in range(4))

    class Stalled(TwoWriters):
        @step(num_workers=2)
        async def write(self, ev: Part, ctx: Context) -> Done:
            async with ctx.store.edit_state() as state:
                if ev.number == 0 and not begun.is_set():
                    begun.set()
                    await go_on.wait()
                elif ev.number == 0:
                    again.set()
                    await over.wait()
                state["writers"] = [*state.get("writers", []), ev.number]
            return Done(number=ev.number)

    world = World(Stalled())
    first, second = await both_writers(world)
    async with asyncio.timeout(60):
        stalled = asyncio.create_task(world.result_of(first))
        await begun.wait()
        other = asyncio.create_task(world.perform(second, worker=world.worker()))
        while len(world.made.host.lock._line) < 2:  # noqa: ASYNC110 - it stands in line
            await asyncio.sleep(0.001)
        repeated = asyncio.create_task(world.perform(first, attempt=2, worker=world.worker()))
        await again.wait()
        await other
        go_on.set()
        await stalled  # the cluster does not take its result
        over.set()
        await repeated
        await world.settle()
    assert world.result == [1, 0]


@pytest.mark.parametrize("writes", [True, False])
async def test_a_store_that_has_grown_too_large_is_an_error_in_the_body(writes: bool) -> None:
    class Hoarding(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: Context) -> StopEvent:
            for number in range(3):
                await ctx.store.set(f"k{number}", "x" * 800_000)
            if writes:
                await ctx.store.set("one", "more")
            return StopEvent(result=await ctx.store.get("k0"))

    world = World(Hoarding())
    world.start()
    await world.settle()
    assert "2 MiB" in world.outcome.failure.message
    assert world.made.host.lock.holder is None

"""Runs of every shape, saved in the middle: joins, slots, budgets, delays, half-done bodies."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from steps_rig import eventually, outcome_of, settled, until_idle

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from loom.steps.events import StepFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed, wait_none
from loom.steps.step_config import Collect, Take
from loom.testing import run_virtual


class Ask(InputRequiredEvent):
    pass


class Reply(HumanResponseEvent):
    n: int = 0


class Job(Event):
    n: int = 0


class Left(Event):
    n: int = 0


class Piece(Event):
    n: int = 0


class Sum(Event):
    n: int = 0


class Count(BaseModel):
    n: int = 0


async def moved(handler: Any, make: Any) -> Any:
    """The same run, in another instance of its workflow."""
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    workflow = make()
    return workflow.run(ctx=Context.from_dict(workflow, data))


class Slots(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Left | Ask:
        ctx.send_event(Left(n=1))
        ctx.send_event(Left(n=2))
        return Ask()

    @step
    async def pair(self, a: Left, b: Reply) -> StopEvent:
        return StopEvent(result=(a.n, b.n))


async def test_half_filled_slots_survive():
    handler = Slots(timeout=5, disable_validation=True).run()
    await until_idle(handler)
    again = await moved(handler, lambda: Slots(timeout=5, disable_validation=True))
    again.ctx.send_event(Reply(n=10))
    assert await again == (1, 10)


class Nested(Workflow):
    @step
    async def outer(self, ev: StartEvent) -> list[Job]:
        return [Job(n=n) for n in range(3)]

    @step
    async def inner(self, ev: Job) -> list[Piece]:
        return [Piece(n=ev.n), Piece(n=10 * ev.n)]

    @step
    async def work(self, ctx: Context, ev: Piece) -> Left:
        if ev.n in (2, 20):
            await ctx.wait_for_event(Reply, requirements={"n": ev.n})
        return Left(n=ev.n)

    @step
    async def inner_join(self, found: list[Left]) -> Sum:
        return Sum(n=sum(e.n for e in found))

    @step
    async def outer_join(self, found: list[Sum]) -> StopEvent:
        return StopEvent(result=sorted(e.n for e in found))


async def test_nested_streams_survive():
    handler = Nested(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(n=20))
    await until_idle(handler)
    again = await moved(handler, lambda: Nested(timeout=5))
    await settled()
    again = await moved(again, lambda: Nested(timeout=5))
    again.ctx.send_event(Reply(n=2))
    assert await again == [0, 11, 22]


class First(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Job]:
        return [Job(n=n) for n in range(3)]

    @step
    async def work(self, ctx: Context, ev: Job) -> Piece:
        if ev.n:
            await ctx.wait_for_event(Reply, requirements={"n": ev.n})
        return Piece(n=ev.n)

    @step
    async def join(self, ctx: Context, found: Annotated[list[Piece], Collect(Take(1))]) -> StopEvent:
        joins.append([e.n for e in found])
        await ctx.wait_for_event(Reply, requirements={"n": 9})
        return StopEvent(result=joins)


joins: list[list[int]] = []


async def test_join_that_has_fired_does_not_fire_again():
    joins.clear()
    handler = First(timeout=5).run()
    await until_idle(handler)
    again = await moved(handler, lambda: First(timeout=5))
    joins.clear()
    again.ctx.send_event(Reply(n=1))
    again.ctx.send_event(Reply(n=2))
    await settled(100)
    assert joins == []
    again.ctx.send_event(Reply(n=9))
    assert await again == [[0]]


class Budget(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Job:
        return Job()

    @step
    async def work(self, ctx: Context, ev: Job) -> StopEvent:
        if ev.n:
            await ctx.wait_for_event(Reply)
        raise ValueError(f"failure {ev.n}")

    @catch_error(max_recoveries=1)
    async def rescue(self, ev: StepFailedEvent) -> Job:
        return Job(n=ev.input_event.n + 1)


async def test_budget_of_recoveries_survives():
    handler = Budget(timeout=5).run()
    await until_idle(handler)
    again = await moved(handler, lambda: Budget(timeout=5))
    again.ctx.send_event(Reply())
    error = await outcome_of(again)
    assert isinstance(error, ValueError)
    assert str(error) == "failure 1"


class Delayed(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(100), stop=stop_after_attempt(2)))
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number == 0:
            raise ValueError("once")
        return StopEvent(result=(ctx.retry_info().retry_number, str(ctx.retry_info().last_exception)))


@pytest.mark.parametrize(("dead", "expected"), [(10, 100), (500, 540)])
def test_delay_of_a_retry_survives_and_is_never_early(dead: float, expected: float):
    async def main() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        handler = Delayed(timeout=None).run()
        await asyncio.sleep(40)
        data = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        await asyncio.sleep(dead)
        workflow = Delayed(timeout=None)
        return await workflow.run(ctx=Context.from_dict(workflow, data)), loop.time() - begun

    result, took = run_virtual(main())
    assert result == (1, "once")
    assert took == pytest.approx(expected, abs=1)


class HalfDone(Workflow):
    """A body that has had effects and is then interrupted, without a wait of its own."""

    gate: asyncio.Event | None = None

    @step
    async def start(self, ctx: Context[Count], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.n += 1
        ctx.send_event(Job(n=1))
        if self.gate is not None:
            await self.gate.wait()
        ctx.send_event(Job(n=2))
        async with ctx.store.edit_state() as state:
            state.n += 10
        await eventually(lambda: len(seen) >= 2)
        return StopEvent(result=await ctx.store.get("n"))

    @step
    async def note(self, ev: Job) -> None:
        seen.append(ev.n)


seen: list[int] = []


async def test_effects_of_an_interrupted_body_are_not_repeated():
    seen.clear()
    before = HalfDone(timeout=5, disable_validation=True)
    before.gate = asyncio.Event()
    handler = before.run()
    await eventually(lambda: seen == [1])
    again = await moved(handler, lambda: HalfDone(timeout=5, disable_validation=True))
    assert await again == 11
    assert seen == [1, 2]


async def test_effects_that_the_run_has_not_come_to_yet_are_saved():
    class Quick(Workflow):
        @step
        async def start(self, ctx: Context[Count], ev: StartEvent) -> StopEvent:
            async with ctx.store.edit_state() as state:
                state.n += 1
            if saved.get("handler") is not None and "data" not in saved:
                # Saved from within the same turn of the loop as the edit.
                saved["data"] = json.loads(json.dumps(saved["handler"].ctx.to_dict()))
            return StopEvent(result=await ctx.store.get("n"))

    saved: dict[str, Any] = {}
    workflow = Quick(timeout=5)
    saved["handler"] = handler = workflow.run()
    assert await handler == 1
    again = Quick(timeout=5)
    assert await again.run(ctx=Context.from_dict(again, saved["data"])) == 1


class Retried(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def start(self, ctx: Context[Count], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.n += 1
        if ctx.retry_info().retry_number < 1:
            raise ValueError("again")
        reply = await ctx.wait_for_event(Reply)
        return StopEvent(result=(await ctx.store.get("n"), reply.n))


async def test_retry_applies_its_effects_again_but_a_resume_does_not():
    handler = Retried(timeout=5).run()
    await until_idle(handler)
    again = await moved(handler, lambda: Retried(timeout=5))
    again.ctx.send_event(Reply(n=3))
    assert await again == (2, 3)


async def test_run_saved_before_its_loop_has_turned_is_not_lost():
    class Plain(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=ev.n)

    workflow = Plain(timeout=5)
    handler = workflow.run(n=7)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler
    context = Context.from_dict(workflow, data)
    assert context.is_running
    assert await workflow.run(ctx=context) == 7


async def test_run_that_is_held_back_is_saved_with_its_start():
    class Waits(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Reply)
            return StopEvent(result=ev.n)

    workflow = Waits(timeout=5, num_concurrent_runs=1)
    first, second = workflow.run(n=1), workflow.run(n=2)
    await until_idle(first)
    data = json.loads(json.dumps(second.ctx.to_dict()))
    await second.cancel_run()
    await first.cancel_run()
    again = workflow.run(ctx=Context.from_dict(workflow, data))
    again.ctx.send_event(Reply())
    assert await again == 2

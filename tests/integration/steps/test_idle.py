"""Idle and asleep: told on the transition, told apart."""

from __future__ import annotations

import asyncio

import pytest
from steps_rig import of_type, outcome_of, settled, until, until_idle

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowTimeoutError
from loom.steps.events import WorkflowIdleEvent


class Ask(InputRequiredEvent):
    pass


class Reply(HumanResponseEvent):
    n: int = 0


class Job(Event):
    n: int = 0


class Waits(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(Reply)
        second = await ctx.wait_for_event(Reply)
        return StopEvent(result=first.n + second.n)


async def test_every_transition_to_idle_is_told_once():
    handler = Waits(timeout=5).run()
    assert not handler.ctx.is_idle
    await until_idle(handler)
    assert handler.ctx.is_idle
    handler.ctx.send_event(Reply(n=1))
    await until_idle(handler)
    handler.ctx.send_event(Reply(n=2))
    assert await handler == 3
    assert not handler.ctx.is_idle
    events = [e async for e in handler.stream_events(expose_internal=True, after=-1)]
    idle = of_type(events, WorkflowIdleEvent)
    assert len(idle) == 2
    assert idle[0].idle_since <= idle[1].idle_since


async def test_run_that_asked_by_an_event_is_idle_without_a_waiter():
    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> Ask:
            return Ask()

        @step
        async def end(self, ev: Reply) -> StopEvent:
            return StopEvent(result=ev.n)

    handler = Asks(timeout=5).run()
    idle = await until(handler.stream_events(expose_internal=True), WorkflowIdleEvent)
    assert [(w["step"], w["event_type"].rpartition(".")[2]) for w in idle.waiters] == [("end", "Reply")]
    handler.ctx.send_event(Reply(n=4))
    assert await handler == 4


async def test_run_with_nothing_left_to_do_is_idle_without_waiters_and_its_timeout_stays():
    class Ends(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent | None:
            return None

    handler = Ends(timeout=0.5).run()
    idle = await until(handler.stream_events(expose_internal=True), WorkflowIdleEvent)
    assert idle.waiters == []
    assert handler.ctx.is_idle
    assert isinstance(await outcome_of(handler), WorkflowTimeoutError)


async def test_sleeping_run_is_not_idle():
    class Sleeps(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.sleep(0.03)
            return StopEvent(result="slept")

    handler = Sleeps(timeout=5).run()
    await settled()
    assert not handler.ctx.is_idle
    assert await handler == "slept"
    events = [e async for e in handler.stream_events(expose_internal=True, after=-1)]
    assert not of_type(events, WorkflowIdleEvent)


async def test_waiter_with_a_timeout_is_idle_all_the_same():
    class Impatient(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.wait_for_event(Reply, timeout=0.3)
            except TimeoutError:
                return StopEvent(result="gave up")
            return StopEvent()

    handler = Impatient(timeout=5).run()
    idle = await until(handler.stream_events(expose_internal=True), WorkflowIdleEvent)
    assert idle.waiters[0]["deadline"] > idle.idle_since
    assert handler.ctx.is_idle
    assert await handler == "gave up"


async def test_busy_sibling_keeps_the_run_from_being_idle():
    class Two(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.send_event(Job(n=0))
            ctx.send_event(Job(n=1))
            return None

        @step
        async def work(self, ctx: Context, ev: Job) -> StopEvent | None:
            if ev.n:
                await gate.wait()
                return None
            reply = await ctx.wait_for_event(Reply)
            return StopEvent(result=reply.n)

    gate = asyncio.Event()
    handler = Two(timeout=5).run()
    await settled()
    assert not handler.ctx.is_idle
    gate.set()
    await until_idle(handler)
    handler.ctx.send_event(Reply(n=1))
    assert await handler == 1


async def test_event_that_arrives_with_the_wait_is_no_lost_race():
    class Echo(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            total = 0
            for _ in range(50):
                ctx.write_event_to_stream(Job())
                total += (await ctx.wait_for_event(Reply)).n
            return StopEvent(result=total)

    handler = Echo(timeout=5).run()
    async for event in handler.stream_events():
        if isinstance(event, Job):
            handler.ctx.send_event(Reply(n=1))
    assert await handler == 50


@pytest.mark.parametrize("late", [False, True])
async def test_idle_is_not_told_when_input_is_at_hand(late: bool):
    handler = Waits(timeout=5).run()
    if late:
        await until_idle(handler)
    handler.ctx.send_event(Reply(n=1))
    handler.ctx.send_event(Reply(n=2))
    assert await handler == 3

"""What llama-index-workflows 2.26 is known to get wrong, about waiting: each test fails there and holds here."""

from __future__ import annotations

import asyncio
import json

from pydantic import BaseModel, Field
from steps_rig import of_type, settled, until_idle

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from loom.steps.events import UnhandledEvent


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class Job(Event):
    n: int = 0


class Note(Event):
    lines: list[str] = Field(default_factory=list)


class Count(BaseModel):
    charged: int = 0


class TwoReplies(Workflow):
    bodies = after = 0

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        first = await ctx.wait_for_event(Reply)
        second = await ctx.wait_for_event(Reply)
        self.after += 1
        return StopEvent(result=(first.text, second.text))


async def test_resolved_waiter_is_consumed_once_and_never_overwritten():
    workflow = TwoReplies(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    await handler.send_event(Reply(text="r1"))
    await until_idle(handler)
    await handler.send_event(Reply(text="r2"))
    assert await handler == ("r1", "r2")
    assert (workflow.bodies, workflow.after) == (1, 1)


async def test_two_quick_replies_run_the_rest_of_the_body_once():
    workflow = TwoReplies(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    await asyncio.gather(handler.send_event(Reply(text="r1")), handler.send_event(Reply(text="r2")))
    assert await handler == ("r1", "r2")
    assert (workflow.bodies, workflow.after) == (1, 1)


class Effects(Workflow):
    jobs = 0

    @step
    async def ask(self, ctx: Context[Count], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.charged += 1
        ctx.send_event(Job())
        ctx.write_event_to_stream(Note(lines=["asking"]))
        await ctx.wait_for_event(Reply)
        return StopEvent(result=await ctx.store.get("charged"))

    @step
    async def job(self, ev: Job) -> None:
        self.jobs += 1


async def test_waiting_does_not_repeat_store_writes_sends_and_stream_events():
    workflow = Effects(timeout=5, disable_validation=True)
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply())
    assert await handler == 1
    assert workflow.jobs == 1
    events = [e async for e in handler.stream_events(after=-1)]
    assert len(of_type(events, Note)) == 1


async def test_committed_effects_are_not_repeated_after_a_restore():
    before = Effects(timeout=5, disable_validation=True)
    handler = before.run()
    await until_idle(handler)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    after = Effects(timeout=5, disable_validation=True)
    again = after.run(ctx=Context.from_dict(after, data))
    again.ctx.send_event(Reply())
    assert await again == 1
    assert after.jobs == 0


async def test_broad_except_does_not_swallow_a_wait():
    class Broad(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                reply = await ctx.wait_for_event(Reply)
            except Exception:  # noqa: BLE001 - the subject
                return StopEvent(result="swallowed")
            return StopEvent(result=reply.text)

    handler = Broad(timeout=5).run()
    await settled()
    handler.ctx.send_event(Reply(text="through"))
    assert await handler == "through"


async def test_event_that_arrives_before_its_waiter_is_kept():
    class Late(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await gate.wait()
            reply = await ctx.wait_for_event(Reply)
            return StopEvent(result=reply.text)

    gate = asyncio.Event()
    handler = Late(timeout=5).run()
    stream = handler.stream_events(expose_internal=True)
    handler.ctx.send_event(Reply(text="early"))
    async for event in stream:
        if isinstance(event, UnhandledEvent):
            gate.set()
    assert await handler == "early"


async def test_timeout_of_a_waiter_is_armed_after_a_restore():
    class Impatient(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await ctx.wait_for_event(Reply, timeout=0.5)
            except TimeoutError:
                return StopEvent(result="gave up")
            return StopEvent(result="answered")

    handler = Impatient(timeout=5).run()
    await until_idle(handler)
    data = handler.ctx.to_dict()
    await handler.cancel_run()
    workflow = Impatient(timeout=5)
    assert await workflow.run(ctx=Context.from_dict(workflow, data)) == "gave up"


async def test_durable_sleep_gives_its_worker_away():
    class Naps(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
            ctx.send_event(Job(n=0))
            ctx.send_event(Job(n=1))
            return None

        @step(num_workers=1)
        async def nap(self, ctx: Context, ev: Job) -> StopEvent | None:
            order.append(ev.n)
            if ev.n == 0:
                await ctx.sleep(0.02)
                return StopEvent(result=order)
            return None

    order: list[int] = []
    assert await Naps(timeout=5).run() == [0, 1]


async def test_restored_waiter_knows_its_requirements_without_running_the_step():
    class Picky(Workflow):
        bodies = 0

        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.bodies += 1
            reply = await ctx.wait_for_event(Reply, requirements={"who": "ada"})
            return StopEvent(result=reply.text)

    handler = Picky(timeout=5).run()
    await until_idle(handler)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    workflow = Picky(timeout=5)
    again = workflow.run(ctx=Context.from_dict(workflow, data))
    await settled()
    assert workflow.bodies == 0
    again.ctx.send_event(Reply(text="no", who="bob"))
    await settled()
    assert workflow.bodies == 0
    again.ctx.send_event(Reply(text="yes", who="ada"))
    assert await again == "yes"
    assert workflow.bodies == 1

"""A run saved with `to_dict` in mid-run goes on from `from_dict`, with nothing lost and nothing done twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import BaseModel
from steps_rig import eventually, of_type, outcome_of, settled, until_idle

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Ask(InputRequiredEvent):
    question: str = ""


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Piece(Event):
    n: int = 0


class Count(BaseModel):
    charged: int = 0


def through_json(handler: Any) -> dict[str, Any]:
    """What a program would find again after a restart."""
    return json.loads(json.dumps(handler.ctx.to_dict()))


def resumed(workflow: Workflow, data: dict[str, Any]) -> Any:
    context = Context.from_dict(workflow, data)
    assert context.is_running
    return workflow.run(ctx=context)


class Charge(Workflow):
    bodies: list[str]

    @step
    async def start(self, ctx: Context[Count], ev: StartEvent) -> StopEvent:
        self.bodies.append("start")
        async with ctx.store.edit_state() as state:
            state.charged += 1
        ctx.send_event(Job(n=1))
        reply = await ctx.wait_for_event(Reply, waiter_event=Ask(question="sure?"))
        return StopEvent(result=(reply.text, await ctx.store.get("charged"), self.bodies.count("job")))

    @step
    async def job(self, ev: Job) -> None:
        self.bodies.append("job")


def charge() -> Charge:
    workflow = Charge(timeout=5, disable_validation=True)
    workflow.bodies = []
    return workflow


async def test_waiting_run_goes_on_in_another_process():
    before = charge()
    handler = before.run()
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()

    after = charge()
    again = resumed(after, data)
    await until_idle(again)
    again.ctx.send_event(Reply(text="yes"))
    # The store edit and the send had been committed: the body ran again, they did not.
    assert await again == ("yes", 1, 0)
    assert after.bodies == ["start"]


async def test_waiter_event_is_not_published_again():
    handler = charge().run()
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(charge(), data)
    again.ctx.send_event(Reply(text="yes"))
    await again
    events = [e async for e in again.stream_events(after=-1)]
    assert of_type(events, Ask) == []


async def test_cancelled_run_can_be_resumed():
    handler = charge().run()
    await until_idle(handler)
    await handler.cancel_run()
    data = through_json(handler)
    assert data["is_running"] is True
    again = resumed(charge(), data)
    again.ctx.send_event(Reply(text="later"))
    assert await again == ("later", 1, 0)


async def test_saving_leaves_the_run_alone():
    handler = charge().run()
    await until_idle(handler)
    first, second = through_json(handler), through_json(handler)
    assert first["workers"] == second["workers"]
    handler.ctx.send_event(Reply(text="still here"))
    assert await handler == ("still here", 1, 1)


async def test_finished_context_starts_a_new_run_with_its_state():
    workflow = charge()
    handler = workflow.run()
    handler.ctx.send_event(Reply(text="first"))
    await handler
    data = through_json(handler)
    assert data["is_running"] is False
    context = Context.from_dict(workflow, data)
    assert context.is_running is False
    assert await context.store.get("charged") == 1
    again = workflow.run(ctx=context)
    again.ctx.send_event(Reply(text="second"))
    assert (await again)[:2] == ("second", 2)


async def test_state_can_be_left_out():
    handler = charge().run()
    await until_idle(handler)
    data = handler.ctx.to_dict(include_state=False)
    assert data["state"] == {}
    await handler.cancel_run()


class TwoWaits(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(Reply)
        second = await ctx.wait_for_event(Reply)
        return StopEvent(result=(first.text, second.text))


async def test_answer_that_was_given_is_at_hand_after_a_resume():
    handler = TwoWaits(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="r1"))
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(TwoWaits(timeout=5), data)
    again.ctx.send_event(Reply(text="r2"))
    assert await again == ("r1", "r2")


class Picky(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply, requirements={"who": "ada"})
        return StopEvent(result=reply.text)


async def test_requirements_hold_at_once_after_a_resume():
    handler = Picky(timeout=5).run()
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(Picky(timeout=5), data)
    again.ctx.send_event(Reply(text="not me", who="bob"))
    again.ctx.send_event(Reply(text="me", who="ada"))
    assert await again == "me"


class Queue(Workflow):
    """One worker, so that jobs queue behind the first."""

    gate: asyncio.Event | None = None
    done: list[int]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(4):
            ctx.send_event(Job(n=n))
        return None

    @step(num_workers=1)
    async def work(self, ctx: Context, ev: Job) -> Done:
        self.done.append(ev.n)
        if self.gate is not None:
            await self.gate.wait()
        return Done(n=ev.n)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        found = ctx.collect_events(ev, [Done] * 4)
        return StopEvent(result=[e.n for e in found]) if found else None


async def test_queued_work_goes_on_and_work_in_progress_runs_again():
    before = Queue(timeout=5)
    before.gate, before.done = asyncio.Event(), []
    handler = before.run()
    await eventually(lambda: before.done == [0])
    data = through_json(handler)
    await handler.cancel_run()
    after = Queue(timeout=5)
    after.done = []
    assert await resumed(after, data) == [0, 1, 2, 3]
    assert after.done == [0, 1, 2, 3]


class Gather(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Ask:
        return Ask(question="two replies please")

    @step(num_workers=1)
    async def join(self, ctx: Context, ev: Reply) -> StopEvent | None:
        found = ctx.collect_events(ev, [Reply, Reply])
        return StopEvent(result=[e.text for e in found]) if found else None


async def test_collected_events_survive():
    handler = Gather(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="one"))
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(Gather(timeout=5), data)
    again.ctx.send_event(Reply(text="two"))
    assert await again == ["one", "two"]


class Stream(Workflow):
    @step
    async def split(self, ev: StartEvent) -> list[Job]:
        return [Job(n=n) for n in range(4)]

    @step(num_workers=4)
    async def work(self, ctx: Context, ev: Job) -> Piece:
        if ev.n >= 2:
            reply = await ctx.wait_for_event(Reply, requirements={"who": str(ev.n)})
            return Piece(n=int(reply.text))
        return Piece(n=ev.n)

    @step
    async def join(self, pieces: list[Piece]) -> StopEvent:
        return StopEvent(result=sorted(p.n for p in pieces))


async def test_open_stream_survives():
    handler = Stream(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="20", who="2"))
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(Stream(timeout=5), data)
    again.ctx.send_event(Reply(text="30", who="3"))
    assert await again == [0, 1, 20, 30]


async def test_kept_early_event_survives():
    class Late(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Job)
            reply = await ctx.wait_for_event(Reply)
            return StopEvent(result=reply.text)

    handler = Late(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="early"))
    await settled()
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(Late(timeout=5), data)
    again.ctx.send_event(Job())
    assert await again == "early"


async def test_kept_event_for_one_waiter_id_survives():
    class Late(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Job)
            other = await ctx.wait_for_event(Reply, waiter_id="other")
            mine = await ctx.wait_for_event(Reply, waiter_id="mine")
            return StopEvent(result=(other.text, mine.text))

    handler = Late(timeout=5).run()
    await until_idle(handler)
    await handler.send_event(Reply(text="for me"), waiter_id="mine")
    await handler.send_event(Reply(text="for any"))
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(Late(timeout=5), data)
    again.ctx.send_event(Job())
    assert await again == ("for any", "for me")


async def test_attempts_go_on_counting():
    class Flaky(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            tries.append(ctx.retry_info().retry_number)
            if ctx.retry_info().retry_number == 1:
                await ctx.wait_for_event(Reply)
            raise ValueError("always")

    tries: list[int] = []
    handler = Flaky(timeout=5).run()
    await until_idle(handler)
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(Flaky(timeout=5), data)
    again.ctx.send_event(Reply())
    assert isinstance(await outcome_of(again), ValueError)
    assert tries == [0, 1, 1, 2]


async def test_resumed_run_can_be_saved_and_resumed_again():
    handler = TwoWaits(timeout=5).run()
    await until_idle(handler)
    for _ in range(3):
        data = through_json(handler)
        await handler.cancel_run()
        handler = resumed(TwoWaits(timeout=5), data)
        await settled()
    handler.ctx.send_event(Reply(text="a"))
    await settled()
    data = through_json(handler)
    await handler.cancel_run()
    handler = resumed(TwoWaits(timeout=5), data)
    handler.ctx.send_event(Reply(text="b"))
    assert await handler == ("a", "b")


async def test_prepared_context_can_be_saved():
    workflow = charge()
    context: Context[Count] = Context(workflow)
    await context.store.set("charged", 7)
    data = json.loads(json.dumps(context.to_dict()))
    restored = Context.from_dict(workflow, data)
    assert restored.is_running is False
    assert await restored.store.get("charged") == 7


async def test_event_sent_by_handler_right_before_saving_is_not_lost():
    handler = TwoWaits(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="a"))
    data = through_json(handler)
    await handler.cancel_run()
    again = resumed(TwoWaits(timeout=5), data)
    again.ctx.send_event(Reply(text="b"))
    assert await again == ("a", "b")

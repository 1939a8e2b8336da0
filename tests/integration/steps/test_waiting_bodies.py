"""What a body that waits can meet, and what it may do meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from steps_rig import eventually, of_type, settled, until, until_idle

from loom import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowCancelledByUser
from loom.steps.events import UnhandledEvent, WorkflowIdleEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Ask(InputRequiredEvent):
    question: str = ""


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


class AskOnce(Workflow):
    bodies = 0

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        reply = await ctx.wait_for_event(Reply, waiter_event=Ask(question="name?"))
        return StopEvent(result=reply.text)


class WithRequirements(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        reply = await ctx.wait_for_event(Reply, requirements={"who": "ada"})
        return StopEvent(result=reply.text)


class Swallow(Workflow):
    met: list[str]

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            reply = await ctx.wait_for_event(Reply)
        except Exception as error:  # noqa: BLE001 - the subject
            self.met.append(type(error).__name__)
            return StopEvent(result="swallowed")
        except asyncio.CancelledError:
            self.met.append("CancelledError")
            raise
        return StopEvent(result=reply.text)


async def test_except_exception_cannot_swallow_a_wait():
    workflow = Swallow(timeout=5)
    workflow.met = []
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="through"))
    assert await handler == "through"
    assert workflow.met == []


async def test_waiting_body_meets_cancelled_error_when_the_run_is_cancelled():
    workflow = Swallow(timeout=5)
    workflow.met = []
    handler = workflow.run()
    await until_idle(handler)
    await handler.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert workflow.met == ["CancelledError"]


class TwoWaits(Workflow):
    bodies = 0

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        first = await ctx.wait_for_event(Reply)
        second = await ctx.wait_for_event(Reply)
        return StopEvent(result=(first.text, second.text))


async def test_two_waits_in_a_row_get_two_events():
    workflow = TwoWaits(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="r1"))
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="r2"))
    assert await handler == ("r1", "r2")
    assert workflow.bodies == 1


async def test_quick_second_reply_is_kept_for_the_second_wait():
    workflow = TwoWaits(timeout=5)
    handler = workflow.run()
    await until_idle(handler)
    handler.ctx.send_event(Reply(text="r1"))
    handler.ctx.send_event(Reply(text="r2"))
    assert await handler == ("r1", "r2")
    assert workflow.bodies == 1


class LateWaiter(Workflow):
    gate: asyncio.Event

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await self.gate.wait()
        reply = await ctx.wait_for_event(Reply)
        return StopEvent(result=reply.text)


async def test_event_that_came_before_its_waiter_is_kept_and_reported_as_unhandled():
    workflow = LateWaiter(timeout=5)
    workflow.gate = asyncio.Event()
    handler = workflow.run()
    handler.ctx.send_event(Reply(text="early"))
    await settled()
    workflow.gate.set()
    assert await handler == "early"
    events = [e async for e in handler.stream_events(expose_internal=True, after=-1)]
    assert [e.event_type for e in of_type(events, UnhandledEvent)] == ["Reply"]


async def test_stop_events_and_input_requests_are_not_kept():
    class Odd(Workflow):
        @step
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await gate.wait()
            for kind in (Ask, StopEvent):
                try:
                    await ctx.wait_for_event(kind, timeout=0.01)
                except TimeoutError:
                    continue
                return StopEvent(result=f"{kind.__name__} was kept")
            return StopEvent(result="none was kept")

    gate = asyncio.Event()
    handler = Odd(timeout=5).run()
    handler.ctx.send_event(Ask())
    handler.ctx.send_event(StopEvent(result="sent"))
    await settled()
    gate.set()
    assert await handler == "none was kept"


class Gathered(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        a, b = await asyncio.gather(
            ctx.wait_for_event(Reply, requirements={"who": "a"}),
            ctx.wait_for_event(Reply, requirements={"who": "b"}),
        )
        return StopEvent(result=a.text + b.text)


async def test_waits_in_child_tasks():
    handler = Gathered(timeout=5).run()
    await settled()
    handler.ctx.send_event(Reply(text="B", who="b"))
    handler.ctx.send_event(Reply(text="A", who="a"))
    assert await handler == "AB"


class OwnTimeout(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            async with asyncio.timeout(0.02):
                await ctx.wait_for_event(Reply)
        except TimeoutError:
            second = await ctx.wait_for_event(Reply, waiter_event=Ask(question="again"))
            return StopEvent(result=second.text)
        return StopEvent(result="first")


async def test_body_may_give_a_wait_up_by_itself():
    handler = OwnTimeout(timeout=5).run()
    await until(handler.stream_events(), Ask)
    handler.ctx.send_event(Reply(text="later"))
    assert await handler == "later"


class Sleeps(Workflow):
    bodies = 0

    @step
    async def nap(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        await ctx.sleep(0.01)
        await ctx.sleep(0)
        return StopEvent(result="awake")


async def test_sleep_suspends_the_body():
    workflow = Sleeps(timeout=5)
    assert await workflow.run() == "awake"
    assert workflow.bodies == 1


async def test_idle_event_names_the_waiters():
    handler = WithRequirements(timeout=5).run()
    idle = await until(handler.stream_events(expose_internal=True), WorkflowIdleEvent)
    (waiter,) = idle.waiters
    assert waiter["step"] == "ask"
    assert waiter["event_type"].endswith(".Reply")
    assert waiter["requirements"] == {"who": "ada"}
    assert waiter["waiter_id"].startswith("waiter_")
    assert waiter["waiter_id"].endswith("work_item_1")
    await handler.cancel_run()


async def test_event_sent_from_another_thread_arrives():
    handler = AskOnce(timeout=5).run()
    await until_idle(handler)
    await asyncio.to_thread(handler.ctx.send_event, Reply(text="from a thread"))
    assert await handler == "from a thread"


async def test_retry_after_a_wait_that_timed_out_waits_anew():
    class Again(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
            tries.append(ctx.retry_info().retry_number)
            reply = await ctx.wait_for_event(Reply, timeout=0.02 if len(tries) == 1 else 60)
            return StopEvent(result=(reply.text, tries))

    tries: list[int] = []
    handler = Again(timeout=5).run()
    await eventually(lambda: tries == [0, 1])
    handler.ctx.send_event(Reply(text="at last"))
    assert await handler == ("at last", [0, 1])

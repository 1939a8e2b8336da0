"""Cancelling a run, and bodies that are cancelled from within."""

from __future__ import annotations

import asyncio

import pytest
from steps_rig import outcome_of, settled, streamed, until_idle

from loom import Context, Event, StartEvent, StopEvent, Workflow, catch_error, step
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from loom.steps.events import StepFailedEvent, WorkflowCancelledEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Job(Event):
    n: int = 0


class Long(Workflow):
    met: list[str]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.met.append("cancelled")
            raise
        return StopEvent()


def long() -> Long:
    workflow = Long(timeout=5)
    workflow.met = []
    return workflow


async def test_cancelled_run_raises_publishes_and_cancels_its_bodies():
    workflow = long()
    handler = workflow.run()
    await settled()
    await handler.cancel_run()
    assert handler.is_done()
    with pytest.raises(WorkflowCancelledByUser):
        await handler
    assert workflow.met == ["cancelled"]
    assert [type(e) for e in await streamed(handler)] == [WorkflowCancelledEvent]


async def test_cancelling_twice_or_after_the_end_does_nothing():
    handler = long().run()
    await settled()
    await handler.cancel_run()
    await handler.cancel_run()
    events = [e async for e in handler.stream_events(after=-1)]
    assert [type(e) for e in events] == [WorkflowCancelledEvent]


async def test_cancelling_before_the_first_body_runs():
    workflow = long()
    handler = workflow.run()
    await handler.cancel_run()
    assert isinstance(await outcome_of(handler), WorkflowCancelledByUser)


async def test_body_that_does_not_stop_holds_nothing_up_for_long():
    class Stubborn(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return StopEvent(result="too late")

    release = asyncio.Event()
    handler = Stubborn(timeout=5).run()
    await settled()
    begun = asyncio.get_running_loop().time()
    await handler.cancel_run()
    assert asyncio.get_running_loop().time() - begun < 2
    assert isinstance(await outcome_of(handler), WorkflowCancelledByUser)
    release.set()
    await settled()


class SelfCancelled(Workflow):
    tries = 0

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def start(self, ev: StartEvent) -> StopEvent:
        self.tries += 1
        if self.tries == 1:
            raise asyncio.CancelledError("not by the run")
        return StopEvent(result=self.tries)


async def test_cancelled_error_of_a_step_is_retried_like_any_failure():
    assert await SelfCancelled(timeout=2).run() == 2


class Rescued(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        task = asyncio.current_task()
        task.cancel()
        await asyncio.sleep(0)
        return StopEvent()

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(result=ev.step_name)


async def test_cancelled_error_of_a_step_reaches_catch_error():
    assert await Rescued(timeout=2).run() == "start"


class Uncaught(Workflow):
    @step
    async def start(self, ev: StartEvent) -> StopEvent:
        raise asyncio.CancelledError


async def test_uncaught_cancelled_error_of_a_step_fails_the_run():
    handler = Uncaught(timeout=2).run()
    with pytest.raises(WorkflowRuntimeError, match="Step start was cancelled from within") as raised:
        await handler
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert handler.is_done()


async def test_whoever_awaits_a_handler_may_be_cancelled_without_harm_to_the_run():
    class Waits(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            job = await ctx.wait_for_event(Job)
            return StopEvent(result=job.n)

    handler = Waits(timeout=5).run()
    await until_idle(handler)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(handler, 0.01)
    handler.ctx.send_event(Job(n=5))
    assert await handler == 5


async def test_deprecated_cancel_asks_the_run_to_stop():
    handler = long().run()
    await settled()
    with pytest.warns(DeprecationWarning, match="cancel_run"):
        handler.cancel()
    assert isinstance(await outcome_of(handler), WorkflowCancelledByUser)


async def test_failure_that_is_no_exception_is_a_failure_like_any_other():
    class Odd(BaseException):
        pass

    class Raises(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            raise Odd("not an Exception")

    with pytest.raises(Odd, match="not an Exception"):
        await Raises(timeout=2).run()

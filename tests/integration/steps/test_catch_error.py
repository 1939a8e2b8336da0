"""`@catch_error`: recovery when a step's retries are used up, within a budget along the line of an event."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from steps_rig import outcome_of, streamed

from loom import Context, Event, StartEvent, StopEvent, Workflow, catch_error, step
from loom.steps.errors import WorkflowCancelledByUser, WorkflowTimeoutError
from loom.steps.events import StepFailedEvent, WorkflowFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Boom(Exception):
    pass


class Rescue(Workflow):
    calls = 0

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def work(self, ev: StartEvent) -> StopEvent:
        self.calls += 1
        raise Boom(f"call {self.calls}")

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(result=ev)


async def test_handler_runs_when_the_retries_are_used_up():
    workflow = Rescue(timeout=5)
    failed = await workflow.run(topic="x")
    assert workflow.calls == 3
    assert failed.step_name == "work"
    assert type(failed.exception) is Boom
    assert str(failed.exception) == "call 3"
    assert failed.attempts == 3
    assert type(failed.input_event) is StartEvent
    assert failed.input_event.topic == "x"
    assert failed.elapsed_seconds >= 0
    assert isinstance(failed.failed_at, datetime)


async def test_recovered_failure_shows_no_failure_on_the_stream():
    events = await streamed(Rescue(timeout=5).run())
    assert [type(e) for e in events] == [StopEvent]


class Routed(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Job:
        return Job(n=1)

    @step
    async def work(self, ev: Job) -> Done:
        raise Boom("bad")

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> Done:
        return Done(n=ev.input_event.n + 41)

    @step
    async def end(self, ev: Done) -> StopEvent:
        return StopEvent(result=ev.n)


async def test_what_a_handler_returns_is_routed():
    assert await Routed(timeout=5).run() == 42


class Scoped(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Job | Done:
        return Job() if ev.where == "a" else Done()

    @step
    async def a(self, ev: Job) -> StopEvent:
        raise Boom("a")

    @step
    async def b(self, ev: Done) -> StopEvent:
        raise Boom("b")

    @catch_error(for_steps=["a"])
    async def only_a(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(result="only_a")

    @catch_error
    async def others(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(result="others")


async def test_step_belongs_to_the_handler_that_names_it_else_to_the_wildcard():
    assert await Scoped(timeout=5).run(where="a") == "only_a"
    assert await Scoped(timeout=5).run(where="b") == "others"


class Unnamed(Workflow):
    @step
    async def start(self, ev: StartEvent) -> Job | Done:
        return Done()

    @step
    async def a(self, ev: Job) -> StopEvent:
        raise Boom("a")

    @step
    async def b(self, ev: Done) -> StopEvent:
        raise Boom("b")

    @catch_error(for_steps=["a"])
    async def only_a(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(result="only_a")


async def test_failure_of_a_step_that_no_handler_covers_fails_the_run():
    handler = Unnamed(timeout=5).run()
    events = await streamed(handler)
    assert type(events[-1]) is WorkflowFailedEvent
    assert events[-1].step_name == "b"
    with pytest.raises(Boom, match="b"):
        await handler


class Loop(Workflow):
    """The handler sends the same work again and again."""

    tries = 0

    @step
    async def start(self, ev: StartEvent) -> Job:
        return Job()

    @step
    async def work(self, ev: Job) -> StopEvent:
        self.tries += 1
        raise Boom(f"try {self.tries}")


def looping(budget: int, sends: bool) -> Workflow:
    class Again(Loop):
        @catch_error(max_recoveries=budget)
        async def rescue(self, ctx: Context, ev: StepFailedEvent) -> Job | None:
            if sends:
                ctx.send_event(Job())
                return None
            return Job()

    return Again(timeout=5)


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("budget", [1, 3])
async def test_budget_counts_along_the_line_of_an_event(budget: int, sends: bool):
    workflow = looping(budget, sends)
    with pytest.raises(Boom, match=f"try {budget + 1}"):
        await workflow.run()


class Siblings(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(5):
            ctx.send_event(Job(n=n))
        return None

    @step
    async def work(self, ev: Job) -> Done:
        raise Boom("each fails once")

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> Done:
        return Done(n=ev.input_event.n)

    @step
    async def join(self, ctx: Context, ev: Done) -> StopEvent | None:
        done = ctx.collect_events(ev, [Done] * 5)
        return StopEvent(result=sorted(e.n for e in done)) if done else None


async def test_lines_have_budgets_of_their_own():
    assert await Siblings(timeout=5).run() == [0, 1, 2, 3, 4]


class BadHandler(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        raise Boom("first")

    @catch_error(max_recoveries=5)
    async def rescue(self, ev: StepFailedEvent) -> StopEvent:
        raise ValueError("the handler fails too")


async def test_handler_that_raises_fails_the_run():
    handler = BadHandler(timeout=5).run()
    with pytest.raises(ValueError, match="the handler fails too"):
        await handler
    events = await streamed(handler)
    assert events[-1].step_name == "rescue"


class NotForThese(Workflow):
    rescued = 0

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.Event().wait()
        return StopEvent()

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> StopEvent:
        self.rescued += 1
        return StopEvent(result="rescued")


async def test_timeout_does_not_go_through_handlers():
    workflow = NotForThese(timeout=0.03)
    assert isinstance(await outcome_of(workflow.run()), WorkflowTimeoutError)
    assert workflow.rescued == 0


async def test_cancellation_does_not_go_through_handlers():
    workflow = NotForThese(timeout=5)
    handler = workflow.run()
    await asyncio.sleep(0)
    await handler.cancel_run()
    assert isinstance(await outcome_of(handler), WorkflowCancelledByUser)
    assert workflow.rescued == 0

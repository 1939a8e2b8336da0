from __future__ import annotations

import pytest

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.events import StepState, StepStateChanged, WorkflowFailedEvent
from loom.testing import WorkflowTestResult, WorkflowTestRunner, run_virtual


class Progress(Event):
    part: int


class Middle(Event):
    name: str


class Greeting(Workflow):
    @step
    async def first(self, ctx: Context, ev: StartEvent) -> Middle:
        ctx.write_event_to_stream(Progress(part=1))
        return Middle(name=ev.get("name", "nobody"))

    @step
    async def second(self, ctx: Context, ev: Middle) -> StopEvent:
        ctx.write_event_to_stream(Progress(part=2))
        await ctx.store.set("greeted", ev.name)
        return StopEvent(result=f"hello {ev.name}")


class Failing(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no")


async def test_everything_that_a_run_did_is_collected() -> None:
    result = await WorkflowTestRunner(Greeting()).run(StartEvent(name="Ada"))
    assert isinstance(result, WorkflowTestResult)
    assert result.result == "hello Ada"
    assert result.event_types == {StepStateChanged: 4, Progress: 2, StopEvent: 1}
    assert [event.part for event in result.collected if isinstance(event, Progress)] == [1, 2]
    assert isinstance(result.collected[-1], StopEvent)
    states = [(e.name, e.step_state) for e in result.collected if isinstance(e, StepStateChanged)]
    assert states == [
        ("first", StepState.RUNNING),
        ("first", StepState.NOT_RUNNING),
        ("second", StepState.RUNNING),
        ("second", StepState.NOT_RUNNING),
    ]
    assert await result.ctx.store.get("greeted") == "Ada"


async def test_the_start_event_may_be_left_out() -> None:
    assert (await WorkflowTestRunner(Greeting()).run()).result == "hello nobody"


async def test_internal_events_can_be_hidden() -> None:
    result = await WorkflowTestRunner(Greeting()).run(expose_internal=False)
    assert result.event_types == {Progress: 2, StopEvent: 1}


async def test_events_of_given_types_are_left_out() -> None:
    result = await WorkflowTestRunner(Greeting()).run(exclude_events=[StepStateChanged, StopEvent])
    assert list(map(type, result.collected)) == [Progress, Progress]


async def test_a_given_context_is_used() -> None:
    workflow = Greeting()
    context: Context = Context(workflow)
    await context.store.set("before", 1)
    result = await WorkflowTestRunner(workflow).run(ctx=context)
    assert result.ctx is context
    assert await result.ctx.store.get("before") == 1


async def test_a_run_that_fails_raises_its_error() -> None:
    with pytest.raises(ValueError, match="no"):
        await WorkflowTestRunner(Failing()).run(exclude_events=[WorkflowFailedEvent])


class Slow(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(3600)
        ctx.write_event_to_stream(Progress(part=1))
        await ctx.sleep(60)
        return StopEvent()


def test_each_event_has_its_time() -> None:
    result = run_virtual(WorkflowTestRunner(Slow(timeout=None)).run(expose_internal=False))
    assert [type(event) for event in result.collected] == [Progress, StopEvent]
    assert result.times == [3600, 3660]

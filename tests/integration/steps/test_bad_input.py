"""Bad input: each a clear error that names the place, and nothing lost."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from steps_rig import outcome_of, settled, until_idle

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import ContextSerdeError, WorkflowRuntimeError, WorkflowValidationError
from loom.steps.retry import (
    retry_policy,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
    wait_incrementing,
    wait_random,
)


class Go(Event):
    n: int = 0


class Job(Event):
    n: int = 0


class Waits(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        go = await ctx.wait_for_event(Go)
        return StopEvent(result=go.n)


class Queues(Workflow):
    """Idle with a job that waits."""

    @step
    async def start(self, ev: StartEvent) -> Job:
        return Job(n=1)

    @step
    async def work(self, ctx: Context, ev: Job) -> StopEvent:
        go = await ctx.wait_for_event(Go)
        return StopEvent(result=(ev.n, go.n))


def returning(value: Any) -> Workflow:
    class Returns(Workflow):
        @step
        async def oddly(self, ev: StartEvent) -> StopEvent:
            return value

    return Returns(timeout=5)


@pytest.mark.parametrize(
    ("value", "named"),
    [("text", "str"), (3, "int"), ({}, "dict"), (StopEvent, "ModelMetaclass|type"), ([StopEvent()], "list")],
)
async def test_step_that_returns_the_wrong_type(value: Any, named: str):
    with pytest.raises(
        WorkflowRuntimeError, match=rf"^Step function oddly returned ({named}) instead of an Event instance\."
    ):
        await returning(value).run()


@pytest.mark.parametrize("what", ["text", None, 3, Go])
async def test_only_events_can_be_sent(what: Any):
    handler = Waits(timeout=5).run()
    await until_idle(handler)
    with pytest.raises((WorkflowRuntimeError, TypeError), match="event"):
        handler.ctx.send_event(what)
    with pytest.raises((WorkflowRuntimeError, TypeError), match="event"):
        await handler.send_event(what)
    handler.ctx.send_event(Go(n=1))
    assert await handler == 1


async def test_only_events_can_be_sent_or_written_by_a_step():
    class Odd(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            problems = []
            for act in (ctx.send_event, ctx.write_event_to_stream):
                try:
                    act("no event")
                except (WorkflowRuntimeError, TypeError) as error:
                    problems.append(str(error))
            return StopEvent(result=problems)

    problems = await Odd(timeout=5).run()
    assert len(problems) == 2
    assert all("str" in problem for problem in problems)


@pytest.mark.parametrize("what", ["Go", Go(), int, None])
async def test_only_event_types_can_be_waited_for(what: Any):
    class Odd(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(what, timeout=0.05)
            return StopEvent()

    error = await outcome_of(Odd(timeout=5).run())
    assert isinstance(error, TypeError | WorkflowRuntimeError)
    assert "wait_for_event" in str(error)


@pytest.mark.parametrize("what", ["Go", int, [Go]])
async def test_only_event_types_can_be_collected(what: Any):
    class Odd(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.collect_events(ev, [StartEvent, what])
            return StopEvent()

    error = await outcome_of(Odd(timeout=5).run())
    assert isinstance(error, TypeError | WorkflowRuntimeError)
    assert "collect_events" in str(error)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), "long"])
async def test_nonsense_sleep(seconds: Any):
    class Odd(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.sleep(seconds)
            return StopEvent()

    error = await outcome_of(Odd(timeout=2).run())
    assert isinstance(error, TypeError | ValueError)
    assert "sleep" in str(error)


@pytest.mark.parametrize("seconds", [float("nan"), "long"])
async def test_nonsense_wait_timeout(seconds: Any):
    class Odd(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.wait_for_event(Go, timeout=seconds)
            return StopEvent()

    error = await outcome_of(Odd(timeout=2).run())
    assert isinstance(error, TypeError | ValueError)
    assert "timeout" in str(error)


@pytest.mark.parametrize("timeout", ["long", float("nan"), True])
def test_nonsense_timeout_of_a_workflow(timeout: Any):
    with pytest.raises(WorkflowValidationError, match="timeout"):
        Waits(timeout=timeout)


@pytest.mark.parametrize(
    "make",
    [
        lambda: wait_fixed(-1),
        lambda: wait_fixed(float("nan")),
        lambda: wait_fixed("soon"),
        lambda: wait_exponential(multiplier=-1),
        lambda: wait_incrementing(start="x"),
        lambda: wait_random(min=3, max=1),
        lambda: stop_after_attempt(0),
        lambda: stop_after_attempt(2.5),
        lambda: stop_after_delay(-1),
        lambda: retry_policy(wait="soon"),
        lambda: retry_policy(stop=3),
        lambda: retry_policy(retry=ValueError),
    ],
)
def test_policy_with_nonsense_numbers_is_refused_where_it_is_made(make: Any):
    with pytest.raises((ValueError, TypeError)) as raised:
        make()
    assert str(raised.value)


@pytest.mark.parametrize("verdict", [float("nan"), -5, "soon", True])
async def test_policy_with_a_nonsense_verdict_fails_the_step_clearly(verdict: Any):
    class Odd:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> Any:
            return verdict if attempts == 1 else None

    class Fails(Workflow):
        @step(retry_policy=Odd())
        async def start(self, ev: StartEvent) -> StopEvent:
            raise LookupError("the step")

    error = await outcome_of(Fails(timeout=2).run())
    assert not isinstance(error, StopEvent)
    assert "timed out" not in str(error)


async def saved(workflow: Workflow) -> dict[str, Any]:
    handler = workflow.run()
    await until_idle(handler)
    data = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    return data


async def test_context_of_a_newer_version_is_refused():
    data = await saved(Queues(timeout=5))
    data["version"] = 99
    with pytest.raises(ContextSerdeError, match="99"):
        Context.from_dict(Queues(timeout=5), data)


@pytest.mark.parametrize("data", ["text", 3, None, [], {"version": "two"}, {"version": 2, "workers": 7}])
async def test_malformed_context_is_refused_at_once(data: Any):
    with pytest.raises(ContextSerdeError):
        Context.from_dict(Queues(timeout=5), data)


async def test_unknown_event_type_in_a_context_is_named_and_the_data_stays_good():
    data = await saved(Queues(timeout=5))
    text = json.dumps(data)
    broken = json.loads(text.replace(f"{Job.__module__}.Job", "shop.gone.OldJob"))
    assert broken != data
    with pytest.raises(ContextSerdeError, match=r"shop\.gone\.OldJob"):
        Context.from_dict(Queues(timeout=5), broken)
    handler = Queues(timeout=5).run(ctx=Context.from_dict(Queues(timeout=5), json.loads(text)))
    await settled()
    handler.ctx.send_event(Go(n=2))
    assert await handler == (1, 2)


async def test_step_that_the_code_lacks_is_named():
    class Renamed(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Job:
            return Job(n=1)

        @step
        async def process(self, ctx: Context, ev: Job) -> StopEvent:
            return StopEvent()

    data = await saved(Queues(timeout=5))
    with pytest.raises(ContextSerdeError, match="'work'"):
        Context.from_dict(Renamed(timeout=5), data)


async def test_field_that_does_not_fit_is_named():
    data = await saved(Queues(timeout=5))
    broken = json.loads(json.dumps(data).replace('\\"n\\": 1', '\\"n\\": \\"one\\"'))
    assert broken != data
    with pytest.raises(ContextSerdeError, match="n"):
        Context.from_dict(Queues(timeout=5), broken)


async def test_name_in_a_context_is_never_imported():
    assert "this" not in sys.modules
    data = await saved(Queues(timeout=5))
    text = json.dumps(data).replace(f"{Job.__module__}.Job", "this.Zen")
    with pytest.raises(ContextSerdeError, match=r"this\.Zen"):
        Context.from_dict(Queues(timeout=5), json.loads(text))
    assert "this" not in sys.modules


async def test_too_many_early_events_are_refused():
    handler = Waits(timeout=5).run()
    await until_idle(handler)
    for n in range(1000):
        handler.ctx.send_event(Job(n=n))
    await settled()
    with pytest.raises(WorkflowRuntimeError, match="1000"):
        handler.ctx.send_event(Job(n=1000))
    handler.ctx.send_event(Go(n=5))
    assert await handler == 5


async def test_event_after_the_end_is_refused():
    handler = Waits(timeout=5).run()
    await until_idle(handler)
    handler.ctx.send_event(Go(n=1))
    await handler
    with pytest.raises(WorkflowRuntimeError, match=handler.run_id):
        await handler.send_event(Go(n=2))


async def test_waiting_after_the_end_of_the_step_is_refused():
    class Leaks(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Go:
            self.ctx = ctx
            return Go()

        @step
        async def end(self, ev: Go) -> StopEvent:
            try:
                await self.ctx.wait_for_event(Job)
            except RuntimeError as error:
                return StopEvent(result=str(error))
            return StopEvent()

    result = await asyncio.wait_for(Leaks(timeout=2).run(), 60)
    assert "start" in result


@pytest.mark.parametrize("data", [5, [], "{}", None])
def test_a_saved_context_that_is_no_dict_is_refused_as_others_are(data: Any):
    with pytest.raises(ContextSerdeError, match="invalid format: a dict is wanted"):
        Context.from_dict(Waits(), data)

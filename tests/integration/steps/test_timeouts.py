"""The timeout of a run, and of one execution of a step."""

from __future__ import annotations

import asyncio
import time

import pytest
from steps_rig import outcome_of, streamed

from loom import Context, Event, StartEvent, StopEvent, Workflow, catch_error, step
from loom.steps.errors import WorkflowTimeoutError
from loom.steps.events import StepFailedEvent, WorkflowTimedOutEvent
from loom.testing import run_virtual


class Job(Event):
    pass


class Forever(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        ctx.send_event(Job())
        return None

    @step
    async def one(self, ev: Job) -> StopEvent:
        await asyncio.Event().wait()
        return StopEvent()

    @step
    async def two(self, ev: Job) -> StopEvent:
        await asyncio.Event().wait()
        return StopEvent()


def test_timeout_names_the_active_steps():
    async def main():
        with pytest.raises(
            WorkflowTimeoutError, match=r"^Operation timed out after 0\.05 seconds\. Currently active steps: one, two$"
        ):
            await Forever(timeout=0.05).run()

    run_virtual(main())


def test_stream_ends_with_the_timeout():
    async def main():
        handler = Forever(timeout=0.05).run()
        events = await streamed(handler)
        assert [type(e) for e in events] == [WorkflowTimedOutEvent]
        assert events[0].timeout == 0.05
        assert sorted(events[0].active_steps) == ["one", "two"]
        assert isinstance(await outcome_of(handler), WorkflowTimeoutError)

    run_virtual(main())


def test_timeout_in_whole_seconds_is_shown_as_a_float():
    async def main():
        handler = Forever(timeout=1).run()
        events = await streamed(handler)
        assert events[-1].timeout == 1.0
        with pytest.raises(WorkflowTimeoutError, match=r"after 1\.0 seconds"):
            await handler

    run_virtual(main())


async def test_none_means_no_limit():
    class Quick(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0)
            return StopEvent(result="ok")

    assert await Quick(timeout=None).run() == "ok"


async def test_blocking_step_does_not_defeat_the_timeout():
    class Blocks(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            time.sleep(0.15)  # noqa: ASYNC251 - the subject
            return StopEvent(result="too late")

    with pytest.raises(WorkflowTimeoutError):
        await Blocks(timeout=0.05).run()


async def test_blocking_sync_step_does_not_defeat_the_timeout():
    class Blocks(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            time.sleep(0.15)
            return StopEvent(result="too late")

    with pytest.raises(WorkflowTimeoutError):
        await Blocks(timeout=0.05).run()


async def test_step_timeout_is_a_failure_of_that_step():
    class Bounded(Workflow):
        @step(timeout=0.02)
        async def start(self, ev: StartEvent) -> StopEvent:
            await asyncio.Event().wait()
            return StopEvent()

        @catch_error
        async def rescue(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(result=type(ev.exception).__name__)

    assert await Bounded(timeout=5).run() == "TimeoutError"

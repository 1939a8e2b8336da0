"""The stream of a run that failed and was retried is one stream."""

from __future__ import annotations

import loom
from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.steps.events import WorkflowFailedEvent


class Passed(Event):
    pass


class Flaky(Workflow):
    broken = True

    @step
    async def begin(self, ev: StartEvent) -> Passed:
        return Passed()

    @step
    async def end(self, ev: Passed) -> StopEvent:
        if Flaky.broken:
            raise ValueError("broken")
        return StopEvent(result="mended")


async def test_readers_go_on_behind_the_failure() -> None:
    Flaky.broken = True
    async with loom.connect("memory://") as runtime:
        runtime.register(Flaky(), name="flaky")
        failed = await runtime.start("flaky", run_id="r")
        seen = [type(event) async for event in failed.stream_events()]
        assert seen == [WorkflowFailedEvent]
        Flaky.broken = False
        await runtime.retry("r")
        retried = await runtime.handler("r")
        assert [type(event) async for event in retried.stream_events()] == [WorkflowFailedEvent, StopEvent]
        assert await retried == "mended"

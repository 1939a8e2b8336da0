"""The check of a run's histories: on a real server, and without a worker or the code of the run."""

from __future__ import annotations

from typing import Any

import pytest
from temporal_server import fresh_temporal_url

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.verification import replayed_run
from loom.temporal.client.cluster import Cluster, NotThere
from loom.temporal.runtime import TemporalRuntime


class Answer(HumanResponseEvent):
    text: str = ""


class Thread(Event):
    colour: str


class Order(StartEvent):
    colour: str


class Weaving(Workflow):
    @step
    async def dye(self, ev: Order) -> Thread:
        return Thread(colour=ev.colour)

    @step
    async def weave(self, ctx: Context, ev: Thread) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, requirements={"text": "yes"}, timeout=None)
        return StopEvent(result=answer.text)


FLOW: dict[str, Any] = {
    "actions": {
        "first": {"type": "compose", "inputs": "@triggerBody()"},
    }
}


async def test_histories_replay_without_a_worker_and_without_code(monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh_temporal_url()
    async with loom.connect(url) as client, loom.connect(url) as runtime:
        assert isinstance(client, TemporalRuntime)
        # Started where the code is not at hand, so that the code is asked for in the history.
        await client.start("Weaving", {"colour": "red"}, run_id="steps")
        await client.start("flow", {"number": 5}, run_id="flow")
        runtime.register(Weaving(timeout=None), name="Weaving")
        runtime.register(loom.load(FLOW), name="flow")
        await runtime.send_event("steps", Answer(text="no"))
        await runtime.send_event("steps", Answer(text="yes"))
        assert await (await runtime.handler("steps")) == "yes"
        assert (await (await runtime.handler("flow"))).status == "Succeeded"
        assert (await replayed_run(runtime, "steps")).replay == "same"
    async with loom.connect(url) as client:
        assert isinstance(client, TemporalRuntime)
        assert await client.store.history_problems("steps") == []
        assert await client.store.history_problems("flow") == []
        with pytest.raises(NotThere):
            await client.store.history_problems("nobody")
        monkeypatch.setattr(Cluster, "history", _other(Cluster.history))
        [problem] = await client.store.history_problems("steps")
        assert problem.startswith("Execution ")
        assert "TMPRL1100" in problem


def _other(read: Any) -> Any:
    async def history(*arguments: Any) -> Any:
        found = await read(*arguments)
        for event in found.events:
            if event.activity_task_scheduled_event_attributes.activity_type.name == "weave":
                event.activity_task_scheduled_event_attributes.activity_type.name = "unpick"
        return found

    return history

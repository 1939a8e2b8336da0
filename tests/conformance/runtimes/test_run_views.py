"""A run over time, asked of every runtime: by the process that has it, and by another one without its code."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, step
from loom.api.views import Bar, Lane
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Word(HumanResponseEvent):
    text: str = ""


class Tries(Watched):
    """Fails once, then waits for a word."""

    @step(retry_policy=retry_policy(wait=wait_fixed(0.1), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number == 0:
            raise ValueError("not yet")
        word = await ctx.wait_for_event(Word)
        return StopEvent(result=word.text)


FLOW: dict[str, Any] = {
    "definition": {
        "actions": {
            "Rounds": {
                "type": "Until",
                "expression": "@equals(iterationIndexes('Rounds'), 2)",
                "delay": "PT0.05S",
                "limit": {"count": 5, "timeout": "P1D"},
                "actions": {"Square": {"type": "Compose", "inputs": "@mul(iterationIndexes('Rounds'), 10)"}},
                "runAfter": {},
            },
            "Ask": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {"Rounds": ["Succeeded"]}},
        }
    }
}


async def lane_of(runtime: DurableRuntime, run_id: str, name: str) -> Lane:
    return next(lane for lane in (await runtime.timeline(run_id)).lanes if lane.name == name)


def told(bars: list[Bar] | None) -> list[tuple[str, int, str]]:
    return [(bar.kind, bar.attempt, bar.status) for bar in bars or []]


@pytest.mark.parametrize("idle_timeout", [0, 3600])
async def test_the_lane_of_a_step(deployment: Deployment, witness: Witness, idle_timeout: float) -> None:
    runtime = await deployment.open({"tries": Tries(witness)}, idle_timeout=idle_timeout)
    await runtime.start("tries", run_id="a")
    await until_idle(runtime, "a")
    first = [("work", 1, "failed"), ("delay", 2, "ok"), ("work", 2, "ok")]
    lane = await lane_of(runtime, "a", "work")
    assert told(lane.bars) == [*first, ("wait", 2, "running")]
    assert lane.bars is not None
    assert lane.bars[0].error == "ValueError: not yet"
    [counts] = (await runtime.run_graph("a")).steps
    assert (counts.node, counts.waiting, counts.executing, counts.retries) == ("work", 1, 0, 1)
    await runtime.send_event("a", Word(text="x"))
    assert await result(await runtime.handler("a")) == "x"
    bars = (await lane_of(runtime, "a", "work")).bars or []
    assert told(bars)[:4] == [*first, ("wait", 2, "ok")]
    assert told(bars)[4:] == [("work", 2, "ok")]
    graph = await runtime.run_graph("a")
    assert (graph.steps[0].completed, graph.steps[0].failed) == (1, 0)
    assert "work" in {node["id"] for node in graph.nodes}


async def test_a_flow_asked_by_a_process_without_its_code(deployment: Deployment) -> None:
    runtime = await deployment.open({"flow": loom.load(FLOW)}, idle_timeout=0)
    await runtime.start("flow", run_id="f")

    async def waits() -> bool:
        return bool((await runtime.get("f")).active_waiters)

    await until(waits)
    other = await deployment.open_reader({})
    for each in (runtime, other):
        rounds = await lane_of(each, "f", "Rounds")
        assert [(bar.kind, bar.iteration) for bar in rounds.bars or []] == [
            ("work", 0),
            ("delay", 1),
            ("work", 1),
            ("delay", 2),
            ("work", 2),
        ]
        counts = {found.node: found for found in (await each.run_graph("f")).steps}
        assert (counts["Square"].completed, counts["Rounds"].completed, counts["Ask"].waiting) == (3, 1, 1)

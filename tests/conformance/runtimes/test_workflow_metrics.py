"""Metrics by workflow and step: what the processes that work on runs count, on every runtime."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, until, until_idle

import loom
from loom import (
    Context,
    HumanResponseEvent,
    StartEvent,
    StopEvent,
    WorkflowCancelledByUser,
    retry_policy,
    step,
    stop_after_attempt,
    wait_none,
)
from loom.runtime.durable.metrics import WorkflowMetrics

FLOW = {
    "definition": {
        "actions": {
            "Ask": {"type": "waitForEvent", "inputs": {"event": "Word"}, "runAfter": {}},
            "Say": {"type": "Compose", "inputs": "@body('Ask')", "runAfter": {"Ask": ["Succeeded"]}},
        }
    }
}


class Word(HumanResponseEvent):
    pass


class Order(Watched):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def decide(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.how == "fail" or (ev.how == "again" and ctx.retry_info().retry_number == 0):
            raise ValueError("no")
        if ev.how == "wait":
            await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result="ok")


def runs(metrics: WorkflowMetrics) -> dict[str, int]:
    names = ("started", "completed", "failed", "cancelled", "parked")
    return {name: getattr(metrics, name) for name in names if getattr(metrics, name)}


def counts(deployment: Deployment, metrics: WorkflowMetrics, expected: dict[str, int]) -> bool:
    """Say whether the metrics are as expected. On Temporal a task that the cluster repeats may count twice."""
    found = runs(metrics)
    if deployment.kind != "temporal":
        return found == expected
    return found.keys() == expected.keys() and all(found[name] >= expected[name] for name in expected)


async def test_runs_and_executions_are_counted(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"order": Order(witness), "flow": loom.load(FLOW)})
    order = runtime.metrics.workflows["order"]
    assert (runs(order), list(order.steps)) == ({}, ["decide"])
    for how in ("now", "again"):
        assert await result(await runtime.start("order", {"how": how}, run_id=how)) == "ok"
    await failure(await runtime.start("order", {"how": "fail"}, run_id="fail"))
    for run_id in ("wait", "stop"):
        await runtime.start("order", {"how": "wait"}, run_id=run_id)
        await until_idle(runtime, run_id)
    await runtime.cancel("stop")
    assert isinstance(await failure(await runtime.handler("stop")), WorkflowCancelledByUser)
    expected = {"started": 5, "completed": 2, "failed": 1, "cancelled": 1}
    await until(lambda: counts(deployment, order, expected), f"{expected}")
    decide = order.steps["decide"]
    found, expected_steps = (decide.seconds.count, decide.failed, decide.retried), (5, 3, 2)
    assert found == expected_steps or (deployment.kind == "temporal" and found >= expected_steps), found
    held = await runtime.store.held_counts()
    assert held == ({} if deployment.kind == "temporal" else {"order": (1, 0, 0)})
    await runtime.send_event("wait", Word())
    assert await result(await runtime.handler("wait")) == "ok"
    await until(lambda: order.completed >= 3, "the run that waited")


async def test_executions_of_a_flow_are_counted_by_type(deployment: Deployment) -> None:
    runtime = await deployment.open({"flow": loom.load(FLOW)})
    await runtime.start("flow", run_id="a")
    await until_idle(runtime, "a")
    flow = runtime.metrics.workflows["flow"]
    assert list(flow.steps) == ["waitforevent"]
    await runtime.send_event("a", Word())
    assert (await result(await runtime.handler("a"))).status == "Succeeded"
    await until(lambda: counts(deployment, flow, {"started": 1, "completed": 1}), "its end")
    assert (flow.steps["waitforevent"].seconds.count, flow.steps["waitforevent"].failed) == (1, 0)


async def test_a_parked_run_is_counted(deployment: Deployment, witness: Witness) -> None:
    class Renamed(Watched):
        @step
        async def judge(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    first = await deployment.open({"order": Order(witness)})
    await first.start("order", {"how": "wait"}, run_id="a")
    await until_idle(first, "a")
    await deployment.close(first)
    second = await deployment.open({"order": Renamed(witness)})
    await second.send_event("a", Word())
    metrics = second.metrics.workflows["order"]
    await until(lambda: metrics.parked > 0, "parked")
    assert runs(metrics) == {"parked": 1}
    if deployment.kind != "temporal":
        assert await second.store.held_counts() == {"order": (0, 1, 0)}


@pytest.mark.parametrize("how", ["sleeps", "works"])
async def test_the_time_in_which_a_body_waits_does_not_count(deployment: Deployment, how: str) -> None:
    class Rests(Watched):
        @step
        async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await (ctx.sleep(rests_s) if how == "sleeps" else asyncio.sleep(0.3))
            return StopEvent()

    # A slow machine takes its time for the rest of the body too: less than a sleep, that is enough.
    rests_s = 1.5
    runtime = await deployment.open({"rests": Rests()}, idle_timeout=None)
    await result(await runtime.start("rests"))
    rest = runtime.metrics.workflows["rests"].steps["rest"]
    await until(lambda: rest.seconds.count == 1, "the execution")
    assert rest.seconds.total < rests_s if how == "sleeps" else rest.seconds.total >= 0.25

"""Flows that leave memory while they wait, and come back by a timer or an event; limits by count and by time."""

from __future__ import annotations

from typing import Any

import pytest
from flow_samples import flow, install, iterations, work
from runtime_deployments import Deployment
from runtime_watching import Witness, result, until, until_idle, until_info, until_released

import loom
from loom import FlowEvent, HumanResponseEvent
from loom.testing import VIRTUAL_EPOCH, run_virtual


class Approval(HumanResponseEvent):
    by: str


MINUTE = {"interval": {"count": 1, "unit": "minute"}}
WAITS: dict[str, dict[str, Any]] = {
    "a wait": {"rest": {"type": "wait", "inputs": MINUTE}, "step": work("at end")},
    "a delay between iterations": {
        "loop": {
            "type": "doUntil",
            "condition": "@equals(variables('loopIndex'), 2)",
            "delay": MINUTE,
            "actions": {"step": work("at end")},
        }
    },
    "a delay before another attempt": {
        "step": work("at end", retry={"type": "fixed", "count": 1, "interval": "PT1M"}),
    },
}


@pytest.mark.parametrize("wait", WAITS)
async def test_a_flow_that_waits_for_time_is_released(
    deployment: Deployment, wait: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    activity.failing = {"at end": 1} if wait == "a delay before another attempt" else {}
    runtime = await deployment.open({"flow": flow(WAITS[wait])}, idle_timeout=0, lease=10_000)
    handler = await runtime.start("flow", run_id="a")
    calls = 0 if wait == "a wait" else 1
    await witness.came("at end", calls)
    await until_released(runtime, "a")
    await until(lambda: runtime.figures == {"in_memory": 0, "released": 1, "resumed": 0})
    assert witness.count("at end") == calls
    deployment.clock.ahead_s += 61
    ended = await result(handler)
    assert (ended.status, witness.count("at end")) == ("Succeeded", calls + 1)
    assert runtime.figures["resumed"] == 1


async def test_a_flow_that_waits_for_somebody_is_released(deployment: Deployment) -> None:
    ask = {"type": "waitForEvent", "inputs": {"event": "Approval", "prompt": "May I?"}}
    loop = {"type": "doUntil", "condition": "@equals(body('ask').by, 'boss')", "actions": {"ask": ask}}
    runtime = await deployment.open({"flow": flow({"loop": loop})}, idle_timeout=0)
    handler = await runtime.start("flow", run_id="a")
    for number, name in enumerate(("clerk", "deputy", "boss")):
        await until_info(runtime, "a", lambda info, least=number + 1: info.idle_since and len(info.active_waiters) == 1)
        await until_released(runtime, "a")
        event = Approval(by=name) if number % 2 else FlowEvent(name="Approval", data={"by": name})
        await runtime.send_event("a", event)
        await until(lambda least=number + 1: runtime.figures["resumed"] >= least)
    ended = await result(handler)
    assert ended.actions["loop"].iterations == 3
    assert ended.actions["loop"].outputs == {"ask": {"by": "boss"}}
    assert await iterations(runtime, "a") == ["loop[0]", "loop[1]", "loop[2]"]


async def test_an_answer_that_comes_early_is_kept(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    witness.hold("before")
    ask = {"type": "waitForEvent", "inputs": {"event": "Approval"}}
    runtime = await deployment.open({"flow": flow({"step": work("before"), "ask": ask})}, idle_timeout=0)
    handler = await runtime.start("flow", run_id="a")
    await witness.came("before")
    await runtime.send_event("a", Approval(by="me"))
    await until_info(runtime, "a", lambda info: info.kept_events == 1)
    witness.let("before")
    assert (await result(handler)).actions["ask"].outputs == {"by": "me"}


async def test_a_wait_for_somebody_has_an_end_while_nobody_is_alive(deployment: Deployment) -> None:
    ask = {"type": "waitForEvent", "inputs": {"event": "Approval", "timeout": "PT1H"}}
    late = {"type": "compose", "inputs": "nobody", "runAfter": {"ask": ["TimedOut"]}}
    actions = {"ask": {**ask, "runAfter": {"init": ["Succeeded"]}}, "late": late}
    first = await deployment.open({"flow": flow(actions)})
    await first.start("flow", run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    await deployment.pass_time(3601)
    second = await deployment.open({"flow": flow(actions)})
    ended = await result(await second.handler("a"))
    assert (ended.status, ended.actions["ask"].status, ended.actions["late"].outputs) == (
        "Succeeded",
        "TimedOut",
        "nobody",
    )


async def test_a_delay_that_ended_while_nobody_was_alive(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    actions = WAITS["a delay between iterations"]
    first = await deployment.open({"flow": flow(actions)})
    await first.start("flow", run_id="a")
    await until_info(first, "a", lambda info: info.ticks == 2)
    await deployment.crash(first)
    await deployment.pass_time(61)
    second = await deployment.open({"flow": flow(actions)})
    ended = await result(await second.handler("a"))
    assert (ended.status, ended.actions["loop"].iterations, witness.count("at end")) == ("Succeeded", 2, 2)


def _limited(kind: str, limit: dict[str, Any], **more: Any) -> loom.Flow:
    rest = {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}}
    condition = "true" if kind == "while" else "false"
    return flow({"loop": {"type": kind, "condition": condition, "limit": limit, "actions": {"rest": rest}, **more}})


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
def test_limits_by_count_and_by_time(kind: str, idle_timeout: float | None) -> None:
    async def ends(limit: dict[str, Any]) -> tuple[str, int, str, float]:
        async with loom.connect("memory://", idle_timeout=idle_timeout, poll_interval=3600, lease=100_000) as runtime:
            runtime.register(_limited(kind, limit))
            ended = await (await runtime.start("flow", run_id="a"))
            loop = ended.actions["loop"]
            return loop.status, loop.iterations, loop.error["message"], (loop.ended_at - VIRTUAL_EPOCH) / 3600

    by_count = run_virtual(ends({"count": 3, "timeout": "PT24H"}))
    assert by_count == ("Failed", 3, "Loop exceeded maximum iterations: 3", pytest.approx(3))
    by_time = run_virtual(ends({"count": 100, "timeout": "PT150M"}))
    assert by_time == ("Failed", 3, "Loop timeout after 9000000ms", pytest.approx(3))

"""Delays that a caller ends: back-offs, sleeps and waits for a time, wherever the run is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flow_samples import flow, install, work
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, tick_names, until, until_idle, until_info, until_released

from loom import Context, HumanResponseEvent, NothingToSkip, RunFinished, RunNotFound, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

HOUR = {"interval": {"count": 1, "unit": "hour"}}


class Word(HumanResponseEvent):
    text: str = ""


class Patient(Watched):
    """Tries again after an hour."""

    @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if self.witness.saw("work") < 3:
            raise ConnectionError("not yet")
        return StopEvent(result=ctx.retry_info().retry_number)


class Sleepy(Watched):
    """Sleeps twice, an hour each."""

    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(3600)
        self.witness.saw("woke once")
        await ctx.sleep(3600)
        self.witness.saw("woke twice")
        return StopEvent(result="rested")


class Asking(Watched):
    """Waits for an answer, an hour at the most."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=3600)).text)


async def _delayed(runtime: DurableRuntime, run_id: str, skipped: int = 0) -> int:
    """Wait until a run has one delay more than were skipped; return the number of its timer."""
    found: list[int] = []

    async def has_delay() -> bool:
        if [*await tick_names(runtime, run_id)].count("TickSkip") < skipped:
            return False
        state = await runtime.state_at(run_id)
        found[:] = [number for number, timer in state.timers.items() if timer.purpose != "timeout"]
        return bool(found)

    await until(has_delay)
    return found[0]


@pytest.mark.parametrize("where", ["here", "released", "after a crash", "another process"])
async def test_a_backoff_ends_when_a_caller_says_so(deployment: Deployment, witness: Witness, where: str) -> None:
    options = {"idle_timeout": 0} if where == "released" else {}
    runtime = await deployment.open({"patient": Patient(witness)}, **options)
    await runtime.start("patient", run_id="a")
    await _delayed(runtime, "a")
    asked = runtime
    if where == "released":
        await until_released(runtime, "a")
    if where == "after a crash":
        await deployment.crash(runtime)
        runtime = asked = await deployment.open({"patient": Patient(witness)})
    if where == "another process":
        asked = await deployment.open()
    await asked.skip("a")
    second = await _delayed(asked, "a", skipped=1)
    await asked.skip("a", second)
    assert await result(await runtime.handler("a")) == 2
    assert witness.count("work") == 3
    names = await tick_names(runtime, "a")
    assert (names.count("TickSkip"), names.count("TickTimerFired")) == (2, 0)


async def test_each_sleep_is_skipped_by_itself(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"sleepy": Sleepy(witness)})
    handler = await runtime.start("sleepy", run_id="a")
    await _delayed(runtime, "a")
    await runtime.skip("a")
    await witness.came("woke once")
    await _delayed(runtime, "a", skipped=1)
    assert witness.count("woke twice") == 0, "a skip ends the delays of its moment"
    await runtime.skip("a")
    assert await result(handler) == "rested"
    with pytest.raises(RunFinished):
        await runtime.skip("a")
    with pytest.raises(RunNotFound):
        await runtime.skip("nobody")


async def test_timeouts_and_other_timers_cannot_be_skipped(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"asking": Asking(witness), "sleepy": Sleepy(witness)})
    asking = await runtime.start("asking", run_id="asking")
    await until_idle(runtime, "asking")
    [timer] = [n for n, timer in (await runtime.state_at("asking")).timers.items() if timer.purpose == "waiter"]
    for wanted in (None, timer, 999):
        with pytest.raises(NothingToSkip):
            await runtime.skip("asking", wanted)
    await runtime.send_event("asking", Word(text="yes"))
    assert await result(asking) == "yes"
    await runtime.start("sleepy", run_id="sleepy")
    known = await _delayed(runtime, "sleepy")
    with pytest.raises(NothingToSkip, match=f"which are {known}"):
        await runtime.skip("sleepy", 999)
    assert "TickSkip" not in await tick_names(runtime, "sleepy")


async def test_a_paused_run_goes_on_when_it_is_resumed(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"sleepy": Sleepy(witness)})
    handler = await runtime.start("sleepy", run_id="a")
    await _delayed(runtime, "a")
    await runtime.pause("a")
    await until_info(runtime, "a", lambda info: info.paused)
    before = await runtime.get("a")
    await runtime.skip("a")
    await until_info(runtime, "a", lambda info: info.ticks > before.ticks)
    assert witness.count("woke once") == 0
    await runtime.resume("a")
    await witness.came("woke once")
    await _delayed(runtime, "a", skipped=1)
    await runtime.skip("a")
    assert await result(handler) == "rested"


def _wait() -> dict[str, Any]:
    return {"pause": {"type": "wait", "inputs": HOUR}, "last": work("last")}


def _loop() -> dict[str, Any]:
    loop = {
        "type": "doUntil",
        "condition": "@equals(variables('loopIndex'), 2)",
        "delay": {"interval": {"count": 30, "unit": "minute"}},
        "actions": {"step": work("in loop")},
    }
    return {"loop": loop, "last": work("last")}


@pytest.mark.parametrize("actions", [_wait, _loop])
async def test_flows_go_on_now(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch, actions: Callable[[], dict[str, Any]]
) -> None:
    install(monkeypatch, witness)
    runtime = await deployment.open({"flow": flow(actions())})
    await runtime.start("flow", run_id="a")
    await _delayed(runtime, "a")
    await deployment.crash(runtime)
    runtime = await deployment.open({"flow": flow(actions())})
    await runtime.skip("a")
    ended = await result(await runtime.handler("a"))
    assert (ended.status, witness.calls[-1]) == ("Succeeded", "last")

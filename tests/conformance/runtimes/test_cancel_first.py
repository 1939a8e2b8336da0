"""A pending cancel overtakes a start that was never begun, and a recovery: no body and no expression runs for it."""

from __future__ import annotations

import asyncio
from typing import Any

from runtime_deployments import Deployment, new_deployment
from runtime_watching import Watched, Witness, until_idle, until_status

import loom
from loom import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, step
from loom.core.ticks import TickAddEvent, TickCancelRun, TickStartRun

FLOW: dict[str, Any] = {"definition": {"actions": {"Say": {"type": "Compose", "inputs": "@triggerBody()"}}}}


class Deadly(Watched):
    """Its first body never ends, so that a process can die in it."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await self.witness.at("work")
        return StopEvent(result="done")


class Asks(Watched):
    @step
    async def ask(self, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent()

    @step
    async def take(self, ev: HumanResponseEvent) -> StopEvent:
        self.witness.saw("taken")
        return StopEvent(result="taken")


async def _ticks(runtime: Any, run_id: str) -> list[Any]:
    return [entry.tick async for entry in runtime.history(run_id)]


async def test_a_start_that_was_never_begun_is_cancelled_without_being_planned(
    deployment: Deployment, witness: Witness
) -> None:
    client = await deployment.open()
    for run_id in ("flow", "deadly"):
        await client.start(run_id, {"x": 1}, run_id=run_id)
        await client.cancel(run_id, reason="not wanted")
    runtime = await deployment.open({"flow": loom.load(FLOW), "deadly": Deadly(witness)})
    for run_id in ("flow", "deadly"):
        await until_status(runtime, run_id, "cancelled")
        start, cancel = await _ticks(runtime, run_id)
        assert isinstance(start, TickStartRun)
        assert start.event is None, "an event would be planned, with all expressions that it leads to"
        assert isinstance(cancel, TickCancelRun)
    assert witness.calls == []


async def test_a_body_that_was_at_work_is_not_run_again(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"deadly": Deadly(witness)})
    witness.hold("work")
    await first.start("deadly", {}, run_id="a")
    await witness.came("work")
    await deployment.crash(first)
    witness.let("work")
    client = await deployment.open()
    await client.cancel("a")
    second = await deployment.open({"deadly": Deadly(witness)})
    await until_status(second, "a", "cancelled")
    await deployment.close(second)
    assert witness.calls == ["work"]


async def test_mail_that_came_before_the_cancel_is_not_planned(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"asks": Asks(witness)})
    await first.start("asks", {}, run_id="a")
    await until_idle(first, "a")
    await deployment.close(first)
    client = await deployment.open()
    await client.send_event("a", HumanResponseEvent())
    await client.cancel("a")
    second = await deployment.open({"asks": Asks(witness)})
    await until_status(second, "a", "cancelled")
    ticks = [type(tick) for tick in await _ticks(second, "a")]
    assert TickAddEvent not in ticks[: ticks.index(TickCancelRun)], ticks
    assert witness.calls == []


async def test_a_step_that_waits_for_a_worker_is_not_begun(tmp_path: Any, witness: Witness) -> None:
    """On Temporal a step is given to a worker by the cluster, which may be before the worker hears of the cancel."""
    deployment = new_deployment("temporal", tmp_path)
    try:
        first = await deployment.open({"deadly": Deadly(witness)}, max_steps=1)
        witness.hold("work")
        await first.start("deadly", {}, run_id="a")
        await witness.came("work")
        await first.start("deadly", {}, run_id="b")  # there is no room for its step
        await until_status(first, "b", "running")
        await deployment.crash(first)
        witness.let("work")
        client = await deployment.open()
        await client.cancel("b")
        await asyncio.sleep(1.5 * deployment.brief["heartbeat_timeout"])  # so long nobody is there
        second = await deployment.open({"deadly": Deadly(witness)})
        await until_status(second, "b", "cancelled")
        await until_status(second, "a", "completed")
        assert witness.calls == ["work", "work"]
    finally:
        await deployment.dispose()

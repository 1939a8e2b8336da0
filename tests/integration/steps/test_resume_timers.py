"""Timers are state: timeouts and sleeps of a saved run go on counting, or do not, as they should."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from steps_rig import outcome_of, until_idle

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowTimeoutError
from loom.testing import run_virtual


class Reply(HumanResponseEvent):
    text: str = ""
    who: str = ""


def through_json(handler: Any) -> dict[str, Any]:
    """What a program would find again after a restart."""
    return json.loads(json.dumps(handler.ctx.to_dict()))


def resumed(workflow: Workflow, data: dict[str, Any]) -> Any:
    context = Context.from_dict(workflow, data)
    assert context.is_running
    return workflow.run(ctx=context)


class TwoWaits(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(Reply)
        second = await ctx.wait_for_event(Reply)
        return StopEvent(result=(first.text, second.text))


class Impatient(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await ctx.wait_for_event(Reply, timeout=100)
        except TimeoutError as error:
            return StopEvent(result=str(error))
        return StopEvent(result="answered")


def test_timeout_of_a_waiter_survives():
    async def main() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        handler = Impatient(timeout=None).run()
        await until_idle(handler)
        begun = loop.time()
        await asyncio.sleep(60)
        data = through_json(handler)
        await handler.cancel_run()
        return await resumed(Impatient(timeout=None), data), loop.time() - begun

    result, took = run_virtual(main())
    assert result == "Timed out waiting for Reply"
    assert took == pytest.approx(100, abs=1)


class Naps(Workflow):
    bodies = 0

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.bodies += 1
        await ctx.sleep(3600)
        return StopEvent(result="awake")


def test_sleep_survives():
    async def main() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        handler = Naps(timeout=None).run()
        await asyncio.sleep(1000)
        data = through_json(handler)
        await handler.cancel_run()
        await asyncio.sleep(500)
        return await resumed(Naps(timeout=None), data), loop.time() - begun

    result, took = run_virtual(main())
    assert result == "awake"
    assert took == pytest.approx(3600, abs=1)


def test_timeout_of_the_run_counts_alive_time():
    async def main() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        handler = TwoWaits(timeout=100).run()
        await asyncio.sleep(60)
        data = through_json(handler)
        await handler.cancel_run()
        await asyncio.sleep(1000)  # nobody has the run
        again = resumed(TwoWaits(timeout=100), data)
        begun = loop.time()
        return await outcome_of(again), loop.time() - begun

    error, took = run_virtual(main())
    assert isinstance(error, WorkflowTimeoutError)
    assert took == pytest.approx(40, abs=1)

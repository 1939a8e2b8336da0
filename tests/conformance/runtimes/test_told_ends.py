"""Whoever waits for the end of a run in the process that works on it is told what the store has, without reading it."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import until_idle

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.stored_run import last_published
from loom.store import codec
from loom.store.records import RunRow


class Verdict(HumanResponseEvent):
    good: bool


class Judged(Workflow):
    @step
    async def judge(self, ctx: Context, ev: StartEvent) -> StopEvent:
        verdict = await ctx.wait_for_event(Verdict, timeout=None)
        if not verdict.good:
            raise ValueError("bad")
        return StopEvent(result={"of": ev.subject})


FLOW = loom.load({"actions": {"say": {"type": "compose", "inputs": "@triggerBody()"}}})


async def told(runtime: DurableRuntime, run_id: str) -> RunRow:
    """The row that the news of the run's end bring. Other news bring none; after the end there are no others."""
    async with asyncio.timeout(60):
        while (row := await runtime.endings.subscribe(run_id)) is None:
            pass
    return row


async def opened(deployment: Deployment) -> DurableRuntime:
    runtime = await deployment.open({"judged": Judged(timeout=None), "flow": FLOW})
    await runtime.ready()
    return runtime


@pytest.mark.parametrize(("how", "status"), [("good", "completed"), ("bad", "failed"), ("cancel", "cancelled")])
async def test_the_row_and_the_last_event_are_what_is_stored(deployment: Deployment, how: str, status: str) -> None:
    runtime = await opened(deployment)
    await runtime.start("judged", {"subject": "tea"}, run_id="r", tags={"team": "x"})
    await until_idle(runtime, "r")
    ended = asyncio.create_task(told(runtime, "r"))
    await asyncio.sleep(0)
    await (runtime.cancel("r") if how == "cancel" else runtime.send_event("r", Verdict(good=how == "good")))
    row = await ended
    assert row == await runtime.store.get("r")
    assert row.head.status == status
    chunks = await runtime.store.stream("r", row.head.events - 1, 1)
    assert await last_published(runtime, row) == codec.decode_published("r", chunks[-1])[-1]


async def test_the_row_of_a_flow(deployment: Deployment) -> None:
    runtime = await opened(deployment)
    ended = asyncio.create_task(told(runtime, "f"))
    await asyncio.sleep(0)
    await runtime.start("flow", {"n": 1}, run_id="f")
    row = await ended
    assert row == await runtime.store.get("f")


async def test_a_run_of_the_same_name_has_an_end_of_its_own(deployment: Deployment) -> None:
    runtime = await opened(deployment)
    for subject in ("tea", "ink"):
        await runtime.start("judged", {"subject": subject}, run_id="r")
        await until_idle(runtime, "r")
        await runtime.send_event("r", Verdict(good=True))
        assert await (await runtime.handler("r")) == {"of": subject}
        row = await runtime.row("r")
        found = await last_published(runtime, row)
        assert found is not None
        assert subject in str(found)
        await runtime.purge("r")


async def test_a_failed_run_that_is_retried_at_once_goes_on(deployment: Deployment) -> None:
    """The news of its retry may come while its end is still being told."""
    runtime = await opened(deployment)
    for number in range(5):
        run_id = f"r{number}"
        await runtime.start("judged", {"subject": "tea"}, run_id=run_id)
        await until_idle(runtime, run_id)
        await runtime.send_event(run_id, Verdict(good=False))
        while (await runtime.get(run_id)).status == "running":  # noqa: ASYNC110 - as fast as the store can tell
            await asyncio.sleep(0)
        await runtime.retry(run_id)
        async with asyncio.timeout(60):
            with pytest.raises(ValueError, match="bad"):
                await (await runtime.handler(run_id))
        assert (await runtime.get(run_id)).ticks > 4


async def test_an_event_for_a_released_run_brings_it_back_with_one_claim(deployment: Deployment) -> None:
    runtime = await deployment.open({"judged": Judged(timeout=None)}, idle_timeout=0)
    await runtime.ready()
    for number in range(3):
        await runtime.start("judged", {"subject": number}, run_id=f"r{number}")
        await until_idle(runtime, f"r{number}")
    while runtime.figures["in_memory"]:  # noqa: ASYNC110 - nothing tells of a release
        await asyncio.sleep(0.01)
    await asyncio.gather(*(runtime.send_event(f"r{number}", Verdict(good=True)) for number in range(3)))
    async with asyncio.timeout(60):
        for number in range(3):
            assert await (await runtime.handler(f"r{number}")) == {"of": number}

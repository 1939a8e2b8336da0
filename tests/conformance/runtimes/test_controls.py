"""Cancelling, pausing and resuming runs, whatever they are doing and wherever they are."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import (
    Watched,
    Witness,
    failure,
    result,
    tick_names,
    until,
    until_idle,
    until_info,
    until_released,
    until_status,
)

from loom import Context, Event, HumanResponseEvent, RunFinished, RunNotFound, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.errors import WorkflowCancelledByUser


class Word(HumanResponseEvent):
    text: str = ""


class Job(Event):
    n: int


class Busy(Watched):
    """Works until it is cancelled."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        self.witness.saw("working")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.witness.saw("stopped")
            raise
        return StopEvent()


class Waiting(Watched):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("waiting")
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)


class Sleeping(Watched):
    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(3600)
        self.witness.saw("woke")
        return StopEvent()


class Chain(Watched):
    """Two steps, and jobs that may come from outside."""

    @step
    async def first(self, ev: StartEvent) -> Job:
        await self.witness.at("first")
        return Job(n=0)

    @step
    async def second(self, ctx: Context, ev: Job) -> StopEvent | None:
        await self.witness.at(f"job {ev.n}")
        return StopEvent(result=ev.n) if ev.n == 2 else None


async def test_a_running_body_is_stopped(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"busy": Busy(witness)})
    handler = await runtime.start("busy", run_id="a")
    await witness.came("working")
    await runtime.cancel("a")
    assert isinstance(await failure(handler), WorkflowCancelledByUser)
    assert (await runtime.get("a")).status == "cancelled"
    await witness.came("stopped")
    await runtime.cancel("a")  # it has what it was asked for


async def test_a_released_run_is_cancelled(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"waiting": Waiting(witness), "sleeping": Sleeping(witness)}, idle_timeout=0)
    client = await deployment.open()
    for name in ("waiting", "sleeping"):
        handler = await runtime.start(name, run_id=name)
        await until_info(runtime, name, lambda info: info.ticks > 1)
        await until_released(runtime, name)
        await (runtime if name == "waiting" else client).cancel(name)
        assert isinstance(await failure(handler), WorkflowCancelledByUser)
    assert witness.calls == ["waiting"], "no body was run to be cancelled"


async def test_a_cancel_is_not_lost_in_a_crash(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"busy": Busy(witness)})
    await first.start("busy", run_id="a")
    await witness.came("working")
    await deployment.crash(first)
    client = await deployment.open()
    await client.cancel("a")
    await client.start("busy", run_id="b")
    await client.cancel("b")
    second = await deployment.open({"busy": Busy(witness)})
    for run_id in ("a", "b"):
        await until_status(second, run_id, "cancelled")
    assert witness.count("working") == 1


async def test_what_has_ended_cannot_be_changed(deployment: Deployment) -> None:
    runtime = await deployment.open({"waiting": Waiting()})
    handler = await runtime.start("waiting", run_id="a")
    await runtime.send_event("a", Word(text="x"))
    assert await result(handler) == "x"
    with pytest.raises(RunFinished, match=r"\(completed\): it cannot be cancelled any more"):
        await runtime.cancel("a")
    with pytest.raises(RunFinished, match="it cannot be paused any more"):
        await runtime.pause("a")
    with pytest.raises(RunFinished, match="it cannot be resumed any more"):
        await runtime.resume("a")
    for call in (runtime.cancel, runtime.pause, runtime.resume, runtime.retry):
        with pytest.raises(RunNotFound, match="'nobody' was not found"):
            await call("nobody")
    assert (await runtime.get("a")).status == "completed"


async def test_a_paused_run_starts_nothing_and_keeps_events(deployment: Deployment, witness: Witness) -> None:
    witness.hold("first")
    first = await deployment.open({"chain": Chain(witness)})
    await first.start("chain", run_id="a")
    await witness.came("first")
    await first.pause("a")
    await until_info(first, "a", lambda info: info.paused)
    witness.let("first")
    await first.send_event("a", Job(n=1))
    # The body that was at work has ended, and its event and the other one are taken in.
    await until_info(first, "a", lambda info: info.ticks >= 4)
    assert witness.calls == ["first"]
    await deployment.crash(first)
    second = await deployment.open({"chain": Chain(witness)})
    await second.send_event("a", Job(n=2))
    await until(lambda: _has_taken_in(second, 2))
    assert (await second.get("a")).paused
    assert witness.calls == ["first"]
    await second.resume("a")
    assert await result(await second.handler("a")) == 2
    assert sorted(witness.calls) == ["first", "job 0", "job 1", "job 2"]
    assert not (await second.get("a")).paused


async def _has_taken_in(runtime: DurableRuntime, jobs: int) -> bool:
    return (await tick_names(runtime, "a")).count("TickAddEvent") == jobs


async def test_a_paused_run_can_be_released_and_cancelled(deployment: Deployment) -> None:
    runtime = await deployment.open({"waiting": Waiting()}, idle_timeout=0)
    handler = await runtime.start("waiting", run_id="a")
    await until_idle(runtime, "a")
    await runtime.pause("a")
    await until_info(runtime, "a", lambda info: info.paused)
    await runtime.send_event("a", Word(text="x"))
    await until_released(runtime, "a")
    assert (await runtime.get("a")).status == "running"
    await runtime.cancel("a")
    assert isinstance(await failure(handler), WorkflowCancelledByUser)


async def test_pausing_twice_and_resuming_what_runs_changes_nothing(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"waiting": Waiting(witness)})
    handler = await runtime.start("waiting", run_id="a")
    await runtime.resume("a")
    await runtime.pause("a")
    await runtime.pause("a")
    await until_info(runtime, "a", lambda info: info.paused)
    await runtime.send_event("a", Word(text="x"))
    await runtime.resume("a")
    assert await result(handler) == "x"
    assert witness.count("waiting") == (1 if deployment.holds_bodies else 2)

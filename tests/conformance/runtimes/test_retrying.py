"""Retrying a failed run from its failed step, and retries by a policy whose delay outlives the process."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, until, until_status

from loom import Context, Event, RunFinished, StartEvent, StopEvent, step
from loom.core.ticks import TickStepResult, TickTimerFired
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.errors import WorkflowTimeoutError
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Paid(Event):
    amount: int


class Weak(Watched):
    """Its second step fails as often as the witness has not seen it succeed."""

    failures = 1

    @step
    async def pay(self, ctx: Context, ev: StartEvent) -> Paid:
        self.witness.saw("pay")
        await ctx.store.set("paid", True)
        return Paid(amount=5)

    @step
    async def ship(self, ctx: Context, ev: Paid) -> StopEvent:
        label = await ctx.once("label", lambda: f"label {self.witness.saw('label')}")
        self.witness.saw(f"key {ctx.idempotency_key}")
        ctx.write_event_to_stream(Paid(amount=-1))
        if self.witness.saw("ship") <= self.failures:
            raise ConnectionError("no ship")
        return StopEvent(result=[label, ev.amount, await ctx.store.get("paid")])


class Slow(Watched):
    @step
    async def first(self, ev: StartEvent) -> Paid:
        self.witness.saw("first")
        return Paid(amount=1)

    @step
    async def second(self, ev: Paid) -> StopEvent:
        if self.witness.saw("second") == 1:
            await asyncio.Event().wait()
        return StopEvent(result="in time")


class Patient(Watched):
    """Tries again after an hour."""

    @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw(f"key {ctx.idempotency_key}")
        if self.witness.saw("work") < 3:
            raise ConnectionError("not yet")
        return StopEvent(result=ctx.retry_info().retry_number)


@pytest.mark.parametrize("restarts", [False, True], ids=["here", "after a restart"])
async def test_a_failed_run_goes_on_from_its_failed_step(
    deployment: Deployment, witness: Witness, restarts: bool
) -> None:
    runtime = await deployment.open({"weak": Weak(witness)})
    handler = await runtime.start("weak", run_id="a")
    assert isinstance(await failure(handler), ConnectionError)
    await until_status(runtime, "a", "failed")
    if restarts:
        await deployment.crash(runtime)
        runtime = await deployment.open({"weak": Weak(witness)})
    await runtime.retry("a")
    assert await result(await runtime.handler("a")) == ["label 1", 5, True]
    info = await runtime.get("a")
    assert (info.status, info.error) == ("completed", None)
    assert [witness.count(what) for what in ("pay", "label", "ship")] == [1, 1, 2]
    assert len({call for call in witness.calls if call.startswith("key")}) == 1


async def test_a_run_may_fail_and_be_retried_again(deployment: Deployment, witness: Witness) -> None:
    workflow = Weak(witness)
    workflow.failures = 3
    runtime = await deployment.open({"weak": workflow})
    await runtime.start("weak", run_id="a")
    for failed in range(1, 4):
        await witness.came("ship", failed)
        await until_status(runtime, "a", "failed")
        await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    assert await result(await runtime.handler("a")) == ["label 1", 5, True]
    assert (witness.count("pay"), witness.count("ship")) == (1, 4)


async def test_a_client_may_ask_for_the_retry(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"weak": Weak(witness)})
    await first.start("weak", run_id="a")
    await until_status(first, "a", "failed")
    await deployment.close(first)
    client = await deployment.open()
    await client.retry("a")
    assert (await client.get("a")).status == "running"
    await deployment.open({"weak": Weak(witness)})
    await until_status(client, "a", "completed")
    assert witness.count("pay") == 1


async def test_only_a_failed_run_can_be_retried(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"weak": Weak(witness), "slow": Slow(witness)})
    await failure(await runtime.start("weak", run_id="a"))
    await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    with pytest.raises(RunFinished, match=r"\(completed\): only a failed run can be retried"):
        await runtime.retry("a")
    await runtime.start("slow", run_id="b")
    await runtime.cancel("b")
    await until_status(runtime, "b", "cancelled")
    with pytest.raises(RunFinished, match=r"\(cancelled\)"):
        await runtime.retry("b")


async def test_a_run_that_took_too_long_has_its_time_again(deployment: Deployment, witness: Witness) -> None:
    # Its second step begins before that, on a slow machine too.
    timeout = {"temporal": 3.0, "postgres": 2.0}.get(deployment.kind, 1.0)
    runtime = await deployment.open({"slow": Slow(witness, timeout=timeout)})
    assert isinstance(await failure(await runtime.start("slow", run_id="a")), WorkflowTimeoutError)
    await until_status(runtime, "a", "failed")
    await runtime.retry("a")
    assert await result(await runtime.handler("a")) == "in time"
    assert witness.calls == ["first", "second", "second"]


async def has_failed(runtime: DurableRuntime, times: int) -> bool:
    ticks = [tick async for _, _, tick in runtime.history("a")]
    return sum(isinstance(tick, TickStepResult) and tick.failure is not None for tick in ticks) >= times


@pytest.mark.parametrize("crashes", [False, True], ids=["close", "crash"])
async def test_the_delay_of_a_retry_outlives_the_process(
    deployment: Deployment, witness: Witness, crashes: bool
) -> None:
    runtime = await deployment.open({"patient": Patient(witness, timeout=None)})
    await runtime.start("patient", run_id="a")
    for attempt in (1, 2):
        await witness.came("work", attempt)
        await until(partial(has_failed, runtime, attempt), "the failure")
        await (deployment.crash(runtime) if crashes else deployment.close(runtime))
        await deployment.pass_time(1800)
        runtime = await deployment.open({"patient": Patient(witness, timeout=None)})
        assert (await runtime.get("a")).status == "running"
        await deployment.close(runtime)
        await deployment.pass_time(1801)
        runtime = await deployment.open({"patient": Patient(witness, timeout=None)})
    assert await result(await runtime.handler("a")) == 2
    assert witness.count("work") == 3
    assert len({call for call in witness.calls if call.startswith("key")}) == 1
    failed = [at async for _, at, tick in runtime.history("a") if isinstance(tick, TickStepResult) and tick.failure]
    fired = [at async for _, at, tick in runtime.history("a") if isinstance(tick, TickTimerFired)]
    assert [due - at >= 3600 for at, due in zip(failed, fired, strict=True)] == [True, True], "none was early"

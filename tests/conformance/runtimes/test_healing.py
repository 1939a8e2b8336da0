"""A failed run goes on with another event in place of the one that failed it."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, until_idle, until_info, until_status

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, step
from loom.steps.registry import wire_name
from loom.steps.stand_ins import stand_in
from loom.store.errors import RunActive

FAILING = {"actions": {"stop": {"type": "terminate", "inputs": {"runStatus": "Failed"}}}}


class Begin(StartEvent):
    parts: int = 1


class Price(HumanResponseEvent):
    amount: int


class Other(HumanResponseEvent):
    amount: int = 0


class Dividing(Watched):
    """Fails on what it is for, or on what it was answered."""

    @step
    async def divide(self, ctx: Context, ev: Begin) -> StopEvent:
        share = 100 // ev.parts
        paid: Any = await ctx.once("bill", lambda: self.witness.saw("bill"))
        first = await ctx.wait_for_event(Price, waiter_id="first", timeout=3600)
        second = await ctx.wait_for_event(Price, waiter_id="second", timeout=3600)
        return StopEvent(result=[share, first.amount, 100 // second.amount, paid])


async def _failed(deployment: Deployment, witness: Witness) -> Any:
    """A run that failed because its second answer was zero."""
    runtime = await deployment.open({"dividing": Dividing(witness)})
    await runtime.start("dividing", run_id="a")
    for waiter, amount in (("first", 7), ("second", 0)):
        await until_info(runtime, "a", lambda info, waiter=waiter: _waits(info, waiter))
        await runtime.send_event("a", Price(amount=amount))
    await until_status(runtime, "a", "failed")
    return runtime


def _waits(info: Any, waiter: str) -> bool:
    return bool(info.idle_since) and info.active_waiters[0]["waiter_id"] == waiter


async def test_another_answer_heals_a_run_that_failed_on_one(deployment: Deployment, witness: Witness) -> None:
    runtime = await _failed(deployment, witness)
    with pytest.raises(ValueError, match=r"failed in step 'divide', and no Other did that: it had Begin, Price\."):
        await runtime.retry("a", event=Other())
    assert (await runtime.get("a")).status == "failed"
    await runtime.retry("a", event=Price(amount=20))
    # The first answer, and what was recorded, stay.
    assert await result(await runtime.handler("a")) == [100, 7, 5, 1]
    with pytest.raises(loom.RunFinished):
        await runtime.retry("a", event=Price(amount=20))


async def test_a_handler_that_has_told_of_the_failure_tells_of_the_end(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await _failed(deployment, witness)
    handler = await runtime.handler("a")
    for event in (None, Price(amount=0)):
        assert isinstance(await failure(handler), ZeroDivisionError)
        await runtime.retry("a", event=event)
    assert isinstance(await failure(handler), ZeroDivisionError)
    await runtime.retry("a", event=Price(amount=20))
    assert await result(handler) == [100, 7, 5, 1]


async def test_another_start_heals_a_run_that_failed_on_its_start(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"dividing": Dividing(witness)})
    await runtime.start("dividing", {"parts": 0}, run_id="a")
    await until_status(runtime, "a", "failed")
    client = await deployment.open()
    with pytest.raises(ValueError, match="Begin, which is not known here and so cannot be checked"):
        await client.retry("a", event=stand_in(wire_name(Begin))(parts=4))
    await client.retry("a", event=Begin(parts=4))
    await until_idle(runtime, "a")
    with pytest.raises(RunActive, match="is running: only a failed run can be retried"):
        await runtime.retry("a", event=Begin(parts=4))
    for waiter in ("first", "second"):
        await until_info(runtime, "a", lambda info, waiter=waiter: _waits(info, waiter))
        await runtime.send_event("a", Price(amount=10))
    assert await result(await runtime.handler("a")) == [25, 10, 10, 1]


async def test_an_answer_that_nobody_could_check_heals_too(deployment: Deployment, witness: Witness) -> None:
    runtime = await _failed(deployment, witness)
    client = await deployment.open()
    price = stand_in(wire_name(Price))
    wrong: Event = price(amount="many")
    await client.retry("a", event=wrong)
    info = await until_info(runtime, "a", lambda info: _waits(info, "second") and info.active_waiters[0].get("refused"))
    assert info.status == "running"
    await client.send_event("a", price(amount=50))
    assert await result(await runtime.handler("a")) == [100, 7, 2, 1]


async def test_a_flow_is_not_healed_by_an_event(deployment: Deployment) -> None:
    runtime = await deployment.open({"failing": loom.load(FAILING)})
    await runtime.start("failing", run_id="a")
    await until_status(runtime, "a", "failed")
    with pytest.raises(ValueError, match="did not fail in a step that works on an event: retry it without one"):
        await runtime.retry("a", event=Price(amount=1))

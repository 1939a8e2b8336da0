"""Handlers: results and failures, in the process that runs the run, in another one, and after a restart."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, in_background, result, until, until_status

from loom import RunNotFound, StartEvent, StopEvent, step
from loom.steps.errors import WorkflowCancelledByUser, WorkflowTimeoutError


class Receipt(StopEvent):
    total: int
    lines: list[str]


class Till(Watched):
    @step
    async def ring(self, ev: StartEvent) -> Receipt:
        await self.witness.at("ring")
        if ev.get("fails"):
            raise LookupError(f"no price for {ev.fails}")
        return Receipt(total=3, lines=["a", "b"])


class Asleep(Watched):
    @step
    async def rest(self, ev: StartEvent) -> StopEvent:
        await asyncio.Event().wait()
        return StopEvent()


async def test_results_are_the_same_everywhere(deployment: Deployment, witness: Witness) -> None:
    witness.hold("ring")
    first = await deployment.open({"till": Till(witness)})
    client = await deployment.open()
    own = await first.start("till", run_id="a")
    other = await client.handler("a")
    waiting = [in_background(result(handler)) for handler in (own, other)]
    await witness.came("ring")
    assert not own.is_done()
    assert own.get_stop_event() is None
    witness.let("ring")
    receipt = Receipt(total=3, lines=["a", "b"])
    assert [await task for task in waiting] == [receipt, receipt]
    assert own.is_done()
    assert own.get_stop_event() == receipt
    assert await other.stop_event_result() == receipt
    await deployment.close(first)
    second = await deployment.open({"till": Till(witness)})
    assert await result(await second.handler("a")) == receipt


async def test_a_failure_is_the_same_everywhere(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"till": Till(witness)})
    client = await deployment.open()
    await first.start("till", {"fails": "tea"}, run_id="a")
    info = await until_status(first, "a", "failed")
    assert info.error == "ring: LookupError: no price for tea"
    assert info.ended_at is not None
    await deployment.crash(first)
    second = await deployment.open({"till": Till(witness)})
    for runtime in (client, second):
        error = await failure(await runtime.handler("a"))
        assert type(error) is LookupError
        assert str(error) == "no price for tea"
    assert witness.calls == ["ring"]


async def test_who_awaits_a_cancelled_run_is_told(deployment: Deployment) -> None:
    runtime = await deployment.open({"asleep": Asleep()})
    client = await deployment.open()
    handler = await runtime.start("asleep", run_id="a")
    other = await client.handler("a")
    await other.cancel_run()
    assert isinstance(await failure(handler), WorkflowCancelledByUser)
    assert isinstance(await failure(other), WorkflowCancelledByUser)
    assert (await client.get("a")).status == "cancelled"


async def test_a_run_that_takes_too_long_has_failed(deployment: Deployment) -> None:
    runtime = await deployment.open({"asleep": Asleep(timeout=0.05)})
    client = await deployment.open()
    handler = await runtime.start("asleep", run_id="a")
    for each in (handler, await client.handler("a")):
        error = await failure(each)
        assert isinstance(error, WorkflowTimeoutError)
        assert "Operation timed out after 0.05 seconds" in str(error)
    info = await client.get("a")
    assert info.status == "failed"
    assert info.error is not None
    assert "timed out" in info.error


async def test_there_is_no_handler_without_a_run(deployment: Deployment) -> None:
    client = await deployment.open()
    with pytest.raises(RunNotFound):
        await client.handler("nobody")


async def test_a_handler_goes_on_waiting_while_its_run_moves(deployment: Deployment, witness: Witness) -> None:
    witness.hold("ring")
    first = await deployment.open({"till": Till(witness)})
    client = await deployment.open()
    await first.start("till", run_id="a")
    waiting = in_background(result(await client.handler("a")))
    await witness.came("ring")
    await deployment.crash(first)
    witness.let("ring")
    await deployment.open({"till": Till(witness)})
    assert (await waiting).total == 3


async def test_many_runs_at_once(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"till": Till(witness)})
    handlers = await asyncio.gather(*(runtime.start("till", {"n": number}) for number in range(50)))
    totals = await asyncio.gather(*(result(handler) for handler in handlers))
    assert {receipt.total for receipt in totals} == {3}
    assert witness.count("ring") == 50
    await until(lambda: runtime.figures["in_memory"] == 0)

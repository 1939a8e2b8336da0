"""`is_idle` and `is_running` of a handler: of the run in memory, else of the newest row that its process has seen."""

from __future__ import annotations

import asyncio
from typing import Any

from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, until_idle, until_released

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, WorkflowHandler, step
from loom.runtime.durable.runtime import DurableRuntime


class Ask(Watched):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent, timeout=None)
        await self.witness.at("answered")
        if answer.response == "fail":
            raise LookupError("no such answer")
        return StopEvent(result=answer.response)


def shown(handler: WorkflowHandler) -> tuple[bool, bool, bool]:
    return handler.ctx.is_running, handler.ctx.is_idle, handler.is_done()


async def until_known(deployment: Deployment, runtime: DurableRuntime) -> None:
    """Where another than this process has the run in memory, it knows what a call has told it."""
    if deployment.kind == "temporal":
        await runtime.get("a")


RUNNING, IDLE, ENDED = (True, False, False), (True, True, False), (False, False, True)


async def test_a_released_run_is_idle_and_an_ended_one_is_neither(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"ask": Ask(witness)}, idle_timeout=0.0)
    client = await deployment.open()
    own = await runtime.start("ask", run_id="a")
    assert own.ctx.is_running
    await until_idle(client, "a")
    if deployment.kind != "temporal":
        await until_released(client, "a")
    await until_known(deployment, runtime)
    other = await client.handler("a")
    assert (shown(own), shown(other)) == (IDLE, IDLE)

    await other.send_event(HumanResponseEvent(response="yes"))
    assert await result(own) == "yes"
    assert shown(own) == ENDED
    await client.get("a")  # what one call of a process has seen, its handlers know
    assert shown(other) == ENDED
    assert shown(await client.handler("a")) == ENDED
    assert shown(await runtime.handler("a")) == ENDED


async def test_a_handler_knows_the_rows_that_a_list_has_read(deployment: Deployment, witness: Witness) -> None:
    await deployment.open({"ask": Ask(witness)})
    client = await deployment.open()
    handler = await client.start("ask", run_id="a")

    async def until_listed(**filters: Any) -> None:
        async with asyncio.timeout(60):
            while not [info async for info in client.list(**filters)]:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.01)

    await until_listed(idle=True)
    assert shown(handler) == IDLE
    await client.send_event("a", HumanResponseEvent(response="yes"))
    await until_listed(status="completed")
    assert shown(handler) == ENDED


async def test_a_retried_run_runs_again(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"ask": Ask(witness)})
    handler = await runtime.start("ask", run_id="a")
    await until_idle(runtime, "a")
    await handler.send_event(HumanResponseEvent(response="fail"))
    assert isinstance(await failure(handler), LookupError)
    assert shown(handler) == ENDED
    witness.hold("answered")
    await runtime.retry("a")
    await witness.came("answered", 2)
    await until_known(deployment, runtime)
    assert shown(handler) == RUNNING
    witness.let("answered")
    assert isinstance(await failure(handler), LookupError)
    assert shown(handler) == ENDED

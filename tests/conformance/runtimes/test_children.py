"""Child runs: their result or failure reaches the parent, and they end with it, across crashes too."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import (
    Watched,
    Witness,
    failure,
    in_background,
    result,
    until,
    until_idle,
    until_released,
    until_status,
)

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.errors import ChildRunCancelled, ChildRunFailed, WorkflowCancelledByUser


class Word(HumanResponseEvent):
    text: str = ""


class Done(StopEvent):
    total: int


class Part(Event):
    pass


class Child(Watched):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await self.witness.at("child")
        if ev.get("fails"):
            raise LookupError("child's fault")
        if ev.get("waits"):
            return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)
        return StopEvent(result=ev.n * 2)


class Sum(Watched):
    @step
    async def work(self, ev: StartEvent) -> Done:
        return Done(total=ev.a + ev.b)


class Parent(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("parent")
        try:
            answer = await ctx.run_child("child", **ev.inputs)
        except ChildRunFailed as error:
            self.witness.saw("told")
            return StopEvent(result=[type(error).__name__, str(error), error.run_id])
        return StopEvent(result=answer)


async def children_of(runtime: DurableRuntime, run_id: str) -> list[str]:
    return [info.run_id async for info in runtime.list(parent_id=run_id)]


async def child_of(runtime: DurableRuntime, run_id: str) -> str:
    found = await until(lambda: children_of(runtime, run_id), "a child")
    return found[0]


async def test_the_result_of_a_child_reaches_its_parent(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"parent": Parent(witness), "child": Child(witness)})
    assert await result(await runtime.start("parent", {"inputs": {"n": 4}}, run_id="p")) == 8
    [child] = await children_of(runtime, "p")
    info = await runtime.get(child)
    assert (info.workflow, info.status, info.parent_id) == ("child", "completed", "p")
    assert await result(await runtime.handler(child)) == 8
    assert witness.calls == (["parent", "child"] if deployment.holds_bodies else ["parent", "child", "parent"])


async def test_a_child_may_be_given_as_a_workflow_and_ends_with_its_own_event(deployment: Deployment) -> None:
    total = Sum(workflow_name="sum")
    runtime = await deployment.open({"sum": total, "adds": Adds(total)})
    assert await result(await runtime.start("adds", run_id="p")) == [3, 7]


class Adds(Watched):
    def __init__(self, total: Sum) -> None:
        super().__init__()
        self.total = total

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        one, two = await asyncio.gather(ctx.run_child(self.total, a=1, b=2), ctx.run_child("sum", a=3, b=4))
        return StopEvent(result=[one.total, two.total])


async def test_the_failure_of_a_child_reaches_its_parent(deployment: Deployment) -> None:
    runtime = await deployment.open({"parent": Parent(), "child": Child()})
    name, message, child = await result(await runtime.start("parent", {"inputs": {"fails": True}}, run_id="p"))
    assert (name, message) == ("ChildRunFailed", "child's fault")
    assert (await runtime.get(child)).status == "failed"
    assert (await runtime.get("p")).status == "completed"


async def test_a_cancelled_child_is_told_to_its_parent(deployment: Deployment) -> None:
    runtime = await deployment.open({"parent": Parent(), "child": Child()})
    handler = await runtime.start("parent", {"inputs": {"waits": True}}, run_id="p")
    child = await child_of(runtime, "p")
    await runtime.cancel(child)
    name, _, told = await result(handler)
    assert (name, told) == (ChildRunCancelled.__name__, child)


async def test_a_child_is_cancelled_with_its_parent(deployment: Deployment) -> None:
    runtime = await deployment.open({"parent": Parent(), "child": Child()})
    handler = await runtime.start("parent", {"inputs": {"waits": True}}, run_id="p")
    child = await child_of(runtime, "p")
    await until_idle(runtime, child)
    await runtime.cancel("p")
    assert isinstance(await failure(handler), WorkflowCancelledByUser)
    await until_status(runtime, child, "cancelled")


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_a_child_goes_on_after_a_crash(
    deployment: Deployment, witness: Witness, idle_timeout: float | None
) -> None:
    code = {"parent": Parent(witness), "child": Child(witness)}
    first = await deployment.open(code, idle_timeout=idle_timeout)
    await first.start("parent", {"inputs": {"waits": True}}, run_id="p")
    child = await child_of(first, "p")
    await until_idle(first, child)
    if idle_timeout == 0:
        await until_released(first, child)
        await until_released(first, "p")
    await deployment.crash(first)
    second = await deployment.open({"parent": Parent(witness), "child": Child(witness)}, idle_timeout=idle_timeout)
    await second.send_event(child, Word(text="back"))
    assert await result(await second.handler("p")) == "back"
    assert await children_of(second, "p") == [child], "the same child, not another one"


async def test_a_child_may_end_while_its_parent_is_not_there(deployment: Deployment, witness: Witness) -> None:
    """The process that comes back first has the child's code only."""
    witness.hold("child")
    first = await deployment.open({"parent": Parent(witness), "child": Child(witness)})
    await first.start("parent", {"inputs": {"n": 21}}, run_id="p")
    await witness.came("child")
    child = await child_of(first, "p")
    await deployment.crash(first)
    witness.let("child")
    second = await deployment.open({"child": Child(witness)})
    assert await result(await second.handler(child)) == 42
    assert (await second.get("p")).status == "running"
    await deployment.close(second)
    third = await deployment.open({"parent": Parent(witness)})
    assert await result(await third.handler("p")) == 42
    assert witness.count("child") == 2


async def test_a_child_whose_code_is_elsewhere_is_waited_for(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"parent": Parent(witness)}, idle_timeout=0)
    waiting = in_background(result(await runtime.start("parent", {"inputs": {"n": 3}}, run_id="p")))
    child = await child_of(runtime, "p")
    await until_released(runtime, "p")
    runtime.register(Child(witness), name="child")
    assert await waiting == 6
    assert (await runtime.get(child)).status == "completed"


async def test_children_of_children_are_cancelled_too(deployment: Deployment, witness: Witness) -> None:
    code = {"top": Top(witness), "parent": Parent(witness), "child": Child(witness)}
    runtime = await deployment.open(code)
    await runtime.start("top", run_id="t")
    parent = await child_of(runtime, "t")
    child = await child_of(runtime, parent)
    await until_idle(runtime, child)
    await runtime.cancel("t")
    for run_id in ("t", parent, child):
        await until_status(runtime, run_id, "cancelled")


class Top(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child("parent", inputs={"waits": True}))


async def test_a_child_needs_a_name_that_can_be_stored(deployment: Deployment) -> None:
    runtime = await deployment.open({"misnamed": Misnamed()})
    for name in ("", "a\0b", "\ud800", "x" * 501):
        error = await failure(await runtime.start("misnamed", {"name": name}))
        assert isinstance(error, ValueError)
        assert "The name of a workflow" in str(error)


class Misnamed(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child(ev.name))

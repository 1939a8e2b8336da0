"""Children of the same workflow under `num_concurrent_runs`: a run that waits for its child lends it its place, so that
neither waits for the other, and no more are at work than the limit allows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from applicable import not_on
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, soon, until

from loom import Context, StartEvent, StopEvent, step


class Tree(Watched):
    """Starts so many children of its own name, each of which does the same with one number less; leaves only work."""

    at_work = most = 0

    @step
    async def grow(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.levels:
            name = ev.get("through", "tree")
            inputs: dict[str, Any] = {"levels": ev.levels - 1, "width": ev.width, "through": name}
            children = [ctx.run_child(name, **inputs) for _ in range(ev.width)]
            return StopEvent(result=sum(await asyncio.gather(*children)))
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await self.witness.at("leaf")
        await asyncio.sleep(0)
        self.at_work -= 1
        return StopEvent(result=1)


class Between(Watched):
    """A workflow without a limit, whose child is a tree."""

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        inputs: dict[str, Any] = {"levels": ev.levels, "width": ev.width}
        return StopEvent(result=await ctx.run_child("tree", **inputs))


@pytest.mark.parametrize(("levels", "width"), [(3, 1), (1, 4), (2, 2)], ids=["deep", "wide", "both"])
async def test_children_of_the_same_workflow_do_not_stand_still(
    deployment: Deployment, levels: int, width: int
) -> None:
    tree = Tree(num_concurrent_runs=1)
    runtime = await deployment.open({"tree": tree}, idle_timeout=None)
    inputs = {"levels": levels, "width": width}
    assert await result(await runtime.start("tree", inputs, run_id="root")) == width**levels


async def test_the_limit_holds_for_what_is_at_work(deployment: Deployment) -> None:
    tree = Tree(num_concurrent_runs=2)
    runtime = await deployment.open({"tree": tree}, idle_timeout=None)
    inputs = {"levels": 1, "width": 3}
    handlers = [await runtime.start("tree", inputs, run_id=f"root {number}") for number in range(4)]
    assert await soon(asyncio.gather(*handlers)) == [3] * 4
    assert tree.most <= 2


async def test_a_child_by_way_of_another_workflow_does_not_stand_still(deployment: Deployment) -> None:
    runtime = await deployment.open({"tree": Tree(num_concurrent_runs=1), "between": Between()}, idle_timeout=None)
    handler = await runtime.start("tree", {"levels": 2, "width": 2, "through": "between"}, run_id="root")
    assert await result(handler) == 4


@not_on("sqlite", reason="Only one process works on the runs of a file.")
@not_on("temporal", reason="The cluster holds the runs: a process has no room that they wait for.")
async def test_a_child_whose_process_died_is_recovered_beside_its_parent(
    deployment: Deployment, witness: Witness
) -> None:
    """The parent's process has no room but the parent's own place, and nobody tells it of the child."""
    witness.hold("leaf")
    other = await deployment.open({"tree": Tree(witness, num_concurrent_runs=1)}, idle_timeout=None)
    runtime = await deployment.open({"tree": Tree(witness, num_concurrent_runs=1)}, idle_timeout=None)
    handler = await runtime.start("tree", {"levels": 1, "width": 2}, run_id="root")
    await witness.came("leaf", 2)  # one child has the parent's place, and one is in the other process
    assert other.figures["in_memory"] == 1
    await deployment.crash(other)
    witness.let("leaf")
    assert await result(handler) == 2
    await until(lambda: runtime.figures["in_memory"] == 0, "nothing in memory")

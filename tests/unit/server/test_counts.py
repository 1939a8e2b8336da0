"""`GET /v1/counts`: what is counted, for whom, and how seldom."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from server_serving import Served

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.api.counts import WorkflowCounts
from loom.runtime.durable.run_counts import CountedWorkflows


class Go(HumanResponseEvent):
    pass


class Waits(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.get("wait"):
            await ctx.wait_for_event(Go)
        return StopEvent(result=1)


async def test_runs_are_counted_by_status_by_what_holds_them_and_by_workflow(
    served: Served, client: httpx2.AsyncClient
) -> None:
    for name in ("one", "two"):
        served.runtime.register(Waits(timeout=None), name=name)
    await (await served.runtime.start("one", {"wait": False}))
    await served.runtime.start("two", {"wait": True}, run_id="r")
    async with asyncio.timeout(20):
        while (await served.runtime.get("r")).idle_since is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    found = (await client.get("/v1/counts")).json()
    assert {name: found[name] for name in ("total", "running", "completed", "idle", "waiting", "stuck")} == {
        "total": 2, "running": 1, "completed": 1, "idle": 1, "waiting": 1, "stuck": 0,
    }  # fmt: skip
    assert [(each["workflow"], each["total"], each["waiting"]) for each in found["workflows"]] == [
        ("one", 1, 0), ("two", 1, 1),
    ]  # fmt: skip
    limited = (await client.get("/v1/counts?workflow=one&workflow=none")).json()
    assert (limited["total"], [each["workflow"] for each in limited["workflows"]]) == (1, ["one"])
    assert (await client.get("/v1/counts?status=failed")).status_code == 400
    counts = await served.runtime.counts(workflow="two")
    assert (counts.total, counts.waiting, len(counts.workflows)) == (1, 1, 1)


class _Store:
    """A store that counts slowly, and notes how often."""

    def __init__(self, found: list[WorkflowCounts], by_status: dict[str, int] | None = None) -> None:
        self.found, self.by_status, self.asked = found, by_status or {}, 0

    async def workflow_counts(self) -> list[WorkflowCounts]:
        self.asked += 1
        await asyncio.sleep(0)
        return self.found

    async def counts(self) -> dict[str, int]:
        return self.by_status


async def test_many_callers_share_one_count_and_own_runs_are_left_out() -> None:
    store = _Store([WorkflowCounts(workflow="loom.schedule", total=7), WorkflowCounts(workflow="w", total=2)])
    counted = CountedWorkflows(store, lambda: 5.0)  # type: ignore[arg-type]
    found = await asyncio.gather(*(counted.get(None) for _ in range(50)))
    assert store.asked == 1
    assert {each.total for each in found} == {2}
    assert found[0].at.timestamp() == 5.0


async def test_a_cluster_counts_by_status_alone_and_tells_a_limited_key_nothing() -> None:
    by_status = {"running": 3, "completed": 2, "failed": 1, "cancelled": 0, "idle": 1, "owned": 0}
    counted = CountedWorkflows(_Store([], by_status), lambda: 5.0)  # type: ignore[arg-type]
    found = await counted.get(None)
    assert (found.total, found.running, found.idle, found.asleep, found.workflows) == (6, 3, 1, None, [])
    limited = await counted.get(("w",))
    assert (limited.total, limited.running) == (None, None)


@pytest.mark.parametrize("runs", [0, 1])
async def test_counts_go_on_with_the_store(runs: int) -> None:
    store = _Store([WorkflowCounts(workflow="w", total=runs)] if runs else [])
    assert (await CountedWorkflows(store, lambda: 5.0).get(None)).total == runs  # type: ignore[arg-type]

"""The status of a run on a Temporal server: with the shield of queries, and without it."""

import asyncio
import time
from statistics import median
from typing import Any

from bench.places import temporal_target
from bench.spec import Case, Figures, Metric, within

_QUERIES = 4


async def _asked(target: str, size: int, shielded: bool) -> Figures:
    """Let a run take an event, wait until its task is over, and ask for its row a few times: no task carries that."""
    import loom
    from loom import HumanResponseEvent, StartEvent, StopEvent, Workflow, step
    from loom.store.records import RunRow
    from loom.temporal.names import QUERY_ROW

    class Word(HumanResponseEvent):
        pass

    class Listens(Workflow):
        @step
        async def begin(self, _: StartEvent) -> None:
            return None

        @step
        async def hear(self, _: Word) -> StopEvent | None:
            return None

    first: list[float] = []
    took: list[float] = []
    async with loom.connect(f"temporal://{target}/default?task_queue=bench") as runtime:
        connected: Any = runtime
        runtime.register(Listens(timeout=None), name="listens")
        await connected.ready()
        await runtime.start("listens", run_id="a")
        if not shielded:
            connected._runner.histories = None
        cluster = connected.store._cluster
        for _ in range(size):
            await runtime.send_event("a", Word())
            while await _is_busy(connected.client):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.002)
            for number in range(_QUERIES):
                began = time.perf_counter()
                await cluster.query("a", QUERY_ROW, RunRow)
                took.append(time.perf_counter() - began)
                if number == 0:
                    first.append(took[-1])
        reads = connected._runner.histories.reads if shielded else 0
    return {"p50": median(took) * 1e3, "first": median(first) * 1e3, "reads": reads / len(took)}


async def _is_busy(client: Any) -> bool:
    found = (await client.get_workflow_handle("a").describe()).raw_description
    return bool(found.pending_activities) or found.HasField("pending_workflow_task")


def loom(size: int) -> Figures:
    with temporal_target() as target:
        return asyncio.run(_asked(target, size, shielded=True))


def unshielded(size: int) -> Figures:
    with temporal_target() as target:
        return asyncio.run(_asked(target, size, shielded=False))


CASE = Case(
    name="temporal-query",
    title="the status of a run on Temporal's development server, four times after each move",
    order=103,
    size=60,
    metrics=(Metric("p50", "ms"), Metric("first", "ms, the first after a move"), Metric("reads", "reads/query")),
    peers={"loom": loom, "unshielded": unshielded},
    targets=(within("unshielded", "p50", 1.3),),
    warm_up=5,
    preparation_s=20,
)

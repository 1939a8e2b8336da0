"""One run of steps on a Temporal server, one after the other: activities of temporalio, and steps of Loom."""

import asyncio
import time

from bench.cases import _chains
from bench.places import temporal_target
from bench.spec import Case, Figures, Metric, within


def plain(size: int) -> Figures:
    """A workflow and an activity as temporalio's documentation shows them, in a worker with its usual settings."""
    from temporalio.client import Client
    from temporalio.worker import Worker

    from bench.cases._temporal_plain import Chain, go_on

    async def main(target: str) -> float:
        client = await Client.connect(target)
        async with Worker(client, task_queue="bench", workflows=[Chain], activities=[go_on]):
            started = time.perf_counter()
            assert (
                await client.execute_workflow(Chain.run, args=[size, _chains.TEXT], id="a", task_queue="bench") == size
            )
            return time.perf_counter() - started

    with temporal_target() as target:
        return {"ms": asyncio.run(main(target)) / size * 1e3}


def loom(size: int) -> Figures:
    with temporal_target() as target:
        return {"ms": _chains.loom(f"temporal://{target}/default?task_queue=bench", 1, size) / size * 1e3}


CASE = Case(
    name="temporal-steps",
    title="one run of steps on Temporal's development server",
    order=100,
    size=200,
    metrics=(Metric("ms", "ms/step"),),
    peers={"loom": loom, "temporalio": plain},
    targets=(within("temporalio", "ms", 1.1),),
    warm_up=10,
    preparation_s=20,
)

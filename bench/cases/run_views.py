# Steps take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""What a run did over time, as the page asks for it: the first look at a long run, and the next one."""

import asyncio
from typing import Any

from bench.cases import _flow_documents
from bench.cases._api import step_api
from bench.measure import Stopwatch
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

EVENTS_PER_ROUND = 2
"""What an iteration of the loop puts on the stream: the end of its action, and its own."""


def chain(size: int) -> Any:
    api = step_api("loom")

    class Again(api.Event):
        n: int

    class Chain(api.Workflow):
        @api.step
        async def begin(self, ev: api.StartEvent) -> Again:
            return Again(n=0)

        @api.step
        async def go(self, ev: Again) -> Again | api.StopEvent:
            return Again(n=ev.n + 1) if ev.n < size // 2 else api.StopEvent(result=ev.n)

    return Chain(timeout=None)


async def _looked(url: str, workflow: Any, size: int) -> Figures:
    """The run is made in memory and imported: on the disk a long one would take a minute."""
    import loom

    async with loom.connect("memory://") as runtime:
        runtime.register(workflow, name="long")
        await (await runtime.start("long", run_id="r"))
        assert (await runtime.store.get("r")).head.events >= size
        exported = await runtime.export_run("r")
    async with loom.connect(url) as runtime:
        await runtime.import_run(exported)
        watch = Stopwatch()
        await runtime.timeline("r")
        first, _ = watch.read()
        watch = Stopwatch()
        await runtime.timeline("r")
        again, _ = watch.read()
        watch = Stopwatch()
        await runtime.run_graph("r")
        graph, _ = watch.read()
    return {"first": first * 1e3, "again": again * 1e3, "graph": graph * 1e3}


def steps(size: int) -> Figures:
    with sqlite_url() as url:
        return asyncio.run(_looked(url, chain(size), size))


def flow(size: int) -> Figures:
    import loom

    rounds = size // EVENTS_PER_ROUND
    loop = loom.load(_flow_documents.until(rounds), limits={"max_iterations": rounds})
    with sqlite_url() as url:
        return asyncio.run(_looked(url, loop, size))


CASE = Case(
    name="run-views",
    title="look at a run of 10,000 events over time",
    order=65,
    size=10_000,
    metrics=(
        Metric("first", "ms for the first timeline"),
        Metric("again", "ms for the next one"),
        Metric("graph", "ms for the graph with counts"),
    ),
    peers={"loom": steps, "loom flow": flow},
    targets=(absolute("at most 1 s", "first", at_most=1000),),
    preparation_s=60,
    full_size=100_000,
)

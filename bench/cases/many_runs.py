# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""Many runs of three steps at the same time: how many finish in a second, and what each holds in memory."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

from bench.cases._api import step_api
from bench.measure import peak_kb, reset_peak
from bench.spec import Case, Figures, Metric, absolute

WARM_UP = 20


async def _race(start: Callable[[], Awaitable[object]], size: int) -> Figures:
    """Start all runs before the first one moves, and keep hold of them until all are done."""
    for run in [start() for _ in range(WARM_UP)]:
        await run
    before = reset_peak()
    started = time.perf_counter()
    runs = [start() for _ in range(size)]
    for run in runs:
        await run
    seconds = time.perf_counter() - started
    return {"runs": size / seconds, "kb": (peak_kb() - before) / size}


def _steps(peer: str, size: int) -> Figures:
    api = step_api(peer)

    class One(api.Event):
        n: int

    class Two(api.Event):
        n: int

    class Three(api.Workflow):
        @api.step
        async def first(self, ev: api.StartEvent) -> One:
            return One(n=1)

        @api.step
        async def second(self, ev: One) -> Two:
            return Two(n=ev.n + 1)

        @api.step
        async def third(self, ev: Two) -> api.StopEvent:
            return api.StopEvent(result=ev.n + 1)

    async def main() -> Figures:
        return await _race(Three(timeout=None).run, size)

    return asyncio.run(main())


def loom(size: int) -> Figures:
    return _steps("loom", size)


def llama(size: int) -> Figures:
    return _steps("llama", size)


def langgraph(size: int) -> Figures:
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    class Count(TypedDict):
        n: int

    async def add(state: Count) -> Count:
        return {"n": state["n"] + 1}

    builder = StateGraph(Count)
    names = [START, "first", "second", "third", END]
    for name in names[1:-1]:
        builder.add_node(name, add)
    for before, after in pairwise(names):
        builder.add_edge(before, after)
    graph = builder.compile()

    async def main() -> Figures:
        return await _race(lambda: asyncio.create_task(graph.ainvoke({"n": 0})), size)

    return asyncio.run(main())


def pydantic_graph(size: int) -> Figures:
    from pydantic_graph import GraphBuilder, StepContext

    builder = GraphBuilder(input_type=int, output_type=int)

    @builder.step
    async def first(ctx: StepContext[None, None, int]) -> int:
        return ctx.inputs + 1

    @builder.step
    async def second(ctx: StepContext[None, None, int]) -> int:
        return ctx.inputs + 1

    @builder.step
    async def third(ctx: StepContext[None, None, int]) -> int:
        return ctx.inputs + 1

    nodes = [builder.start_node, first, second, third, builder.end_node]
    for before, after in pairwise(nodes):
        builder.add(builder.edge_from(before).to(after))
    graph = builder.build()

    async def main() -> Figures:
        return await _race(lambda: asyncio.create_task(graph.run(inputs=0)), size)

    return asyncio.run(main())


def bare_asyncio(size: int) -> Figures:
    """A task per run that awaits a task per step."""

    async def add(n: int) -> int:
        return n + 1

    async def run() -> int:
        n = 0
        for _ in range(3):
            n = await asyncio.create_task(add(n))
        return n

    async def main() -> Figures:
        return await _race(lambda: asyncio.create_task(run()), size)

    return asyncio.run(main())


CASE = Case(
    name="many-runs",
    title="2,000 concurrent runs of 3 steps",
    order=30,
    size=2_000,
    metrics=(Metric("runs", "runs/s", more_is_better=True), Metric("kb", "KB/run")),
    peers={
        "loom": loom,
        "llama": llama,
        "langgraph": langgraph,
        "pydantic-graph": pydantic_graph,
        "asyncio": bare_asyncio,
    },
    targets=(
        absolute("at least 6,000 runs/s", "runs", at_least=6_000),
        absolute("at most 11 KB/run", "kb", at_most=11),
    ),
)

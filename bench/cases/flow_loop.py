# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""A loop with one thing to do in it, in memory: what an iteration costs."""

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from bench.cases import _flow_documents
from bench.cases._api import step_api
from bench.measure import Stopwatch
from bench.spec import Case, Figures, Metric, absolute, faster_than

RUNS = 7


async def _timed(run: Callable[[], Awaitable[object]], size: int) -> Figures:
    """The median of a few runs, each with all iterations."""
    runs: list[tuple[float, float]] = []
    for _ in range(RUNS):
        watch = Stopwatch()
        assert await run() == size
        runs.append(watch.read())
    wall, cpu = (median(column) / size * 1e6 for column in zip(*runs, strict=True))
    return {"us": wall, "cpu": cpu}


def _flow(document: Callable[[int], dict[str, Any]]) -> Callable[[int], Figures]:
    def measure(size: int) -> Figures:
        import loom

        flow = loom.load(document(size))

        async def run() -> object:
            result = await flow.run()
            return result.actions["loop"].outputs["count"]

        async def main() -> Figures:
            return await _timed(run, size)

        return asyncio.run(main())

    return measure


def _steps(peer: str, size: int) -> Figures:
    api = step_api(peer)

    class Again(api.Event):
        n: int

    class Loop(api.Workflow):
        @api.step
        async def begin(self, ev: api.StartEvent) -> Again:
            return Again(n=0)

        @api.step
        async def count(self, ev: Again) -> Again | api.StopEvent:
            return Again(n=ev.n + 1) if ev.n < size else api.StopEvent(result=ev.n)

    async def main() -> Figures:
        workflow = Loop(timeout=None)

        async def run() -> object:
            return await workflow.run()

        return await _timed(run, size)

    return asyncio.run(main())


def loom_steps(size: int) -> Figures:
    """The same loop in Python."""
    return _steps("loom", size)


def llama(size: int) -> Figures:
    return _steps("llama", size)


def langgraph(size: int) -> Figures:
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    class Counter(TypedDict):
        n: int

    async def count(state: Counter) -> Counter:
        return {"n": state["n"] + 1}

    builder = StateGraph(Counter)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda state: "count" if state["n"] < size else END, ["count", END])
    graph = builder.compile()

    async def run() -> object:
        return (await graph.ainvoke({"n": 0}, {"recursion_limit": size + 10}))["n"]

    async def main() -> Figures:
        return await _timed(run, size)

    return asyncio.run(main())


CASE = Case(
    name="flow-loop",
    title="a loop with one action, 1,000 iterations, in memory",
    order=71,
    size=1_000,
    metrics=(Metric("us", "us/iteration"), Metric("cpu", "CPU us/iteration")),
    peers={
        "loom": _flow(_flow_documents.until),
        "loom Azure": _flow(_flow_documents.azure_until),
        "loom steps": loom_steps,
        "llama": llama,
        "langgraph": langgraph,
    },
    targets=(
        absolute("at most 30 us/iteration", "us", at_most=30),
        absolute("at most 30 CPU us/iteration", "cpu", at_most=30),
        absolute("in Logic Apps' dialect at most 30 CPU us/iteration", "cpu", at_most=30, peer="loom Azure"),
        faster_than("langgraph", "us", 10),
        faster_than("llama", "us", 10),
    ),
)

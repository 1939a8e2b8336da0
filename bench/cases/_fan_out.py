# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG001
"""What the two fan-out cases share: the peers that know one way of collecting only."""

import asyncio
import operator
import time
from typing import Annotated, Any, TypedDict

from bench.spec import Figures, Target, absolute

SIZE = 5_000
WORKERS = 8
TIMES = 10
LARGE = "loom x10"


def figures(started: float, size: int) -> Figures:
    """Return the time per item."""
    return {"us": (time.perf_counter() - started) / size * 1e6}


def langgraph(size: int) -> Figures:
    """`Send` to the workers, collected by a reducer."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    class Items(TypedDict):
        done: Annotated[list[int], operator.add]

    async def make(state: Items) -> dict[str, Any]:
        return {}

    async def work(state: dict[str, int]) -> dict[str, Any]:
        return {"done": [state["n"]]}

    builder = StateGraph(Items)
    builder.add_node("make", make)
    builder.add_node("work", work)
    builder.add_edge(START, "make")
    builder.add_conditional_edges("make", lambda _: [Send("work", {"n": n}) for n in range(size)], ["work"])
    builder.add_edge("work", END)
    graph = builder.compile()

    async def main() -> Figures:
        started = time.perf_counter()
        result = await graph.ainvoke({"done": []}, {"max_concurrency": WORKERS})
        assert len(result["done"]) == size
        return figures(started, size)

    return asyncio.run(main())


def pydantic_graph(size: int) -> Figures:
    """`map` and a join; it knows no limit of workers."""
    from pydantic_graph import GraphBuilder, StepContext, reduce_list_append

    builder = GraphBuilder(input_type=int, output_type=int)

    @builder.step
    async def make(ctx: StepContext[None, None, int]) -> list[int]:
        return list(range(ctx.inputs))

    @builder.step
    async def work(ctx: StepContext[None, None, int]) -> int:
        return ctx.inputs

    @builder.step
    async def done(ctx: StepContext[None, None, list[int]]) -> int:
        return len(ctx.inputs)

    collect = builder.join(reduce_list_append, initial_factory=list[int])
    builder.add(
        builder.edge_from(builder.start_node).to(make),
        builder.edge_from(make).map().to(work),
        builder.edge_from(work).to(collect),
        builder.edge_from(collect).to(done),
        builder.edge_from(done).to(builder.end_node),
    )
    graph = builder.build()

    async def main() -> Figures:
        started = time.perf_counter()
        assert await graph.run(inputs=size) == size
        return figures(started, size)

    return asyncio.run(main())


def bare_asyncio(size: int) -> Figures:
    """A task per item, a semaphore for the workers, `gather` to collect."""

    async def work(slots: asyncio.Semaphore, n: int) -> int:
        async with slots:
            return n

    async def main() -> Figures:
        started = time.perf_counter()
        slots = asyncio.Semaphore(WORKERS)
        done = await asyncio.gather(*(work(slots, n) for n in range(size)))
        assert len(done) == size
        return figures(started, size)

    return asyncio.run(main())


def targets() -> tuple[Target, ...]:
    """Return what Loom has to reach: the time per item, and that it stays with ten times the items."""
    return (
        absolute("at most 40 us/item", "us", at_most=40),
        Target(
            f"{SIZE * TIMES:,} items take at most 11x of {SIZE:,}",
            lambda medians: medians[LARGE]["us"] * TIMES / medians["loom"]["us"],
            at_most=11,
        ),
    )

# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG001, ARG002
"""Runs that wait for an event from outside: what each holds, what starting one costs, how fast one goes on."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

from bench.cases._api import step_api
from bench.measure import resident_kb, until_idle
from bench.spec import Case, Figures, Metric, absolute

WARM_UP = 5
RESUMED = 21


class _Counter:
    """Counts the runs that have come to their wait."""

    waiting = 0


async def _hold(
    counter: _Counter, start: Callable[[int], Any], resume: Callable[[Any], Awaitable[object]], size: int
) -> Figures:
    """Start all runs, let them come to rest, and wake a few of them one by one."""
    for number in range(WARM_UP):
        run = start(-1 - number)
        await until_idle(lambda reached=number + 1: counter.waiting >= reached)
        await resume(run)
    counter.waiting = 0
    before = resident_kb()
    started = time.perf_counter()
    runs = [start(number) for number in range(size)]
    await until_idle(lambda: counter.waiting >= size)
    seconds = time.perf_counter() - started
    held = resident_kb() - before
    resumed = []
    for run in runs[:: max(1, size // RESUMED)]:
        started = time.perf_counter()
        await resume(run)
        resumed.append(time.perf_counter() - started)
    return {"kb": held / size, "start": seconds / size * 1e3, "resume": median(resumed) * 1e3}


def _steps(peer: str, size: int) -> Figures:
    api = step_api(peer)
    counter = _Counter()

    class Go(api.HumanResponseEvent):
        n: int

    class Wait(api.Workflow):
        @api.step
        async def hold(self, ctx: api.Context, ev: api.StartEvent) -> api.StopEvent:
            counter.waiting += 1
            go = await ctx.wait_for_event(Go, timeout=None)
            return api.StopEvent(result=go.n)

    async def resume(handler: Any) -> None:
        handler.ctx.send_event(Go(n=1))
        assert await handler == 1

    async def main() -> Figures:
        workflow = Wait(timeout=None)
        return await _hold(counter, lambda _: workflow.run(), resume, size)

    return asyncio.run(main())


def loom(size: int) -> Figures:
    return _steps("loom", size)


def llama(size: int) -> Figures:
    return _steps("llama", size)


def langgraph(size: int) -> Figures:
    """`interrupt` with the in-memory checkpointer."""
    from typing import TypedDict

    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, interrupt

    counter = _Counter()

    class State(TypedDict):
        n: int

    async def hold(state: State) -> State:
        counter.waiting += 1
        return {"n": interrupt("go?")}

    builder = StateGraph(State)
    builder.add_node("hold", hold)
    builder.add_edge(START, "hold")
    builder.add_edge("hold", END)
    graph = builder.compile(checkpointer=InMemorySaver())

    def start(number: int) -> dict[str, Any]:
        config = {"configurable": {"thread_id": str(number)}}
        # The task is kept beside its key so that nothing collects it before it is done.
        return {"config": config, "task": asyncio.create_task(graph.ainvoke({"n": 0}, config))}

    async def resume(run: dict[str, Any]) -> None:
        result = await graph.ainvoke(Command(resume=1), run["config"])
        assert result["n"] == 1

    async def main() -> Figures:
        return await _hold(counter, start, resume, size)

    return asyncio.run(main())


def pydantic_graph(size: int) -> Figures:
    """It knows no waiting: a step that awaits a future."""
    from pydantic_graph import GraphBuilder, StepContext

    counter = _Counter()
    builder = GraphBuilder(input_type=asyncio.Future, output_type=int)

    @builder.step
    async def hold(ctx: StepContext[None, None, asyncio.Future[int]]) -> int:
        counter.waiting += 1
        return await ctx.inputs

    builder.add(builder.edge_from(builder.start_node).to(hold), builder.edge_from(hold).to(builder.end_node))
    graph = builder.build()
    return _futures(counter, lambda future: graph.run(inputs=future), size)


def bare_asyncio(size: int) -> Figures:
    counter = _Counter()

    async def hold(future: asyncio.Future[int]) -> int:
        counter.waiting += 1
        return await future

    return _futures(counter, hold, size)


def _futures(counter: _Counter, run: Callable[[asyncio.Future[int]], Any], size: int) -> Figures:
    def start(_: int) -> tuple[asyncio.Future[int], asyncio.Task[int]]:
        future = asyncio.get_running_loop().create_future()
        return future, asyncio.create_task(run(future))

    async def resume(pair: tuple[asyncio.Future[int], asyncio.Task[int]]) -> None:
        future, task = pair
        if not future.done():
            future.set_result(1)
        assert await task == 1

    async def main() -> Figures:
        return await _hold(counter, start, resume, size)

    return asyncio.run(main())


CASE = Case(
    name="waiting",
    title="10,000 runs waiting for an event",
    order=40,
    size=10_000,
    metrics=(Metric("kb", "KB each"), Metric("start", "ms to start one"), Metric("resume", "ms to resume one")),
    peers={
        "loom": loom,
        "llama": llama,
        "langgraph": langgraph,
        "pydantic-graph": pydantic_graph,
        "asyncio": bare_asyncio,
    },
    targets=(
        absolute("at most 10 KB each", "kb", at_most=10),
        absolute("at most 0.2 ms to start one", "start", at_most=0.2),
        absolute("at most 1 ms to resume one", "resume", at_most=1),
    ),
)

# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""Two steps that throw one event to and fro: what a single step costs when nothing else happens."""

import asyncio
import time

from bench.cases._api import step_api
from bench.spec import Case, Figures, Metric, absolute, faster_than, within


def _figures(started: float, size: int) -> Figures:
    return {"us": (time.perf_counter() - started) / size * 1e6}


def _steps(peer: str, size: int) -> Figures:
    api = step_api(peer)

    class Ping(api.Event):
        n: int

    class Pong(api.Event):
        n: int

    class PingPong(api.Workflow):
        @api.step
        async def begin(self, ev: api.StartEvent) -> Ping:
            return Ping(n=1)

        @api.step
        async def ping(self, ev: Ping) -> Pong:
            return Pong(n=ev.n + 1)

        @api.step
        async def pong(self, ev: Pong) -> Ping | api.StopEvent:
            return Ping(n=ev.n + 1) if ev.n < size else api.StopEvent(result=ev.n)

    async def main() -> Figures:
        workflow = PingPong(timeout=None)
        started = time.perf_counter()
        assert await workflow.run() >= size
        return _figures(started, size)

    return asyncio.run(main())


def loom(size: int) -> Figures:
    return _steps("loom", size)


def llama(size: int) -> Figures:
    return _steps("llama", size)


def langgraph(size: int) -> Figures:
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    class Ball(TypedDict):
        n: int

    async def throw(state: Ball) -> Ball:
        return {"n": state["n"] + 1}

    builder = StateGraph(Ball)
    builder.add_node("ping", throw)
    builder.add_node("pong", throw)
    builder.add_edge(START, "ping")
    builder.add_edge("ping", "pong")
    builder.add_conditional_edges("pong", lambda state: "ping" if state["n"] < size else END, ["ping", END])
    graph = builder.compile()

    async def main() -> Figures:
        started = time.perf_counter()
        result = await graph.ainvoke({"n": 0}, {"recursion_limit": size + 10})
        assert result["n"] >= size
        return _figures(started, size)

    return asyncio.run(main())


def pydantic_graph(size: int) -> Figures:
    from bench.cases._pydantic_ping_pong import Ping, build

    graph = build()

    async def main() -> Figures:
        started = time.perf_counter()
        assert await graph.run(inputs=Ping(0, size)) >= size
        return _figures(started, size)

    return asyncio.run(main())


def burr(size: int) -> Figures:
    from burr.core import ApplicationBuilder, State, action, default, expr

    @action(reads=["n"], writes=["n"])
    async def ping(state: State) -> State:
        return state.update(n=state["n"] + 1)

    @action(reads=["n"], writes=["n"])
    async def pong(state: State) -> State:
        return state.update(n=state["n"] + 1)

    @action(reads=["n"], writes=[])
    async def done(state: State) -> State:
        return state

    builder = ApplicationBuilder().with_actions(ping, pong, done).with_state(n=0).with_entrypoint("ping")
    app = builder.with_transitions(("ping", "pong"), ("pong", "done", expr(f"n >= {size}")), ("pong", "ping", default))

    async def main() -> Figures:
        application = app.build()
        started = time.perf_counter()
        _, _, state = await application.arun(halt_after=["done"])
        assert state["n"] >= size
        return _figures(started, size)

    return asyncio.run(main())


def bare_asyncio(size: int) -> Figures:
    """One task per step and a queue: what any engine on asyncio has to pay."""

    async def throw(queue: asyncio.Queue[int], n: int) -> None:
        queue.put_nowait(n + 1)

    async def main() -> Figures:
        queue: asyncio.Queue[int] = asyncio.Queue()
        started = time.perf_counter()
        n = 0
        while n < size:
            task = asyncio.create_task(throw(queue, n))
            n = await queue.get()
            await task
        return _figures(started, size)

    return asyncio.run(main())


CASE = Case(
    name="ping-pong",
    title="ping-pong, 10,000 steps",
    order=10,
    size=10_000,
    metrics=(Metric("us", "us/step"),),
    peers={
        "loom": loom,
        "llama": llama,
        "langgraph": langgraph,
        "pydantic-graph": pydantic_graph,
        "burr": burr,
        "asyncio": bare_asyncio,
    },
    targets=(
        absolute("at most 25 us/step", "us", at_most=25),
        faster_than("llama", "us", 25),
        within("asyncio", "us", 2.5),
    ),
)

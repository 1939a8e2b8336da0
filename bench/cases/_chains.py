# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""Chains of durable steps, alike for Loom and its peers: each step gets a number and a text and hands both on.

Every function runs so many chains at once in the database of a URL, each of so many steps, and returns the seconds that
takes. Opening the database is not counted. Each step calls `work` first.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from bench.cases._api import step_api
from bench.places import path_of

TEXT = "What a step hands on to the next one is rarely a number alone. " * 4


def nothing() -> None:
    """Do what a step does that only hands on."""


async def _seconds(runs: Iterable[Awaitable[object]]) -> float:
    started = time.perf_counter()
    await asyncio.gather(*runs)
    return time.perf_counter() - started


def _workflow(peer: str, steps: int, work: Callable[[], object] = nothing) -> Any:
    api = step_api(peer)

    class Link(api.Event):
        n: int
        text: str

    class Chain(api.Workflow):
        @api.step
        async def begin(self, ev: api.StartEvent) -> Link:
            work()
            return Link(n=1, text=TEXT)

        @api.step
        async def go_on(self, ev: Link) -> Link | api.StopEvent:
            work()
            return Link(n=ev.n + 1, text=ev.text) if ev.n + 1 < steps else api.StopEvent(result=ev.n + 1)

    return Chain(timeout=None)


def _pure_workflow(steps: int) -> Any:
    """The same chain of steps that are declared pure, which only Loom has."""
    from loom import Event, StartEvent, StopEvent, Workflow, step

    class Link(Event):
        n: int
        text: str

    class Chain(Workflow):
        @step(pure=True)
        async def begin(self, ev: StartEvent) -> Link:
            return Link(n=1, text=TEXT)

        @step(pure=True)
        async def go_on(self, ev: Link) -> Link | StopEvent:
            return Link(n=ev.n + 1, text=ev.text) if ev.n + 1 < steps else StopEvent(result=ev.n + 1)

    return Chain(timeout=None)


def loom(url: str, runs: int, steps: int, work: Callable[[], object] = nothing) -> float:
    return _in_loom(_workflow("loom", steps, work), url, runs, steps)


def loom_pure(url: str, runs: int, steps: int) -> float:
    """Steps go on while the commits before them are on their way; the result waits for the last one."""
    return _in_loom(_pure_workflow(steps), url, runs, steps)


def _in_loom(workflow: Any, url: str, runs: int, steps: int) -> float:
    import loom

    async def main() -> float:
        async with loom.connect(url) as runtime:
            runtime.register(workflow, name="chain")
            await runtime.ready()

            async def run() -> None:
                handler = await runtime.start("chain", {})
                assert await handler == steps

            return await _seconds(run() for _ in range(runs))

    return asyncio.run(main())


def llama_server(url: str, runs: int, steps: int) -> float:
    """llama-agents-server, asked through its HTTP API without a socket: one request per run."""
    import httpx
    from llama_agents.server import SqliteWorkflowStore, WorkflowServer

    if url.startswith("sqlite"):
        store: Any = SqliteWorkflowStore(path_of(url))
    else:
        from llama_agents.server._store.postgres_workflow_store import PostgresWorkflowStore

        store = PostgresWorkflowStore(url)
    server = WorkflowServer(workflow_store=store)
    server.add_workflow("chain", _workflow("llama", steps))

    async def main() -> float:
        transport = httpx.ASGITransport(app=server.app)
        client = httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=None)
        async with server.contextmanager(), client:

            async def run() -> None:
                answer = await client.post("/workflows/chain/run", json={})
                assert answer.json()["result"]["value"]["result"] == steps, answer.text

            return await _seconds(run() for _ in range(runs))

    return asyncio.run(main())


def langgraph(url: str, runs: int, steps: int, work: Callable[[], object] = nothing) -> float:
    """With `durability="sync"`: a step is stored before the next one begins, as it is with the others."""
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    class Link(TypedDict):
        n: int
        text: str

    async def go_on(state: Link) -> Link:
        work()
        return {"n": state["n"] + 1, "text": state["text"]}

    builder = StateGraph(Link)
    builder.add_node("go_on", go_on)
    builder.add_edge(START, "go_on")
    builder.add_conditional_edges("go_on", lambda state: "go_on" if state["n"] < steps else END, ["go_on", END])

    async def main() -> float:
        async with with_saver(url) as saver:
            graph = builder.compile(checkpointer=saver)

            async def run(number: int) -> None:
                config = {"configurable": {"thread_id": str(number)}, "recursion_limit": steps + 10}
                result = await graph.ainvoke({"n": 0, "text": TEXT}, config, durability="sync")
                assert result["n"] == steps

            return await _seconds(run(number) for number in range(runs))

    return asyncio.run(main())


@asynccontextmanager
async def with_saver(url: str) -> AsyncIterator[Any]:
    """LangGraph's checkpointer for a database."""
    if url.startswith("sqlite"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(path_of(url)) as saver:
            await saver.setup()
            yield saver
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=10, max_size=10, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


def dbos(url: str, runs: int, steps: int, work: Callable[[], object] = nothing) -> float:
    from dbos import DBOS, DBOSConfig

    if url.startswith("sqlite"):
        # It would use a rollback journal; a database stays in WAL mode once it is.
        connection = sqlite3.connect(path_of(url))
        connection.execute("PRAGMA journal_mode = wal")
        connection.close()
    config = DBOSConfig(name="bench", system_database_url=url, log_level="ERROR")

    async def main() -> float:
        DBOS(config=config)

        @DBOS.step()
        async def go_on(n: int, text: str) -> tuple[int, str]:
            work()
            return n + 1, text

        @DBOS.workflow()
        async def chain() -> int:
            n, text = 0, TEXT
            for _ in range(steps):
                n, text = await go_on(n, text)
            return n

        DBOS.launch()
        try:
            return await _seconds(chain() for _ in range(runs))
        finally:
            DBOS.destroy(destroy_registry=True)

    return asyncio.run(main())

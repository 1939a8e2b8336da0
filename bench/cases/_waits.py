# Steps and nodes take what their engine hands them, used or not.
# ruff: noqa: ARG002, ASYNC110
"""Stored runs that wait for an event and have left memory, alike for Loom and its peers.

A run makes so many steps and then waits. Waking it is timed from the moment at which the event is sent until the body
that waits for it goes on.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

from bench.cases._api import step_api
from bench.cases._chains import TEXT, with_saver
from bench.places import path_of


class Waits(Protocol):
    """Runs of one engine in one database."""

    async def start(self) -> str:
        """Begin a run: its id."""
        ...

    async def released(self, runs: int) -> None:
        """Wait until so many runs have left memory."""
        ...

    async def wake(self, run_id: str) -> float:
        """Send a run its event: the seconds until it goes on."""
        ...


class _Mark:
    """When the last body went on."""

    at = 0.0


def _workflow(peer: str, steps: int, mark: _Mark) -> Any:
    api = step_api(peer)

    class Go(api.HumanResponseEvent):
        n: int

    class Link(api.Event):
        n: int
        text: str

    class Last(api.Event):
        pass

    class Wait(api.Workflow):
        @api.step
        async def begin(self, ev: api.StartEvent) -> Link | Last:
            return Link(n=1, text=TEXT) if steps > 1 else Last()

        @api.step
        async def go_on(self, ev: Link) -> Link | Last:
            return Link(n=ev.n + 1, text=ev.text) if ev.n + 1 < steps else Last()

        @api.step
        async def hold(self, ctx: api.Context, ev: Last) -> api.StopEvent:
            go = await ctx.wait_for_event(Go, timeout=None)
            mark.at = time.perf_counter()
            return api.StopEvent(result=go.n)

    workflow = Wait(timeout=None)
    workflow.go = Go
    return workflow


class _Loom:
    def __init__(self, runtime: Any, workflow: Any, mark: _Mark) -> None:
        self.runtime = runtime
        self._go = workflow.go
        self._mark = mark

    async def start(self) -> str:
        handler = await self.runtime.start("wait", {})
        return str(handler.run_id)

    async def released(self, runs: int) -> None:
        while self.runtime.figures["released"] < runs or self.runtime.figures["in_memory"]:
            await asyncio.sleep(0.01)

    async def wake(self, run_id: str) -> float:
        started = time.perf_counter()
        await self.runtime.send_event(run_id, self._go(n=1))
        handler = await self.runtime.handler(run_id)
        assert await handler == 1
        return self._mark.at - started


@asynccontextmanager
async def loom(url: Any, steps: int = 1) -> AsyncIterator[_Loom]:
    """Loom; the store of runs of other numbers of steps can be read too."""
    import loom

    mark = _Mark()
    workflow = _workflow("loom", steps, mark)
    async with loom.connect(url, idle_timeout=0) as runtime:
        runtime.register(workflow, name="wait")
        await runtime.ready()
        yield _Loom(runtime, workflow, mark)


class _LlamaServer:
    def __init__(self, server: Any, client: Any, mark: _Mark) -> None:
        self._client = client
        self._mark = mark
        # It does not tell which runs are in memory; this is where it keeps them, and those that were woken for ever.
        self._active: set[str] = server._runtime_core._runtime._decorated._active_run_ids
        self._woken: set[str] = set()

    async def start(self) -> str:
        answer = await self._client.post("/workflows/wait/run-nowait", json={})
        return str(answer.json()["handler_id"])

    async def released(self, runs: int) -> None:
        while self._active - self._woken:
            await asyncio.sleep(0.01)

    async def wake(self, run_id: str) -> float:
        event = {"type": "Go", "value": {"n": 1}}
        self._mark.at = 0.0
        started = time.perf_counter()
        answer = await self._client.post(f"/events/{run_id}", json={"event": event})
        assert answer.status_code == 200, answer.text
        while not self._mark.at:
            await asyncio.sleep(0)
        self._woken |= self._active
        return self._mark.at - started


@asynccontextmanager
async def llama_server(url: str, steps: int = 1) -> AsyncIterator[_LlamaServer]:
    """llama-agents-server, asked through its HTTP API without a socket."""
    import httpx
    from llama_agents.server import SqliteWorkflowStore, WorkflowServer

    mark = _Mark()
    workflow = _workflow("llama", steps, mark)
    server = WorkflowServer(workflow_store=SqliteWorkflowStore(path_of(url)), idle_timeout=0.1)
    server.add_workflow("wait", workflow, additional_events=[workflow.go])
    transport = httpx.ASGITransport(app=server.app)
    client = httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=None)
    async with server.contextmanager(), client:
        yield _LlamaServer(server, client, mark)


class _LangGraph:
    def __init__(self, saver: Any, steps: int) -> None:
        from typing import TypedDict

        from langgraph.graph import END, START, StateGraph
        from langgraph.types import interrupt

        mark = _Mark()

        class Link(TypedDict):
            n: int
            text: str

        async def go_on(state: Link) -> Link:
            return {"n": state["n"] + 1, "text": state["text"]}

        async def hold(state: Link) -> Link:
            n = interrupt("go?")
            mark.at = time.perf_counter()
            return {"n": n, "text": state["text"]}

        builder = StateGraph(Link)
        builder.add_node("go_on", go_on)
        builder.add_node("hold", hold)
        builder.add_edge(START, "go_on")
        builder.add_conditional_edges("go_on", lambda state: "go_on" if state["n"] < steps else "hold")
        builder.add_edge("hold", END)
        self._graph = builder.compile(checkpointer=saver)
        self._steps = steps
        self._mark = mark

    def _config(self, run_id: str) -> dict[str, Any]:
        return {"configurable": {"thread_id": run_id}, "recursion_limit": self._steps + 10}

    async def start(self) -> str:
        run_id = uuid4().hex
        await self._graph.ainvoke({"n": 0, "text": TEXT}, self._config(run_id), durability="sync")
        return run_id

    async def released(self, runs: int) -> None:
        """A graph is not in memory once it is interrupted."""

    async def wake(self, run_id: str) -> float:
        from langgraph.types import Command

        started = time.perf_counter()
        result = await self._graph.ainvoke(Command(resume=1), self._config(run_id), durability="sync")
        assert result["n"] == 1
        return self._mark.at - started


@asynccontextmanager
async def langgraph(url: str, steps: int = 1) -> AsyncIterator[_LangGraph]:
    """LangGraph: `interrupt`, and a checkpoint in the database."""
    async with with_saver(url) as saver:
        yield _LangGraph(saver, steps)

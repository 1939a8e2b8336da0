# Steps take what their engine hands them, used or not.
# ruff: noqa: ARG002
"""The workflows of the HTTP cases, and the peer's server that serves them: `python -m bench.served URL PORT IDLE`.

Loom's server is the `loom serve` command. Both run the same source text: `BENCH_PEER` says whose names it uses.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from bench.cases._api import step_api
from bench.places import path_of

api = step_api(os.environ.get("BENCH_PEER", "loom"))


class First(api.Event):
    n: int


class Second(api.Event):
    n: int


class Go(api.HumanResponseEvent):
    n: int


class Three(api.Workflow):
    """Three steps in a row."""

    @api.step
    async def one(self, ev: api.StartEvent) -> First:
        return First(n=ev.n + 1)

    @api.step
    async def two(self, ev: First) -> Second:
        return Second(n=ev.n + 1)

    @api.step
    async def three(self, ev: Second) -> api.StopEvent:
        return api.StopEvent(result=ev.n + 1)


class Wait(api.Workflow):
    """Waits for an event, and tells when it had it."""

    @api.step
    async def hold(self, ctx: api.Context, ev: api.StartEvent) -> api.StopEvent:
        await ctx.wait_for_event(Go, timeout=None)
        return api.StopEvent(result=time.time())


async def _serve(url: str, port: int, idle_timeout: float) -> None:
    """The server of llama-agents, on SQLite."""
    from llama_agents.server import SqliteWorkflowStore, WorkflowServer

    server = WorkflowServer(workflow_store=SqliteWorkflowStore(path_of(url)), idle_timeout=idle_timeout)
    server.add_workflow("Three", Three())
    server.add_workflow("Wait", Wait(timeout=None), additional_events=[Go])
    await server.serve("127.0.0.1", port, {"log_level": "warning", "access_log": False})


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))

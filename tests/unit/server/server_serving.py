"""A server over a real runtime, asked through ASGI: on memory and on SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.auth import Scope, new_key
from loom.server.settings import ServerSettings


class Topic(StartEvent):
    topic: str
    times: int = 1


class Approval(Event):
    by: str


class Done(StopEvent):
    text: str


class Asks(Workflow):
    """Waits for an approval."""

    @step
    async def ask(self, ctx: Context, ev: Topic) -> Done:
        if ev.topic == "fail":
            raise RuntimeError("no such topic")
        if ev.topic == "now":
            return Done(text="at once")
        await ctx.store.set("topic", ev.topic)
        answer = await ctx.wait_for_event(Approval)
        return Done(text=f"{ev.topic} by {answer.by}")


FLOW: dict[str, Any] = {
    "definition": {
        "parameters": {"token": {"type": "SecureString", "defaultValue": "t0p-secret"}},
        "actions": {
            "Hidden": {
                "type": "Compose",
                "inputs": "@concat('s3', 'cret-', triggerBody()?['pin'])",
                "runAfter": {},
                "runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}},
            },
            "Wait": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {"Hidden": ["Succeeded"]}},
        },
        "outputs": {"answer": {"type": "Object", "value": "@body('Wait')"}},
    }
}

LOOP: dict[str, Any] = {
    "definition": {
        "actions": {
            "Over": {
                "type": "Until",
                "expression": "@equals(1, 1)",
                "limit": {"count": 5, "timeout": "PT1H"},
                "actions": {"One": {"type": "Compose", "inputs": 1}},
                "runAfter": {},
            },
            "Again": {
                "type": "Until",
                "expression": "@equals(outputs('Asked')?['n'], 2)",
                "limit": {"count": 5, "timeout": "PT1H"},
                "actions": {"Asked": {"type": "waitForEvent", "inputs": {"event": "Go"}}},
                "runAfter": {"Over": ["Succeeded"]},
            },
        }
    }
}


@asynccontextmanager
async def serving(url: str = "memory://", **options: Any) -> AsyncIterator[Served]:
    """A server on a store."""
    async with loom.connect(url) as runtime:
        runtime.register(Asks(), name="asks")
        runtime.register(loom.load(FLOW), name="flow")
        yield Served(runtime, ServerSettings(**options))


class Served:
    """A server, and clients for it."""

    def __init__(self, runtime: DurableRuntime, settings: ServerSettings) -> None:
        self.runtime = runtime
        self.app = create_app(runtime, settings)
        self.server = self.app.state.server

    def client(
        self, key: str | None = None, *, address: str = "127.0.0.1", base: str = "http://127.0.0.1", **headers: str
    ) -> httpx2.AsyncClient:
        """Somebody who asks, from an address."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["Authorization"] = f"Bearer {key}"
        transport = httpx2.ASGITransport(app=self.app, client=(address, 1234))
        return httpx2.AsyncClient(transport=transport, base_url=base, headers=given)

    async def key(self, *scopes: Scope, workflows: tuple[str, ...] | None = None) -> str:
        """A new key."""
        key, stored = new_key(scopes, workflows=workflows)
        await self.server.keys.add(stored)
        return key

    async def until_waiting(self, run_id: str) -> None:
        """Return once a run is idle, by what is stored."""
        async with asyncio.timeout(60):
            while not await self._is_idle(run_id):
                news = self.runtime.watchers.subscribe(run_id)
                if not await self._is_idle(run_id):
                    await asyncio.wait([news], timeout=0.05)
                self.runtime.watchers.forget(run_id, news)

    async def _is_idle(self, run_id: str) -> bool:
        row = await self.runtime.store.get(run_id)
        return row is not None and row.head.idle_since is not None

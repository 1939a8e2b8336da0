"""The API as a part of somebody's own application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import uvicorn
from server_serving import Asks
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import loom
from loom.server.app import create_app
from loom.server.http_server import bind, url_of


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("my own page")


@asynccontextmanager
async def own_application(path: Any) -> AsyncIterator[str]:
    """An application whose lifespan opens the runtime, served by uvicorn as its author would."""
    runtime = loom.connect(f"sqlite:///{path}/runs.db")
    runtime.register(Asks(), name="asks")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with runtime:
            yield

    app = Starlette(routes=[Route("/", hello), Mount("/flows", create_app(runtime))], lifespan=lifespan)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=5))
    sockets = await bind("127.0.0.1", 0)
    task = asyncio.create_task(server._serve(sockets))
    try:
        yield url_of(sockets[0])
    finally:
        server.should_exit = True
        await task


async def test_both_faces_and_streams_work_below_a_path(tmp_path: Any) -> None:
    async with own_application(tmp_path) as url, httpx2.AsyncClient(base_url=url, timeout=10) as client:
        while True:
            try:
                assert (await client.get("/")).text == "my own page"
                break
            except httpx2.ConnectError:
                await asyncio.sleep(0.01)
        body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": "order-1"}
        started = await client.post("/flows/v1/runs", json=body)
        assert started.status_code == 201
        assert started.headers["location"] == "/flows/v1/runs/order-1"
        missing = await client.get("/flows/v1/runs/nobody")
        assert missing.headers["content-type"] == "application/problem+json"
        assert missing.json()["instance"] == "/flows/v1/runs/nobody"
        assert (await client.get("/flows/handlers/nobody")).json().keys() == {"detail"}
        assert (await client.get("/v1/runs/order-1")).status_code == 404

        async with client.stream("GET", "/flows/v1/runs/order-1/stream") as stream:
            event = {"type": "Approval", "value": {"by": "Ada"}}
            sent = await client.post("/flows/v1/runs/order-1/events", json=event)
            assert sent.status_code == 200, sent.text
            lines = [line async for line in stream.aiter_lines() if line.startswith("data: ")]
        assert json.loads(lines[-1].removeprefix("data: "))["value"] == {"text": "tea by Ada"}
        assert (await client.get("/flows/handlers/order-1")).json()["status"] == "completed"

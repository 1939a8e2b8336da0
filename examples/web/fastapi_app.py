"""Orders as a FastAPI application, with any number of processes on one SQLite file.

    uvicorn fastapi_app:app --app-dir examples/web --workers 2

One process works on the runs, the others stand by. A request may come to any of them. When the one that works ends,
another one takes over.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from orders import Approval, Order
from pydantic import BaseModel

import loom

log = logging.getLogger("uvicorn.error")
runtime = loom.connect(os.environ.get("LOOM_STORE", "sqlite:///orders.db"), when_locked="standby")
runtime.register(Order(timeout=None), name="order")


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Open the runtime with the application: what is in the way is told before the first request."""
    async with runtime:
        log.info("Process %s is a %s for the runs.", os.getpid(), runtime.role)
        yield


app = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    """What a customer sends."""

    item: str


@app.post("/orders", status_code=202)
async def start(order: NewOrder, order_id: str | None = None) -> dict[str, Any]:
    """Start a run. It is in the store before this is answered; the same `order_id` again is the same run."""
    handler = await runtime.start("order", order.model_dump(), run_id=order_id)
    return {"run_id": handler.run_id}


@app.get("/orders/{run_id}")
async def show(run_id: str) -> dict[str, Any]:
    """Tell how far an order is, and its result."""
    info = await runtime.get(run_id)
    result = await (await runtime.handler(run_id)) if info.status == "completed" else None
    return {"status": info.status, "waits": info.idle_since is not None, "result": result}


@app.post("/orders/{run_id}/approval", status_code=202)
async def approve(run_id: str, approval: Approval) -> dict[str, Any]:
    """Answer the question of an order, once."""
    await runtime.send_event(run_id, approval, event_id="approval")
    return {}


@app.get("/orders/{run_id}/events")
async def events(run_id: str) -> StreamingResponse:
    """Send the events of an order as they come, one JSON object per line. It goes on when another process works."""
    handler = await runtime.handler(run_id)

    async def lines() -> AsyncIterator[str]:
        async for event in handler.stream_events():
            yield event.model_dump_json() + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@app.get("/role")
async def role() -> dict[str, Any]:
    """Tell which process answers, and what it does: `worker`, or `standby`."""
    return {"pid": os.getpid(), "role": runtime.role}


@app.exception_handler(loom.RunNotFound)
async def no_such_run(_request: Request, error: loom.RunNotFound) -> JSONResponse:
    """Answer 404 for orders that are not there."""
    return JSONResponse({"error": str(error)}, status_code=404)

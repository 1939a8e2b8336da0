"""A polling trigger whose service answers with many items: a run starts for each, on SQLite."""

from __future__ import annotations

import asyncio
from typing import Any

import loom as product
from bench.measure import Stopwatch
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

_TRIGGER = {
    "type": "ApiConnection",
    "inputs": {"host": {"connection": {"referenceName": "queue"}}, "method": "get", "path": "/messages"},
    "recurrence": {"frequency": "Hour", "interval": 1},
    "splitOn": "@triggerBody()?['items']",
}
_ECHO = {"Echo": {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}}


def loom(size: int) -> Figures:
    """Poll once, and time from the answer of the service until all starts are stored and written down."""
    return asyncio.run(_measured(size))


async def _measured(size: int) -> Figures:
    handlers = product.ActionHandlers()
    watch: list[Stopwatch] = []

    async def answer(inputs: dict[str, Any]) -> Any:
        del inputs
        watch.append(Stopwatch())
        return {"body": {"items": [{"number": number, "text": "an order"} for number in range(size)]}}

    handlers.connector("queue")(answer)
    flow = product.load({"triggers": {"new": _TRIGGER}, "actions": _ECHO}, name="orders")
    with sqlite_url() as url:
        async with product.connect(url, handlers=handlers) as runtime:
            runtime.register(flow, name="orders")
            while not (firings := (await runtime.trigger_history("orders")).firings):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            seconds, cpu = watch[0].read()
            assert (firings[0].status, firings[0].runs) == ("succeeded", size), firings
            while await _completed(runtime) != size:  # noqa: ASYNC110 - nobody tells the last end
                await asyncio.sleep(0.05)
            until_done, _ = watch[0].read()
    return {"starts": size / seconds, "runs": size / until_done, "cpu": cpu * 1e6 / size}


async def _completed(runtime: Any) -> int:
    return (await runtime.counts(workflow="orders")).completed or 0


CASE = Case(
    name="trigger-split",
    title="a poll with 10,000 items of splitOn starts a run for each, on SQLite",
    order=76,
    size=10_000,
    metrics=(
        Metric("starts", "starts/s", more_is_better=True),
        Metric("runs", "runs/s", more_is_better=True),
        Metric("cpu", "CPU us/start"),
    ),
    peers={"loom": loom},
    targets=(absolute("at least 2,000 starts/s", "starts", at_least=2_000),),
    warm_up=0,
)

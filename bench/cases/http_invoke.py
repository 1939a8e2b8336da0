"""Flows called over HTTP: the Response after three data actions, beside the same flow started and waited for."""

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.http_load import Connection, serving_targets
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute, within

CLIENTS = 50
_STARTED = "loom POST /v1/runs?wait"


def _flow() -> str:
    actions = {
        "Sum": {"type": "Compose", "inputs": "@add(triggerBody()['n'], 1)", "runAfter": {}},
        "Text": {"type": "Compose", "inputs": "@concat('n', outputs('Sum'))", "runAfter": {"Sum": ["Succeeded"]}},
        "Object": {
            "type": "Compose",
            "inputs": {"text": "@outputs('Text')", "n": "@outputs('Sum')"},
            "runAfter": {"Text": ["Succeeded"]},
        },
        "Response": {
            "type": "Response",
            "inputs": {"statusCode": 200, "body": "@outputs('Object')"},
            "runAfter": {"Object": ["Succeeded"]},
        },
    }
    return json.dumps({"definition": {"triggers": {"manual": {"type": "Request"}}, "actions": actions}})


@contextmanager
def _served(url: str) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "three.json")
        path.write_text(_flow())
        with serving_targets([str(path)], url) as port:
            yield port


async def _invoked(connection: Connection) -> None:
    answer = await connection.json("POST", "/v1/definitions/three/invoke", {"n": 1})
    assert answer == {"text": "n2", "n": 2}, answer


async def _started(connection: Connection) -> None:
    answer = await connection.json("POST", "/v1/runs?wait=30", {"workflow": "three", "input": {"n": 1}})
    assert answer["result"]["response"]["body"] == {"text": "n2", "n": 2}, answer


def _measured(ask: Callable[[Connection], Awaitable[None]]) -> Callable[[int], Figures]:
    async def client(port: int, runs: int, seconds: list[float]) -> None:
        connection = Connection(port)
        for _ in range(runs):
            started = time.perf_counter()
            await ask(connection)
            seconds.append(time.perf_counter() - started)
        connection.close()

    async def load(port: int, size: int) -> Figures:
        await client(port, 20, [])
        seconds: list[float] = []
        started = time.perf_counter()
        await asyncio.gather(*(client(port, size // CLIENTS, seconds) for _ in range(CLIENTS)))
        rate = len(seconds) / (time.perf_counter() - started)
        return {"rate": rate, "each": 1e3 / rate, "p50": median(seconds) * 1e3}

    def measure(size: int) -> Figures:
        with sqlite_url() as url, _served(url) as port:
            return asyncio.run(load(port, size))

    return measure


CASE = Case(
    name="http-invoke",
    title="A flow's Response after three data actions over HTTP, 50 clients, SQLite",
    order=81,
    size=3000,
    metrics=(
        Metric("rate", "runs/s", more_is_better=True),
        Metric("each", "ms of all clients per run"),
        Metric("p50", "ms until the answer, p50"),
    ),
    peers={"loom": _measured(_invoked), _STARTED: _measured(_started)},
    targets=(within(_STARTED, "each", 1.3), absolute("at least 300 answers/s", "rate", at_least=300)),
    warm_up=0,
    preparation_s=60,
)

"""Runs over HTTP, from the start to the result, with many clients at once."""

import asyncio
import time
from collections.abc import Callable
from statistics import median

from bench.http_load import Connection, serving
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute, faster_than

CLIENTS = 50


def _measured(peer: str) -> Callable[[int], Figures]:
    async def client(port: int, runs: int, seconds: list[float]) -> None:
        connection = Connection(port)
        for _ in range(runs):
            started = time.perf_counter()
            answer = await connection.json("POST", "/workflows/Three/run", {"kwargs": {"n": 1}})
            seconds.append(time.perf_counter() - started)
            assert answer["status"] == "completed", answer
        connection.close()

    async def load(port: int, size: int) -> Figures:
        await client(port, 20, [])
        seconds: list[float] = []
        started = time.perf_counter()
        await asyncio.gather(*(client(port, size // CLIENTS, seconds) for _ in range(CLIENTS)))
        rate = len(seconds) / (time.perf_counter() - started)
        return {"rate": rate, "each": 1e3 / rate, "p50": median(seconds) * 1e3}

    def measure(size: int) -> Figures:
        with sqlite_url() as url, serving(peer, url) as port:
            return asyncio.run(load(port, size))

    return measure


CASE = Case(
    name="http-runs",
    title="3-step runs over HTTP, start to result, 50 clients, SQLite",
    order=80,
    size=3000,
    sizes={"llama-server": 200},
    metrics=(
        Metric("rate", "runs/s", more_is_better=True),
        Metric("each", "ms of all clients per run"),
        Metric("p50", "ms until the answer, p50"),
    ),
    peers={"loom": _measured("loom"), "llama-server": _measured("llama-server")},
    targets=(
        absolute("at least 750 runs/s", "rate", at_least=750),
        faster_than("llama-server", "each", 19),
    ),
    warm_up=0,
    preparation_s=60,
)

"""An event over HTTP for a run that has left memory: how long until its step runs."""

import asyncio
import time
from collections.abc import Callable
from statistics import median, quantiles

from bench.http_load import Connection, serving
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute, faster_than

IDLE_TIMEOUT = 0.05


def _measured(peer: str) -> Callable[[int], Figures]:
    async def woken(connection: Connection, run_id: str) -> float:
        sent = time.time()
        body = {"event": {"type": "Go", "value": {"n": 1}}}
        await connection.json("POST", f"/events/{run_id}", body)
        while True:
            await asyncio.sleep(IDLE_TIMEOUT)  # who asks at once is in the way of the step
            status, _ = await connection.ask("GET", f"/handlers/{run_id}")
            if status == 200:
                break
            assert status == 202, status
        answer = await connection.json("GET", f"/results/{run_id}")
        return float(answer["result"]) - sent

    async def load(port: int, size: int) -> Figures:
        connection = Connection(port)
        runs = []
        for _ in range(size + 5):
            answer = await connection.json("POST", "/workflows/Wait/run-nowait", {"kwargs": {}})
            runs.append(answer["handler_id"])
        await asyncio.sleep(20 * IDLE_TIMEOUT)  # idle timeouts are not to be seen from outside of every server
        seconds = [await woken(connection, run_id) for run_id in runs][5:]
        connection.close()
        return {"p50": median(seconds) * 1e3, "p95": quantiles(seconds, n=20)[-1] * 1e3}

    def measure(size: int) -> Figures:
        with sqlite_url() as url, serving(peer, url, idle_timeout=IDLE_TIMEOUT) as port:
            return asyncio.run(load(port, size))

    return measure


CASE = Case(
    name="http-wake",
    title="an event over HTTP for a released run, until its step runs",
    order=81,
    size=200,
    sizes={"llama-server": 60},
    metrics=(Metric("p50", "ms, p50"), Metric("p95", "ms, p95")),
    peers={"loom": _measured("loom"), "llama-server": _measured("llama-server")},
    targets=(absolute("at most 10 ms, p50", "p50", at_most=10), faster_than("llama-server", "p50", 2.5)),
    warm_up=0,
    preparation_s=60,
)

"""Stored runs that wait for an event and have left memory: what they leave behind, and how fast one comes back."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from statistics import median, quantiles
from typing import Any

from bench.cases import _waits
from bench.measure import resident_kb
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

AT_ONCE = 100
WOKEN = 200

_RESTART = """
import asyncio, sys
from bench.cases import _waits

async def main():
    async with _waits.loom(sys.argv[1]) as waits:
        await waits.start()
        print("serving", flush=True)

asyncio.run(main())
"""


def _measured(engine: Callable[[str], AbstractAsyncContextManager[Any]]) -> Callable[[int], Figures]:
    async def hold(url: str, size: int) -> Figures:
        async with engine(url) as waits:
            for run_id in [await waits.start() for _ in range(10)]:
                await waits.released(1)
                await waits.wake(run_id)
            before = resident_kb()
            runs: list[str] = []
            while len(runs) < size:
                runs += await asyncio.gather(*(waits.start() for _ in range(min(AT_ONCE, size - len(runs)))))
                await waits.released(len(runs))
            held = resident_kb() - before
            woken = [await waits.wake(run_id) for run_id in runs[:: max(1, size // WOKEN)]]
        return {"kb": held / size, "p50": median(woken) * 1e3, "p95": quantiles(woken, n=20)[-1] * 1e3}

    def measure(size: int) -> Figures:
        with sqlite_url() as url:
            figures = asyncio.run(hold(url, size))
            if engine is _waits.loom:
                figures["restart"] = _restart(url)
        return figures

    return measure


def _restart(url: str) -> float:
    """The seconds from the start of another process until it has accepted a run beside those that wait."""
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _RESTART, url], stdout=subprocess.PIPE, env=os.environ)
    assert process.stdout is not None
    serving = process.stdout.readline()
    seconds = time.perf_counter() - started
    process.communicate()
    assert serving == b"serving\n"
    return seconds


CASE = Case(
    name="released",
    title="10,000 stored runs that wait for an event, released from memory",
    order=63,
    size=10_000,
    sizes={"langgraph": 500, "llama-server": 200},
    metrics=(
        Metric("kb", "KB each"),
        Metric("p50", "ms to wake one, p50"),
        Metric("p95", "ms to wake one, p95"),
        Metric("restart", "s from restart to serving"),
    ),
    peers={
        "loom": _measured(_waits.loom),
        "langgraph": _measured(_waits.langgraph),
        "llama-server": _measured(_waits.llama_server),
    },
    targets=(
        absolute("at most 2 KB each: 20 MB in all", "kb", at_most=2.0),
        absolute("at most 3.5 ms to wake one, p50", "p50", at_most=3.5),
        absolute("at most 20 ms to wake one, p95", "p95", at_most=20),
        absolute("at most 2 s from restart to serving", "restart", at_most=2),
    ),
    warm_up=20,
    preparation_s=60,
)

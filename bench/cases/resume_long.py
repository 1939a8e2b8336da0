"""A run with a long history that has left memory: how long it takes to bring it back."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from bench.cases import _waits
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

BEHIND = 450
"""Snapshots come every 500 ticks: a length that is a multiple of that would be the best case."""


def loom(size: int) -> Figures:
    """The history is made in memory and imported: on the disk that would take a minute."""
    steps = size + BEHIND

    async def main(url: str) -> Figures:
        async with _waits.loom("memory://", steps) as waits:
            run_id = await waits.start()
            await waits.released(1)
            assert (await waits.runtime.get(run_id)).ticks >= size
            exported = await waits.runtime.export_run(run_id)
        async with _waits.loom(url, steps) as waits:
            await waits.runtime.import_run(exported)
        async with _waits.loom(url, steps) as waits:
            return {"ms": await waits.wake(run_id) * 1e3}

    with sqlite_url() as url:
        return asyncio.run(main(url))


def _measured(engine: Callable[[str, int], AbstractAsyncContextManager[Any]]) -> Callable[[int], Figures]:
    async def main(url: str, steps: int) -> Figures:
        async with engine(url, steps) as waits:
            run_id = await waits.start()
            await asyncio.sleep(1)
            await waits.released(1)
            return {"ms": await waits.wake(run_id) * 1e3}

    def measure(size: int) -> Figures:
        with sqlite_url() as url:
            return asyncio.run(main(url, size))

    return measure


CASE = Case(
    name="resume-long",
    title="resume a run with 100,000 ticks",
    order=64,
    size=100_000,
    sizes={"langgraph": 500, "llama-server": 500},
    metrics=(Metric("ms", "ms until its body goes on"),),
    peers={
        "loom": loom,
        "langgraph": _measured(_waits.langgraph),
        "llama-server": _measured(_waits.llama_server),
    },
    targets=(absolute("at most 50 ms", "ms", at_most=50),),
    warm_up=20,
    preparation_s=90,
)

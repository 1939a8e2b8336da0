"""A loop over many items, an activity for each, 20 at a time, every outcome on the disk before the next is taken."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bench.cases import _floors, _flow_documents
from bench.measure import Stopwatch
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

WIDTH = 20
"""How many iterations of a Foreach run at a time, unless it says otherwise."""
LONGEST_S = 0.005


async def at_once(item: int) -> int:
    return item


async def after_a_while(item: int) -> int:
    """Activities that end one by one, in an order of their own: none shares its commit with the other 19."""
    await asyncio.sleep(LONGEST_S * (item * 7919 % 50) / 50)
    return item


def in_a_thread(item: int) -> int:
    """Whatever is not async may block, so it gets a thread."""
    return item


def _flow(work: Callable[[int], Any]) -> Callable[[int], Figures]:
    async def main(url: str, size: int) -> Figures:
        import loom

        loom.activity("work")(work)
        async with loom.connect(url) as runtime:
            runtime.register(loom.load(_flow_documents.foreach(size)), name="each")
            await runtime.ready()
            watch = Stopwatch()
            result = await (await runtime.start("each", {}))
            wall, cpu = watch.read()
            assert [row["work"] for row in result.actions["each"].outputs] == list(range(size))
        return {"s": wall, "cpu": cpu}

    def measure(size: int) -> Figures:
        with sqlite_url() as url:
            return asyncio.run(main(url, size))

    return measure


def bare_commit(size: int) -> Figures:
    """A row for each item, 20 in a commit."""
    with sqlite_url() as url:
        started = time.process_time()
        return {"s": _floors.sqlite(url, size, WIDTH), "cpu": time.process_time() - started}


CASE = Case(
    name="flow-foreach",
    title="a Foreach over 5,000 items with one activity each, 20 at a time, on SQLite, synchronous=FULL",
    order=72,
    size=5_000,
    metrics=(Metric("s", "s"), Metric("cpu", "CPU s")),
    peers={
        "loom": _flow(at_once),
        "loom threads": _flow(in_a_thread),
        "loom 0-5 ms": _flow(after_a_while),
        "bare group commit": bare_commit,
    },
    targets=(
        absolute("at most 2 s", "s", at_most=2),
        absolute("at most 2 CPU s", "cpu", at_most=2),
        absolute("with activities in threads at most 2 s", "s", at_most=2, peer="loom threads"),
        absolute("with activities of 0 to 5 ms, 0.6 s of waiting, at most 2 s", "s", at_most=2, peer="loom 0-5 ms"),
    ),
)

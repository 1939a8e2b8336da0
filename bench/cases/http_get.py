"""Looking at runs over HTTP where 100,000 are stored: one of them, and those that are idle."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median, quantiles

from msgspec.structs import replace

from bench.http_load import Connection, serving
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

ASKED = 500
IDLE = 1_000
"""So many of the runs wait for an event; the others have ended."""
_GROUP = 500
_LISTS = {
    "updated": "/v1/runs?order=-updated_at&limit=100",
    "failed": "/v1/runs?status=failed&order=-updated_at&limit=100",
    "prefix": "/v1/runs?id_prefix=run-777&limit=100",
    "waiting": "/v1/runs?waiting=true&order=updated_at&limit=100",
    "counts": "/v1/counts",
}
"""Further lists: by the last change, of a status that none has, by beginnings of ids, of waiting runs; and counts."""


async def fill(url: str, size: int) -> None:
    """Two real runs, one that waits and one that has ended, and copies of both."""
    import loom
    from bench.served import Three, Wait
    from loom.store.operations import ImportRun

    async with loom.connect(url, idle_timeout=0) as runtime:
        runtime.register(Three(), name="Three")
        runtime.register(Wait(timeout=None), name="Wait")
        await (await runtime.start("Three", {"n": 1}, run_id="ended"))
        await runtime.start("Wait", {}, run_id="waiting")
        while (await runtime.get("waiting")).idle_since is None or runtime.figures["in_memory"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ended, waiting = await runtime.store.export("ended"), await runtime.store.export("waiting")
        assert ended is not None
        assert waiting is not None
        for first in range(0, size, _GROUP):
            copies = [
                ImportRun(
                    replace(run, row=replace(run.row, run_id=f"run-{number}", created_at=run.row.created_at + number))
                )
                for number in range(first, min(size, first + _GROUP))
                for run in [waiting if number % (size // min(IDLE, size)) == 0 else ended]
            ]
            await runtime.store.apply(copies)


async def _timed(ask: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await ask()
    return (time.perf_counter() - started) * 1e3


async def _load(port: int, size: int) -> Figures:
    connection = Connection(port)
    step = max(1, size // ASKED)
    one = [
        await _timed(lambda at=number: connection.ask("GET", f"/handlers/run-{at}")) for number in range(0, size, step)
    ]
    idle = [await _timed(lambda: connection.json("GET", "/v1/runs?idle=true&limit=100")) for _ in range(50)]
    longer = [await _timed(lambda: connection.json("GET", "/v1/runs?idle_longer_than=1&limit=100")) for _ in range(50)]
    lists = {
        name: median([await _timed(lambda query=query: connection.json("GET", query)) for _ in range(50)])
        for name, query in _LISTS.items()
    }
    connection.close()
    return {
        "p50": median(one),
        "p95": quantiles(one, n=20)[-1],
        "idle": median(idle),
        "longer": median(longer),
        **lists,
    }


def loom(size: int) -> Figures:
    with sqlite_url() as url:
        asyncio.run(fill(url, size))
        with serving("loom", url) as port:
            return asyncio.run(_load(port, size))


CASE = Case(
    name="http-get",
    title="GET over HTTP with 100,000 runs stored, SQLite",
    order=82,
    size=100_000,
    metrics=(
        Metric("p50", "ms for one handler, p50"),
        Metric("p95", "ms for one handler, p95"),
        Metric("idle", "ms for a page of idle runs"),
        Metric("longer", "ms for a page of those idle for longer"),
        Metric("updated", "ms for a page by the last change"),
        Metric("failed", "ms for failed runs by the last change, of which there are none"),
        Metric("prefix", "ms for a page by the beginning of ids"),
        Metric("waiting", "ms for a page of waiting runs by the last change"),
        Metric("counts", "ms for the counts, which a server keeps for a while"),
    ),
    peers={"loom": loom},
    targets=(
        absolute("at most 5 ms for one handler, p95", "p95", at_most=5),
        absolute("at most 20 ms for the idle query", "idle", at_most=20),
        absolute("at most 200 ms for a list by the last change", "updated", at_most=200),
        absolute("at most 200 ms for a filter that finds nothing", "failed", at_most=200),
    ),
    warm_up=0,
    preparation_s=120,
)

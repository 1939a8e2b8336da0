"""Fifty pages that follow a list over HTTP: what they cost the server, and how soon they hear of a commit."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from statistics import median, quantiles

import msgspec

from bench.browser import cpu_ms, server_of
from bench.http_load import Connection, serving
from bench.places import sqlite_url
from bench.spec import Case, Figures, Metric, absolute

READERS = 50
PER_SECOND = 20
"""Runs of three steps that are started in a second: each makes some five commits."""
_PHASE_S = 8.0


async def _messages(port: int) -> AsyncIterator[bytes]:
    """Iterate over the data of the messages of a feed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(b"GET /v1/changes HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        while line := await reader.readline():
            if line.startswith(b"data: "):
                yield line[6:]
    finally:
        writer.close()


async def _follow(port: int, delays: list[float] | None) -> None:
    """Read a feed; one of the readers measures how old news are when they come."""
    async for data in _messages(port):
        if delays is not None:
            run = msgspec.json.decode(data)
            if run.get("status") == "completed":
                at = datetime.fromisoformat(run["updated_at"])
                delays.append((time.time() - at.timestamp()) * 1e3)


async def _busy(port: int, pid: int, seconds: float, per_second: int) -> float:
    """Start runs for a while. Return the share of one processor that the server took."""
    connection = Connection(port)
    began, cpu = time.monotonic(), cpu_ms(pid)
    number = 0
    while (passed := time.monotonic() - began) < seconds:
        if per_second and number <= passed * per_second:
            await connection.json("POST", "/v1/runs", {"workflow": "Three", "input": {"n": 1}})
            number += 1
        else:
            await asyncio.sleep(0.005)
    share = (cpu_ms(pid) - cpu) / 1e3 / (time.monotonic() - began)
    connection.close()
    return share * 100


async def _load(port: int, size: int) -> Figures:
    pid = server_of(port)
    await _busy(port, pid, 2.0, PER_SECOND)
    alone = await _busy(port, pid, _PHASE_S, PER_SECOND)
    quiet = await _busy(port, pid, _PHASE_S / 2, 0)
    delays: list[float] = []
    readers = [asyncio.create_task(_follow(port, delays if number == 0 else None)) for number in range(size)]
    await asyncio.sleep(2.0)
    idle = await _busy(port, pid, _PHASE_S / 2, 0)
    followed = await _busy(port, pid, _PHASE_S, PER_SECOND)
    for each in readers:
        each.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return {
        "p50": median(delays),
        "p95": quantiles(delays, n=20)[-1],
        "alone": alone,
        "followed": followed,
        "more": followed - alone,
        "idle": idle - quiet,
    }


def loom(size: int) -> Figures:
    with sqlite_url() as url, serving("loom", url) as port:
        return asyncio.run(_load(port, size))


CASE = Case(
    name="http-changes",
    title=f"{READERS} readers of changes over HTTP while {PER_SECOND} runs of three steps start in a second, SQLite",
    order=83,
    size=READERS,
    metrics=(
        Metric("p50", "ms from a commit to its message, p50"),
        Metric("p95", "ms from a commit to its message, p95"),
        Metric("alone", "% of a processor for the runs alone"),
        Metric("followed", "% of a processor with the readers"),
        Metric("more", "% of a processor for the readers"),
        Metric("idle", "% of a processor for the readers while nothing happens"),
    ),
    peers={"loom": loom},
    targets=(
        absolute("at most 200 ms from a commit to its message, p95", "p95", at_most=200),
        absolute("at most 5 % of a processor for the readers", "more", at_most=5),
        absolute("at most 1 % of a processor while nothing happens", "idle", at_most=1),
    ),
    warm_up=0,
    preparation_s=60,
)

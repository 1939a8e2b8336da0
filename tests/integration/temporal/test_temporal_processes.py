"""Processes and servers that are killed, and processes that end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporal_samples import Held, Talk, Word
from temporal_server import fresh_temporal_url, own_server

import loom

HERE = Path(__file__).parent
TAKEN_UP_S = 30.0
"""Ten times as long as the worker may be silent: without heartbeats it would be for ever."""


@asynccontextmanager
async def worker(url: str, place: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that works."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(HERE / "temporal_worker.py"), url, str(place))
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def told(place: Path) -> list[str]:
    """The processes in which bodies have begun."""
    return place.read_text().split() if place.exists() else []


async def until(place: Path, times: int) -> None:
    """Wait until so many bodies have begun."""
    async with asyncio.timeout(60):
        while len(told(place)) < times:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def test_the_step_of_a_killed_worker_is_recovered(tmp_path: Path) -> None:
    url, place = fresh_temporal_url(), tmp_path / "place"
    async with loom.connect(url) as runtime:
        async with worker(url, place) as doomed:
            handler = await runtime.start("held", run_id="a")
            await until(place, 1)
            assert told(place) == [str(doomed.pid)]
            doomed.kill()
            await doomed.wait()
        killed = time.monotonic()
        runtime.register(Held(place), name="held")
        await until(place, 2)
        assert time.monotonic() - killed < TAKEN_UP_S
        async with asyncio.timeout(60):
            assert await handler
        assert told(place)[1:] == [str(os.getpid())]


async def test_runs_outlive_a_server_with_a_file(tmp_path: Path) -> None:
    with own_server(database=tmp_path / "temporal.db") as server:
        async with loom.connect(server.fresh_url()) as runtime:
            runtime.register(Talk(timeout=None), name="talk")
            handler = await runtime.start("talk", {"words": 2}, run_id="a")
            await runtime.send_event("a", Word(n=1))
            async with asyncio.timeout(60):
                while (await runtime.get("a")).idle_since is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            server.stop_hard()
            server.start()
            await runtime.send_event("a", Word(n=2), event_id="two")
            async with asyncio.timeout(60):
                assert await handler == [1, 2]


def test_processes_end_in_good_order() -> None:
    program = """
import asyncio, sys
import loom
from temporal_samples import Talk, Word

async def main():
    async with loom.connect(sys.argv[1]) as runtime:
        runtime.register(Talk(timeout=None), name="talk")
        handler = await runtime.start("talk", {"words": 1})
        await runtime.send_event(handler.run_id, Word(n=1))
        assert await handler == [1]

asyncio.run(main())
"""
    url = fresh_temporal_url()
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    for _ in range(2):
        command = [sys.executable, "-c", program, url]
        ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr

"""Many readers of a stream over real connections: none misses or repeats anything, and none is in the way of others."""

from __future__ import annotations

import asyncio
import json
import random
import resource
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.server.app import create_app
from loom.server.settings import ServerSettings

READERS = 200
EVENTS = 40


class Said(Event):
    n: int
    text: str = ""


class Count(StartEvent):
    events: int
    size: int = 0
    pause: float = 0.0


class Talker(Workflow):
    @step
    async def talk(self, ev: Count, ctx: Context) -> StopEvent:
        for n in range(ev.events):
            ctx.write_event_to_stream(Said(n=n, text="x" * ev.size))
            await asyncio.sleep(ev.pause)
        return StopEvent(result=ev.events)


class Served:
    """A server on a loopback port."""

    def __init__(self, runtime: Any, **settings: Any) -> None:
        self.app = create_app(runtime, ServerSettings(max_streams=READERS + 10, **settings))
        config = uvicorn.Config(self.app, port=0, lifespan="off", log_level="critical", access_log=False)
        self.server = uvicorn.Server(config)
        self.port = 0

    async def start(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self.server.serve())
        async with asyncio.timeout(60):
            while not self.server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return task

    async def connect(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A stream by HTTP/1.0, whose body comes without frames."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=128 * 1024)
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0] or b" 204 " in head.splitlines()[0], head
        return reader, writer


@asynccontextmanager
async def served(path: Path, **settings: Any) -> AsyncIterator[tuple[Any, Served]]:
    async with loom.connect(f"sqlite:///{path}/runs.db") as runtime:
        runtime.register(Talker(), name="talker")
        there = Served(runtime, **settings)
        serving = await there.start()
        try:
            yield runtime, there
        finally:
            there.app.state.server.open_streams.break_all()
            there.server.should_exit = True
            await serving


async def entries(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    while line := await reader.readline():
        if line.startswith(b"id: "):
            seq = int(line[4:])
            data = await reader.readline()
            if data.startswith(b"data: "):
                yield seq, json.loads(data[6:])


async def read_with_drops(there: Served, path: str, chance: random.Random) -> list[tuple[int, dict[str, Any]]]:
    """Everything on a stream, by a reader that leaves after every few entries and comes back behind its last one."""
    seen: list[tuple[int, dict[str, Any]]] = []
    while not seen or "StopEvent" not in (seen[-1][1]["type"], *(seen[-1][1]["types"] or ())):
        reader, writer = await there.connect(f"{path}{seen[-1][0] if seen else -1}")
        left = chance.randint(1, 9)
        async for found in entries(reader):
            seen.append(found)
            left -= 1
            if not left:
                break
        writer.close()
    return seen


async def test_200_readers_that_drop_see_everything_once(tmp_path: Path) -> None:
    async with served(tmp_path, heartbeat=0.2) as (runtime, there), asyncio.timeout(100):
        await runtime.start("talker", Count(events=EVENTS, pause=0.02), run_id="r")
        paths = ("/v1/runs/r/stream?after=", "/v1/runs/r/stream?internal=true&after=", "/events/r?after_sequence=")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        readers = [read_with_drops(there, paths[n % 3], random.Random(n)) for n in range(READERS)]
        found = await asyncio.gather(*readers)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # kilobytes
        for n, seen in enumerate(found):
            assert seen == found[n % 3]
            said = [data["value"]["n"] for _, data in seen if data["type"] == "Said"]
            assert said == list(range(EVENTS))
        cursors = [seq for seq, _ in found[1]]
        assert cursors == list(range(len(cursors)))
        reader, writer = await there.connect(f"{paths[0]}{cursors[-1]}")
        assert await reader.read() == b""
        writer.close()


async def test_readers_that_take_nothing_slow_no_one_and_cost_no_memory(tmp_path: Path) -> None:
    events, size, stuck = 400, 40_000, 20
    async with served(tmp_path) as (runtime, there), asyncio.timeout(100):
        handler = await runtime.start("talker", Count(events=events, size=size, pause=0.001), run_id="r")
        idle = [await there.connect("/v1/runs/r/stream") for _ in range(stuck)]
        fast, writer = await there.connect("/v1/runs/r/stream")
        tracemalloc.start()
        try:
            seen = [data["value"].get("n") async for _, data in entries(fast)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        writer.close()
        assert await handler == events
        assert seen == [*range(events), None]
        # If each of them had a buffer, there would be stuck * events * size = 320 MB.
        assert peak < 80 * 1024 * 1024
        assert len(there.app.state.server.open_streams) >= stuck
        late, _ = idle[0]
        assert [data["value"].get("n") async for _, data in entries(late)] == [*range(events), None]
        for _, writer in idle:
            writer.close()


async def test_a_stop_breaks_streams_and_the_next_server_goes_on(tmp_path: Path) -> None:
    seen: list[int] = []

    async def read(port: int) -> None:
        async with httpx2.AsyncClient(base_url=f"http://localhost:{port}", timeout=30) as client:
            query = f"/events/r?after_sequence={seen[-1] if seen else -1}"
            async with client.stream("GET", query) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("id: "):
                        seen.append(int(line[4:]))
                    elif line.startswith("data: ") and json.loads(line[6:])["value"].get("n") == EVENTS // 2:
                        half.set()

    half = asyncio.Event()
    async with asyncio.timeout(60):
        async with served(tmp_path) as (runtime, there):
            await runtime.start("talker", Count(events=EVENTS, pause=0.02), run_id="r")
            reading = asyncio.create_task(read(there.port))
            await half.wait()
        with pytest.raises(httpx2.RemoteProtocolError):
            await reading
        until_the_stop = len(seen)
        # The step begins anew where its effects cannot be known to have happened: what was streamed stays streamed.
        async with served(tmp_path) as (_, there):
            await read(there.port)
    assert len(seen) > until_the_stop
    assert seen == sorted(set(seen))

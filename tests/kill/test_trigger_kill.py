"""A server that is killed between a poll and its starts, in the middle of them and after them: each item is one run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from served_process import ServedProcess

import loom

ITEMS = 40
POINTS = [0, 17, ITEMS]
"""Before which start the process is killed; the last one: after all of them, before that is written down."""
DIES = """
import os, signal
from pathlib import Path
from loom.runtime.durable.listener_starts import ItemStarts

points = Path("points").read_text().split()
Path("points").write_text(" ".join(points[1:]))
if points:
    left, whole, starts = [int(points[0])], ItemStarts._start, ItemStarts.start

    async def start_one(self, index, event, code):
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        await whole(self, index, event, code)

    async def start_all(self, items, outputs):
        await starts(self, items, outputs)
        os.kill(os.getpid(), signal.SIGKILL)

    ItemStarts._start, ItemStarts.start = start_one, start_all
"""


class Queue:
    """A service that gives each batch of items out once: what is lost on the way is lost for good."""

    def __init__(self) -> None:
        self.given = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            batch = [f"{self.given}-{number}" for number in range(ITEMS)] if self.given < len(POINTS) else []
            self.given += 1
            status = "200 OK" if batch else "202 Accepted"
            body = json.dumps(batch).encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        finally:
            writer.close()


async def test_no_item_is_lost_and_none_starts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_HTTP_ALLOW", "127.0.0.1")
    queue = Queue()
    listening = await asyncio.start_server(queue.serve, "127.0.0.1", 0)
    trigger = {
        "type": "Http",
        "inputs": {"method": "GET", "uri": f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/items"},
        "recurrence": {"frequency": "Second", "interval": 1},
        "splitOn": "@triggerBody()",
    }
    echo = {"Echo": {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}}
    (tmp_path / "orders.json").write_text(json.dumps({"triggers": {"new": trigger}, "actions": echo}))
    (tmp_path / "dies.py").write_text(DIES)
    (tmp_path / "points").write_text(" ".join(map(str, POINTS)))
    server = ServedProcess("orders.json", "--handlers", "dies.py", cwd=tmp_path, log=tmp_path / "log")
    async with listening, asyncio.timeout(90), httpx2.AsyncClient(base_url=server.url) as client:
        for _ in POINTS:
            await server.start(may_end=True)
            assert await server.ended() == -9
        await server.start()
        try:
            while await completed(client) < ITEMS * len(POINTS) or queue.given <= len(POINTS):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        finally:
            await server.kill()
    wanted = {f"{batch}-{number}" for batch in range(len(POINTS)) for number in range(ITEMS)}
    async with loom.connect(f"sqlite:///{tmp_path}/loom.db") as runtime:
        ids = [info.run_id async for info in runtime.list(workflow="orders")]
        results = [await (await runtime.handler(run_id)) for run_id in ids]
    assert Counter(result.actions["Echo"].outputs for result in results) == Counter(wanted)


async def completed(client: httpx2.AsyncClient) -> int:
    """How many runs of the flow have completed."""
    count, cursor = 0, None
    while True:
        asked = {"workflow": "orders", "status": "completed", "limit": "100"}
        page = (await client.get("/v1/runs", params=asked | ({"cursor": cursor} if cursor else {}))).json()
        count += len(page["items"])
        cursor = page.get("next_cursor")
        if cursor is None:
            return count

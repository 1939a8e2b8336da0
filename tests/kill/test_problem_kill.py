"""A server that is killed after a run has failed, and before anybody was told of it, tells it when it is back."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from pathlib import Path

import httpx2
import pytest
from served_process import ServedProcess

SECRET = "s3cret-of-sixteen-characters"
FAILS = """
from loom import StartEvent, StopEvent, Workflow, step


class Fails(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no good")


fails = Fails(timeout=None)
"""


class Receiver:
    """A service that keeps the first caller waiting for ever, and takes what others bring."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.taken: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self.answers = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(headers["content-length"]))
            self.called.set()
            if not self.answers:
                await reader.read()  # until the caller is gone
                return
            await self.taken.put((headers, body))
            writer.write(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except ConnectionError:
            pass  # the caller was killed
        finally:
            writer.close()


async def test_a_problem_is_told_by_the_server_that_comes_after_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_PROBLEM_SECRET", SECRET)
    (tmp_path / "fails.py").write_text(FAILS)
    receiver = Receiver()
    listening = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    hook = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/hook"
    server = ServedProcess("fails.py:fails", "--problem-webhook", hook, cwd=tmp_path, log=tmp_path / "log")
    async with listening, asyncio.timeout(90), httpx2.AsyncClient(base_url=server.url) as client:
        await server.start()
        try:
            await client.post("/v1/runs", json={"workflow": "fails", "run_id": "a"})
            await receiver.called.wait()
            assert (await client.get("/v1/runs/a")).json()["status"] == "failed"
            await server.kill()
            assert receiver.taken.empty()
            receiver.answers = True
            await server.start()
            headers, body = await receiver.taken.get()
        finally:
            await server.kill()
    problem = json.loads(body)
    assert (problem["run_id"], problem["kind"], problem["workflow"]) == ("a", "failed", "fails")
    assert problem["message"] == "begin: ValueError: no good"
    at, _, signed = headers["loom-signature"].removeprefix("t=").partition(",v1=")
    assert signed == hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()

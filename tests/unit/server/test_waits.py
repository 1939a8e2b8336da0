"""Requests that wait for a run: nobody waits for those who have left, and a server that stops does not wait."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from server_serving import Asks, Served
from starlette.types import Message

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.auth import KEYS
from loom.server.http_server import bind, serving
from loom.server.settings import ServerSettings

START = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": "w"}
RESPONDS: dict[str, Any] = {
    "definition": {
        "actions": {
            "Wait": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {}},
            "Say": {"type": "Response", "inputs": {"statusCode": 200}, "runAfter": {"Wait": ["Succeeded"]}},
        }
    }
}


class Asked:
    """A request whose client may leave at any time."""

    def __init__(self, served: Served, method: str, target: str, body: bytes | None, **headers: str) -> None:
        self.answers: list[Message] = []
        self._parts: asyncio.Queue[Message] = asyncio.Queue()
        path, _, query = target.partition("?")
        given = {"host": "127.0.0.1", "content-type": "application/json", **headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        if body is not None:
            self._parts.put_nowait({"type": "http.request", "body": body, "more_body": False})
        self.task = asyncio.create_task(served.app(scope, self._parts.get, self._answer))  # type: ignore[arg-type]

    async def _answer(self, message: Message) -> None:
        self.answers.append(message)

    async def leave(self) -> None:
        """Go, and see the request end."""
        self._parts.put_nowait({"type": "http.disconnect"})
        async with asyncio.timeout(60):
            await self.task


@pytest.fixture
async def runtime() -> AsyncIterator[DurableRuntime]:
    async with loom.connect("memory://", definitions=True) as runtime:
        runtime.register(Asks(), name="asks")
        yield runtime


@pytest.fixture
def served(runtime: DurableRuntime) -> Served:
    return Served(runtime, ServerSettings())


async def test_who_has_left_is_not_waited_for(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        asked = Asked(served, "POST", "/v1/runs?wait=60", json.dumps(START).encode(), idempotency_key="k")
        await served.until_waiting("w")
        reads = Asked(served, "GET", "/v1/runs/w?wait=60", b"")
        await asyncio.sleep(0)
        await asked.leave()
        await reads.leave()
    assert asked.answers == reads.answers == []
    assert not caplog.records
    # Should the client come again, it waits again, and for the same run.
    again = Asked(served, "POST", "/v1/runs?wait=60", json.dumps(START).encode(), idempotency_key="k")
    async with served.client() as client:
        await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "x"}})
    async with asyncio.timeout(60):
        await again.task
    assert json.loads(again.answers[1]["body"])["status"] == "completed"


async def test_half_a_request_is_no_failure_of_the_server(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        asked = Asked(served, "POST", "/v1/runs", None)
        await asked.leave()
    assert asked.answers == []
    assert not caplog.records
    assert not served.server.requests.answered


async def test_a_server_that_stops_tells_those_who_wait_how_it_is(runtime: DurableRuntime) -> None:
    app = create_app(runtime, ServerSettings(drain=0.05))
    async with asyncio.timeout(60):
        async with (
            serving(app, await bind("127.0.0.1", 0)) as server,
            httpx2.AsyncClient(base_url=server.url) as client,
        ):
            await client.put("/v1/definitions/says", json=RESPONDS)
            asked = [
                asyncio.create_task(client.post("/v1/runs?wait=60", json=START)),
                asyncio.create_task(client.post("/v1/definitions/says/invoke?wait=60", json={})),
            ]
            while len(app.state.server.waits._tasks) < len(asked):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)
            asked.append(asyncio.create_task(client.get("/v1/runs/w?wait=60")))
            while len(app.state.server.waits._tasks) < len(asked):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)
            server.should_exit = True
            await server.shutdown()
            answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [201, 202, 200]
    assert {answer.json()["status"] for answer in answers} == {"running"}


async def test_a_store_that_fails_is_told_in_one_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    await served.runtime.close()
    await served.runtime.store.close()
    with caplog.at_level(logging.WARNING):
        async with served.client() as client:
            answer = await client.get("/v1/runs/w")
    assert answer.status_code == 503
    [record] = caplog.records
    assert record.exc_info is None


async def test_one_damaged_key_does_not_keep_the_streams_of_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that read, one has a key whose record is damaged, and the other one's was revoked."""
    monkeypatch.setattr("loom.server.waits.KEYS_S", 0.0)
    key = await served.key("read")
    revoked, damaged = key.split("_")[1], "0" * 12
    await served.server.keys.revoke(revoked)
    await served.runtime.store.put_entry(KEYS, damaged, b"no key")
    broken: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(served.server.open_streams, "holders", lambda: [damaged, revoked])
    monkeypatch.setattr(served.server.open_streams, "break_for", broken.put_nowait)
    watching = asyncio.create_task(served.server.key_watch.watch())
    async with asyncio.timeout(60):
        assert [await broken.get(), await broken.get()] == [revoked, revoked]
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)

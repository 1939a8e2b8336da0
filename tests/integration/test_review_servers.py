"""Two servers on one PostgreSQL: whichever is asked, the answer is the same, and nothing is lost when one stops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import pytest
from compat_server import register_all, serving
from postgres_server import fresh_database_url

import loom


class Two(NamedTuple):
    owner: httpx2.AsyncClient
    """Of the server that the runs of a test are started at, and that owns them."""
    other: httpx2.AsyncClient


@asynccontextmanager
async def server(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with loom.connect(url, idle_timeout=60) as runtime:
        register_all(runtime)
        async with serving(runtime) as served, httpx2.AsyncClient(base_url=served.url, timeout=20) as client:
            yield client


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    url = fresh_database_url()
    async with server(url) as owner, server(url) as other:
        yield Two(owner, other)


async def waiting(two: Two, run_id: str, workflow: str = "await") -> None:
    """Start a run at its owner that waits for a nudge."""
    body = {"handler_id": run_id}
    assert (await two.owner.post(f"/workflows/{workflow}/run-nowait", json=body)).status_code == 200
    await until(two.owner, run_id, "idle_since")


async def until(client: httpx2.AsyncClient, run_id: str, field: str) -> None:
    """Ask for a run until a field of it is set."""
    async with asyncio.timeout(60):
        while not (await client.get(f"/v1/runs/{run_id}")).json()[field]:
            pass


async def entries(client: httpx2.AsyncClient, run_id: str, after: int = -1) -> list[dict[str, Any]]:
    """The rest of a run's stream, as it comes."""
    path = f"/v1/runs/{run_id}/stream?internal=true&after={after}"
    answer = await client.get(path, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


NUDGE = {"type": "Nudge", "value": {"count": 3}, "event_id": "once"}


async def test_an_event_reaches_a_run_by_way_of_the_other_server(two: Two) -> None:
    await waiting(two, "run")
    reading = asyncio.gather(entries(two.other, "run"), entries(two.owner, "run"))
    ended = asyncio.create_task(two.other.get("/v1/runs/run?wait=20"))
    sent = await two.other.post("/v1/runs/run/events", json=NUDGE)
    assert (sent.status_code, sent.json()["delivered"], sent.json()["duplicate"]) == (200, "inbox", False)
    again = await two.owner.post("/v1/runs/run/events", json=NUDGE)
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert (await ended).json()["result"]["value"] == {"result": 3}
    here, there = await reading
    assert here == there
    assert [entry["seq"] for entry in here] == list(range(len(here)))
    for client in two:
        assert (await client.get("/handlers/run")).json()["result"]["value"] == {"result": 3}
        gone = await client.get("/v1/runs/run/stream", headers={"Last-Event-ID": str(here[-1]["seq"])})
        assert gone.status_code == 204


async def test_a_run_is_told_and_deleted_by_way_of_the_other_server(two: Two) -> None:
    for name in ("paused", "cancelled", "purged"):
        await waiting(two, name)
    assert (await two.other.post("/v1/runs/paused/pause")).status_code == 202
    await until(two.owner, "paused", "paused")
    assert (await two.other.post("/handlers/cancelled/cancel")).json() == {"status": "cancelled"}
    assert (await two.owner.get("/v1/runs/cancelled")).json()["status"] == "cancelled"
    assert (await two.other.post("/v1/runs/cancelled/cancel")).status_code == 200
    assert (await two.other.post("/handlers/purged/cancel?purge=true")).json() == {"status": "deleted"}
    assert (await two.owner.get("/v1/runs/purged")).status_code == 404


async def test_the_same_request_at_both_servers_happens_once(two: Two) -> None:
    key = {"Idempotency-Key": "once"}
    first = await two.owner.post("/workflows/break/run", json={"handler_id": "h"}, headers=key)
    again = await two.other.post("/workflows/break/run", json={"handler_id": "h"}, headers=key)
    assert (first.status_code, again.status_code) == (500, 500)
    assert again.json() == first.json()
    starts = [client.post("/workflows/await/run-nowait", json={"handler_id": "one"}) for client in (*two, *two)]
    codes = [answer.status_code for answer in await asyncio.gather(*starts)]
    assert sorted(codes) == [200, 409, 409, 409]


async def test_a_stream_goes_on_when_the_owner_stops() -> None:
    url = fresh_database_url()
    async with AsyncExitStack() as owning, server(url) as other:
        two = Two(await owning.enter_async_context(server(url)), other)
        await waiting(two, "run")
        broken = asyncio.create_task(entries(two.owner, "run"))
        whole = asyncio.create_task(entries(two.other, "run"))
        before = (await two.other.get("/v1/runs/run")).json()["cursor"]
        await owning.aclose()
        with pytest.raises(httpx2.TransportError):
            await broken
        assert (await other.post("/v1/runs/run/events", json=NUDGE)).status_code == 200
        assert (await other.get("/v1/runs/run?wait=20")).json()["status"] == "completed"
        found = await whole
        assert [entry["seq"] for entry in found] == list(range(len(found)))
        assert await entries(other, "run", before) == found[before + 1 :]

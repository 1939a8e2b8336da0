"""The same request twice: the same answer, and one run."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import msgspec
import pytest
from server_serving import Served

from loom.server import idempotency
from loom.server.idempotency import ANSWERS, Kept

START = {"workflow": "asks", "input": {"topic": "tea"}}
KEY = {"Idempotency-Key": "k1"}


async def runs(client: httpx2.AsyncClient) -> int:
    return len((await client.get("/v1/runs")).json()["items"])


async def test_the_first_answer_comes_again(client: httpx2.AsyncClient) -> None:
    first = await client.post("/v1/runs", json=START, headers=KEY)
    again = await client.post("/v1/runs", json=START, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotent-replay"] == "true"
    assert "idempotent-replay" not in first.headers
    assert await runs(client) == 1


async def test_another_body_under_the_key_is_refused(client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json=START, headers=KEY)
    other = await client.post("/v1/runs", json={**START, "input": {"topic": "x"}}, headers=KEY)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")
    elsewhere = await client.post("/v1/runs?wait=1", json=START, headers=KEY)
    assert elsewhere.status_code == 422


async def test_a_first_request_under_way_is_told(served: Served, client: httpx2.AsyncClient) -> None:
    first = asyncio.create_task(client.post("/v1/runs?wait=20", json={**START, "run_id": "w"}, headers=KEY))
    await served.until_waiting("w")
    second = await client.post("/v1/runs?wait=20", json={**START, "run_id": "w"}, headers=KEY)
    assert (second.status_code, second.json()["code"]) == (409, "request-in-progress")
    await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "x"}})
    assert (await first).json()["status"] == "completed"


async def test_many_at_once_start_one_run(client: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/v1/runs", json=START, headers=KEY) for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["run_id"] for answer in answers if answer.status_code == 201}) == 1
    assert await runs(client) == 1


async def test_a_crash_before_the_answer_does_not_start_another_run(served: Served, client: httpx2.AsyncClient) -> None:
    first = await client.post("/v1/runs", json=START, headers=KEY)
    store = served.runtime.store
    [entry] = await store.entries(ANSWERS)
    kept = msgspec.json.decode(entry.data, type=Kept)
    lost = msgspec.structs.replace(kept, status=0, headers={}, body=b"", claimed_at=0.0)
    await store.put_entry(ANSWERS, entry.key, msgspec.json.encode(lost))
    again = await client.post("/v1/runs", json=START, headers=KEY)
    assert again.status_code == 200
    assert again.json()["run_id"] == first.json()["run_id"]
    assert await runs(client) == 1


async def test_a_claim_is_taken_over_at_once_where_its_process_must_be_dead(
    served: Served, client: httpx2.AsyncClient
) -> None:
    """A server that was killed comes back, and its clients repeat what they had asked."""
    first = await client.post("/v1/runs", json=START, headers=KEY)
    store, now = served.runtime.store, served.runtime.now()
    [entry] = await store.entries(ANSWERS)
    kept = msgspec.json.decode(entry.data, type=Kept)
    under_way = msgspec.structs.replace(kept, status=0, headers={}, body=b"", claimed_at=now, claimed_by="another")
    await store.put_entry(ANSWERS, entry.key, msgspec.json.encode(under_way))
    again = await client.post("/v1/runs", json=START, headers=KEY)
    if served.runtime.is_alone:
        assert (again.status_code, again.json()["run_id"]) == (200, first.json()["run_id"])
    else:
        assert (again.status_code, again.json()["code"]) == (409, "request-in-progress")


async def test_a_claim_is_kept_for_as_long_as_its_request_takes(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "_RENEW_S", 0.01)
    body = {**START, "run_id": "w"}
    first = asyncio.create_task(client.post("/v1/runs?wait=20", json=body, headers=KEY))
    await served.until_waiting("w")
    began = await _claimed_at(served)
    now = served.runtime.now
    monkeypatch.setattr(served.runtime, "now", lambda: now() + 1000)  # long enough for a claim to be nobody's
    while await _claimed_at(served) < began + 1000:  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0)
    second = await client.post("/v1/runs?wait=20", json=body, headers=KEY)
    assert second.status_code == 409
    await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "x"}})
    assert (await first).json()["status"] == "completed"
    again = await client.post("/v1/runs?wait=20", json=body, headers=KEY)
    assert again.headers["idempotent-replay"] == "true"


async def _claimed_at(served: Served) -> float:
    [entry] = await served.runtime.store.entries(ANSWERS)
    return msgspec.json.decode(entry.data, type=Kept).claimed_at


async def test_a_request_that_failed_may_be_made_again(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = served.runtime.starter.begin

    async def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("once")

    monkeypatch.setattr(served.runtime.starter, "begin", broken)
    assert (await client.post("/v1/runs", json=START, headers=KEY)).status_code == 500
    monkeypatch.setattr(served.runtime.starter, "begin", real)
    assert (await client.post("/v1/runs", json=START, headers=KEY)).status_code == 201
    assert (
        await client.post("/v1/runs", json={"workflow": "no"}, headers={"Idempotency-Key": "k2"})
    ).status_code == 404
    assert (await client.post("/v1/runs", json=START, headers={"Idempotency-Key": "k2"})).status_code == 201


async def test_an_event_is_sent_once(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "w"})
    await served.until_waiting("w")
    body = {"type": "Approval", "value": {"by": "x"}}
    first = await client.post("/v1/runs/w/events", json=body, headers=KEY)
    await client.get("/v1/runs/w?wait=10")
    again = await client.post("/v1/runs/w/events", json=body, headers=KEY)
    assert (again.status_code, again.content) == (200, first.content)


async def test_keys_of_others_are_not_in_the_way(served: Served) -> None:
    one, two = await served.key("admin"), await served.key("admin")
    async with served.client(one) as first, served.client(two) as second:
        a = await first.post("/v1/runs", json=START, headers=KEY)
        b = await second.post("/v1/runs", json={**START, "input": {"topic": "b"}}, headers=KEY)
    assert (a.status_code, b.status_code) == (201, 201)
    assert a.json()["run_id"] != b.json()["run_id"]


async def test_a_key_has_a_length(client: httpx2.AsyncClient) -> None:
    for key in ("", "k" * 201):
        assert (await client.post("/v1/runs", json=START, headers={"Idempotency-Key": key})).status_code == 400

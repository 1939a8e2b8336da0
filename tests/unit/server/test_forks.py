"""Forks with changes over HTTP: what they take, what is refused and where, and who may."""

from __future__ import annotations

import httpx2
from server_serving import Served


async def asked(served: Served, client: httpx2.AsyncClient, run_id: str = "a") -> int:
    """Start a run that waits; return its last tick."""
    body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": run_id}
    assert (await client.post("/v1/runs", json=body)).status_code == 201
    await served.until_waiting(run_id)
    return (await client.get(f"/v1/runs/{run_id}/state")).json()["tick"]


async def test_another_input_and_an_event(served: Served, client: httpx2.AsyncClient) -> None:
    await asked(served, client)
    body = {"tick": 0, "run_id": "b", "input": {"topic": "now"}}
    made = await client.post("/v1/runs/a/fork", json=body)
    assert (made.status_code, made.json()["forked_from"]) == (201, "a")
    assert (await client.get("/v1/runs/b?wait=10")).json()["result"]["value"] == {"text": "at once"}
    tick = (await client.get("/v1/runs/a/state")).json()["tick"]
    body = {"tick": tick, "run_id": "c", "event": {"type": "Approval", "value": {"by": "Ann"}}, "store": {"x.y": 1}}
    assert (await client.post("/v1/runs/a/fork", json=body)).status_code == 201
    assert (await client.get("/v1/runs/c?wait=10")).json()["result"]["value"] == {"text": "tea by Ann"}
    assert (await client.get("/v1/runs/c/state")).json()["store"]["x"] == {"y": 1}
    assert (await client.get("/v1/runs/c/replay")).json()["replay"] == "same"
    assert (await client.get("/v1/runs/a")).json()["status"] == "running"


async def test_what_does_not_fit_is_refused_at_its_place(served: Served, client: httpx2.AsyncClient) -> None:
    tick = await asked(served, client)
    for more, path in (
        ({"input": {"topic": "x"}, "tick": tick}, "/input"),
        ({"input": {}, "tick": 0}, "/input"),
        ({"event": {"type": "Approval", "value": {}}}, "/event/value/by"),
        ({"event": {"type": "Nothing", "value": {}}}, "/event/type"),
        ({"event": {"type": "Done", "value": {"text": "x"}}}, "/event"),
        ({"store": {"topic.x.y": 1}}, "/store"),
        ({"store": 5}, "/store"),
        ({"tick": 999}, "/tick"),
    ):
        answer = await client.post("/v1/runs/a/fork", json={"tick": tick, "run_id": "b", **more})
        assert answer.status_code == 400, (more, answer.text)
        assert answer.json()["errors"][0]["path"] == path, answer.text
    assert (await client.get("/v1/runs/b")).status_code == 404


async def test_changes_need_an_administrator_and_are_recorded(served: Served, client: httpx2.AsyncClient) -> None:
    tick = await asked(served, client)
    async with (
        served.client(await served.key("read", "start", "event")) as operator,
        served.client(await served.key("admin")) as admin,
    ):
        approval = {"type": "Approval", "value": {"by": "x"}}
        for more in ({"input": {"topic": "x"}}, {"event": approval}, {"store": {"x": 1}}):
            refused = await operator.post("/v1/runs/a/fork", json={"tick": tick, **more})
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), more
        assert (await operator.post("/v1/runs/a/fork", json={"tick": tick, "run_id": "p"})).status_code == 201
        assert (await admin.post("/v1/runs/a/fork", json={"tick": tick, "run_id": "q", "store": {"x": 1}})).is_success
        acts = (await admin.get("/v1/audit")).json()["items"]
        assert [(act["action"], act["made"], act["outcome"]) for act in acts[:2]] == [
            ("run.fork", "q", 201),
            ("run.fork", "p", 201),
        ]
        assert [act["outcome"] for act in acts[2:]] == [403] * 3


async def test_secure_variables_of_a_fork_are_hidden_in_its_history(served: Served, client: httpx2.AsyncClient) -> None:
    begun = await client.post("/v1/runs", json={"workflow": "flow", "run_id": "f", "input": {"pin": 1}})
    assert begun.status_code == 201
    await served.until_waiting("f")
    body = {"tick": 0, "run_id": "g", "input": {"pin": 2}}
    assert (await client.post("/v1/runs/f/fork", json=body)).status_code == 201
    await served.until_waiting("g")
    first = (await client.get("/v1/runs/g/history?limit=1")).json()["items"][0]["tick"]
    assert "t0p-secret" not in str(first)
    refused = await client.post("/v1/runs/f/fork", json={"tick": 0, "store": {"nothing": 1}})
    assert "no variable 'nothing'" in refused.json()["detail"]

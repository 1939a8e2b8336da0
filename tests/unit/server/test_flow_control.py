"""Flows as operators see them: enabled or not, and their versions while runs are under way."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from server_serving import Served
from test_invoke import WAITS, answers, endpoint, flow

import loom
from loom.client.connection import Client
from loom.client.errors import ClientError
from loom.server.settings import ServerSettings

INVOKE = "/v1/definitions/a/invoke"


def says(word: str) -> dict[str, Any]:
    """A flow that waits in the middle, and then says what its version is."""
    actions = {"W": {**WAITS, "runAfter": {}}, "R": {**answers(word), "runAfter": {"W": ["Succeeded"]}}}
    return {"definition": {"triggers": {"manual": {"type": "Request"}}, "actions": actions}}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "postgres":
        from postgres_server import fresh_database_url

        return fresh_database_url()
    return f"sqlite:///{tmp_path}/runs.db"


async def test_a_disabled_flow_is_not_fired_and_can_be_started(url: str) -> None:
    async with endpoint(flow(R=answers("hi")), url=url) as (served, client):
        address = (await served.runtime.flow_address("a", url="http://x")).url.removeprefix("http://x")
        assert (await client.get("/v1/definitions/a/status")).json()["enabled"] is True
        off = await client.post("/v1/definitions/a/disable")
        assert (off.status_code, off.json()["enabled"]) == (200, False)
        since = off.json()["disabled_at"]
        assert (await client.post("/v1/definitions/a/disable")).json()["disabled_at"] == since
        for place in (INVOKE, address):
            refused = await client.post(place)
            assert (refused.status_code, refused.json()["code"]) == (404, "flow-disabled")
        assert (await client.get("/v1/runs")).json()["items"] == []
        started = await client.post("/v1/runs?wait=20", json={"workflow": "a"})
        assert started.json()["result"]["response"]["body"] == "hi"
        listed = {each["name"]: each for each in (await client.get("/v1/definitions")).json()["items"]}
        assert (listed["a"]["enabled"], listed["asks"]["enabled"]) == (False, True)
        # It stays so with another version, and for another server on the store.
        await client.put("/v1/definitions/a", json=says("two"))
        assert (await client.post(INVOKE)).status_code == 404
        async with Served(served.runtime, ServerSettings()).client() as other:
            assert (await other.post(address)).status_code == 404
        await client.post("/v1/definitions/a/enable")
        assert (await client.post(f"{INVOKE}?wait=0")).status_code == 202
        acts = [(act["action"], act["target"]) for act in (await client.get("/v1/audit")).json()["items"]]
        assert ("definition.disable", "a") in acts
        assert ("definition.enable", "a") in acts


async def test_it_is_disabled_also_after_a_restart(url: str) -> None:
    hi = flow(R=answers("hi"))
    async with endpoint(hi, url=url) as (served, _):
        await served.runtime.disable_flow("a")
    async with endpoint(hi, url=url) as (served, client):
        assert (await client.post(INVOKE)).json()["code"] == "flow-disabled"
        assert [each.enabled for each in await served.runtime.flows()] == [False]


async def test_a_deleted_flow_is_another_one_when_it_comes_back() -> None:
    async with endpoint(flow(R=answers())) as (_, client):
        await client.put("/v1/definitions/new", json=says("one"))
        await client.post("/v1/definitions/new/disable")
        await client.delete("/v1/definitions/new")
        assert (await client.post("/v1/definitions/new/enable")).json()["code"] == "definition-not-found"
        await client.put("/v1/definitions/new", json=says("one"))
        assert (await client.get("/v1/definitions/new/status")).json()["enabled"] is True


async def test_the_status_tells_what_starts_runs() -> None:
    document = {
        "definition": {
            "triggers": {
                "timer": {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}},
                "call": {"type": "Request", "inputs": {"method": "PUT", "relativePath": "/o/{id}"}},
            },
            "actions": {"R": answers()},
        }
    }
    async with endpoint(loom.load(document)) as (served, client):
        found = (await client.get("/v1/definitions/a/status")).json()
        assert found["triggers"] == [
            {"name": "timer", "type": "recurrence", "methods": [], "path": None},
            {"name": "call", "type": "request", "methods": ["PUT"], "path": "o/{id}"},
        ]
        for name in ("nobody", "asks"):
            assert (await client.get(f"/v1/definitions/{name}/status")).json()["code"] == "definition-not-found"
        async with served.client(await served.key("start", "read")) as caller:
            assert (await caller.post("/v1/definitions/a/disable")).status_code == 403


async def test_runs_under_way_keep_their_version_when_another_one_is_put(url: str) -> None:
    async with endpoint(url=url) as (served, client):
        await client.put("/v1/definitions/a", json=says("one"))
        asking = asyncio.create_task(client.post(INVOKE))
        async with asyncio.timeout(60):
            while not (runs := (await client.get("/v1/runs?idle=true")).json()["items"]):
                await asyncio.wait([asking], timeout=0.02)
        old = runs[0]["run_id"]
        put = await client.put("/v1/definitions/a", json=says("two"))
        assert (put.status_code, put.json()["version"]) == (200, 2)
        new = (await client.post(f"{INVOKE}?wait=0")).headers["loom-run-id"]
        for run_id in (new, old):
            await client.post(f"/v1/runs/{run_id}/events", json={"type": "Go", "value": {}})
        assert (await asking).text == "one"
        assert (await client.get(f"/v1/runs/{new}/response?wait=30")).text == "two"
        versions = [(await client.get(f"/v1/runs/{run_id}")).json()["version"] for run_id in (old, new)]
        assert versions == [1, 2]
        assert served.runtime.definitions.deleted == set()


async def test_the_client_enables_disables_and_gets_addresses() -> None:
    async with endpoint(flow({"inputs": {"method": "PUT", "relativePath": "o/{id}"}}, R=answers("@triggerOutputs()")),
                        flow(F={"type": "Compose", "inputs": "@div(1, 0)"}, R=answers()),
                        flow(W=WAITS, R=answers()), response_timeout=0.2) as (served, _):  # fmt: skip
        transport = httpx2.ASGITransport(app=served.app, client=("127.0.0.1", 1))
        async with Client("http://127.0.0.1", transport=transport) as client:
            assert (await client.disable_flow("a")).enabled is False
            with pytest.raises(ClientError, match="disabled") as refused:
                await client.invoke("a", method="PUT", path="o/1")
            assert refused.value.code == "flow-disabled"
            assert (await client.enable_flow("a")).enabled is True
            assert (await client.flow_status("a")).triggers[0].path == "o/{id}"
            said = await client.invoke("a", {"n": 1}, method="put", path="o/7")
            assert said.json()["relativePathParameters"] == {"id": "7"}
            first = await client.flow_address("a", expires_in=60)
            second = await client.flow_address("a", rotate=True)
            assert (first.key, second.key, second.expires_at) == (1, 2, None)
            with pytest.raises(ClientError) as failed:
                await client.invoke("b")
            assert (failed.value.code, failed.value.http_status) == ("no-response", 502)
            assert failed.value.problem.error is not None
            with pytest.raises(ClientError) as late:
                await client.invoke("c")
            assert late.value.code == "response-late"
            [run] = (await client.invoke("c", wait=0)).runs
            assert (await client.response(run.run_id)).status == 202
            await client.send_event(run.run_id, "Go", {})
            assert (await client.response(run.run_id, wait=30)).run_id == run.run_id

"""Handlers and careless or hostile callers: names of handlers, forks, repeated failures, odd data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from server_serving import Approval, Served, serving

import loom
from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.names import HANDLER
from loom.store.records import RunQuery, RunRow

NOW = {"start_event": {"topic": "now"}}
FAIL = {"start_event": {"topic": "fail"}}


async def run(client: httpx2.AsyncClient, handler_id: str, workflow: str = "asks", **more: Any) -> httpx2.Response:
    return await client.post(f"/workflows/{workflow}/run", json={**NOW, "handler_id": handler_id, **more})


# -- names of handlers ------------------------------------------------------------------------------------------------


async def test_a_fork_leaves_the_handler_alone(client: httpx2.AsyncClient) -> None:
    for _ in range(2):
        assert (await run(client, "h")).status_code == 200
    for source, name in (("h", "first"), ("h~2", "second")):
        forked = await client.post(f"/v1/runs/{source}/fork", json={"tick": 0, "run_id": name})
        assert (forked.status_code, forked.json()["handler_id"]) == (201, name)
        assert forked.json()["forked_from"] == source
    assert (await client.get("/handlers/h")).json()["run_id"] == "h~2"
    assert (await run(client, "h")).json()["run_id"] == "h~3"
    listed = (await client.get("/handlers")).json()["handlers"]
    assert [found["handler_id"] for found in listed] == ["h", "second", "first"]


async def test_a_name_that_looks_like_a_second_run_is_in_nobodys_way(client: httpx2.AsyncClient) -> None:
    assert (await run(client, "h")).json()["run_id"] == "h"
    assert (await run(client, "h~2")).json()["run_id"] == "h~2"
    assert (await client.post("/v1/runs", json={"workflow": "flow", "run_id": "h~3"})).status_code == 201
    again = await run(client, "h")
    assert (again.status_code, again.json()["run_id"], again.json()["handler_id"]) == (200, "h~4", "h")
    assert (await run(client, "h")).json()["run_id"] == "h~5"
    assert (await client.get("/handlers/h~2")).json()["handler_id"] == "h~2"


async def test_the_latest_run_is_found_where_lists_are_late(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = served.runtime.store
    find = store.find
    await run(client, "h")
    late = await find(RunQuery(tags={HANDLER: "h"}))
    for _ in range(2):
        await run(client, "h")

    async def found_late(query: RunQuery) -> list[RunRow]:
        return late if query.tags else await find(query)

    monkeypatch.setattr(store, "find", found_late)
    assert (await client.get("/handlers/h")).json()["run_id"] == "h~3"
    assert (await run(client, "h")).json()["run_id"] == "h~4"


async def test_a_long_name_can_be_used_again(client: httpx2.AsyncClient) -> None:
    name = "h" * 200
    ids = [(await run(client, name)).json()["run_id"] for _ in range(3)]
    assert len(set(ids)) == 3
    for run_id in ids:
        found = await client.get(f"/v1/runs/{run_id}")
        assert (found.status_code, found.json()["handler_id"]) == (200, name)


async def test_of_many_at_once_one_begins_the_handler(client: httpx2.AsyncClient) -> None:
    body = {"start_event": {"topic": "soup"}, "handler_id": "h"}
    starts = [client.post("/workflows/asks/run-nowait", json=body) for _ in range(8)]
    codes = [answer.status_code for answer in await asyncio.gather(*starts)]
    assert sorted(codes) == [200] + [409] * 7


async def test_nobody_takes_a_handlers_name_by_a_tag(client: httpx2.AsyncClient) -> None:
    assert (await run(client, "h")).status_code == 200
    for name in ("handler", "handler_again", "handler_request"):
        body = {"workflow": "asks", "input": {"topic": "now"}, "tags": {name: "h"}}
        refused = await client.post("/v1/runs", json=body)
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["path"] == "/tags"
        timed = {"name": "tick", "workflow": "asks", "every": 60, "input": {"topic": "now"}, "tags": {name: "h"}}
        assert (await client.post("/v1/schedules", json=timed)).status_code == 400
    assert (await client.get("/handlers/h")).json()["run_id"] == "h"


# -- whose runs ------------------------------------------------------------------------------------------------------


async def test_a_schedule_is_not_stopped_by_way_of_its_run(served: Served) -> None:
    lesser, admin = await served.key("read", "start", "event"), await served.key("admin")
    async with served.client(admin) as operator, served.client(lesser) as client:
        body = {"name": "daily", "workflow": "asks", "every": 86400, "input": {"topic": "now"}}
        assert (await operator.post("/v1/schedules", json=body)).status_code == 201
        told: dict[str, dict[str, Any]] = {
            "cancel": {},
            "pause": {},
            "fork": {"tick": 0},
            "events": {"type": "StopEvent"},
        }
        for what, given in told.items():
            refused = await client.post(f"/v1/runs/schedule:daily/{what}", json=given)
            assert (what, refused.status_code) == (what, 403)
        assert (await client.get("/v1/runs/schedule:daily")).json()["status"] == "running"
        assert (await operator.post("/v1/runs/schedule:daily/pause")).status_code == 202


# -- the same request again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["named", None])
async def test_a_failed_run_is_not_run_again(client: httpx2.AsyncClient, name: str | None) -> None:
    body, key = {**FAIL, "handler_id": name}, {"Idempotency-Key": "once"}
    first = await client.post("/workflows/asks/run", json=body, headers=key)
    again = await client.post("/workflows/asks/run", json=body, headers=key)
    assert (first.status_code, again.status_code) == (500, 500)
    assert again.json() == first.json()
    assert again.headers["idempotent-replay"] == "true"
    assert len((await client.get("/v1/runs")).json()["items"]) == 1


async def test_who_left_and_comes_again_finds_the_run_of_the_handler(served: Served) -> None:
    body, key = {"start_event": {"topic": "soup"}, "handler_id": "h"}, {"Idempotency-Key": "once"}
    async with served.client() as client:
        assert (await run(client, "h")).status_code == 200
        asking = asyncio.create_task(client.post("/workflows/asks/run", json=body, headers=key))
        await served.until_waiting("h~2")
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await served.runtime.send_event("h~2", Approval(by="Ada"))
        assert (await client.get("/v1/runs/h~2?wait=10")).json()["status"] == "completed"
        again = await client.post("/workflows/asks/run", json=body, headers=key)
        assert (again.status_code, again.json()["run_id"]) == (200, "h~2"), again.text
        assert (await client.get("/handlers/h")).json()["run_id"] == "h~2"


# -- deleting ---------------------------------------------------------------------------------------------------------


class Trip(Workflow):
    """Waits for a run of its own that waits for a run of its own."""

    @step
    async def ride(self, ctx: Context, ev: StartEvent) -> StopEvent:
        deeper = ev.get("deeper", 0)
        child = ctx.run_child("trip", deeper=deeper - 1) if deeper else ctx.run_child("asks", topic="soup")
        return StopEvent(result=await child)


async def test_a_purge_takes_the_runs_of_a_running_run_along(served: Served, client: httpx2.AsyncClient) -> None:
    served.runtime.register(Trip(), name="trip")
    body = {"handler_id": "far", "start_event": {"deeper": 1}}
    assert (await client.post("/workflows/trip/run-nowait", json=body)).status_code == 200
    await served.until_waiting("far")
    [child] = (await client.get("/v1/runs?parent_id=far")).json()["items"]
    await served.until_waiting(child["run_id"])
    purged = await client.post("/handlers/far/cancel?purge=true")
    assert (purged.status_code, purged.json()) == (200, {"status": "deleted"})
    assert (await client.get("/v1/runs")).json()["items"] == []


async def test_a_run_that_is_deleted_meanwhile_is_not_found(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, runtime = served.runtime.store, served.runtime
    load, export = store.load, store.export

    async def deleted_first(run_id: str) -> Any:
        await runtime.purge(run_id)
        return await load(run_id)

    async def deleted_before(run_id: str) -> Any:
        await runtime.purge(run_id)
        return await export(run_id)

    monkeypatch.setattr(store, "load", deleted_first)
    monkeypatch.setattr(store, "export", deleted_before)
    for method, path in (("GET", "state"), ("GET", "state?tick=0"), ("GET", "loops"), ("POST", "fork")):
        assert (await run(client, "h")).json()["run_id"] == "h"
        answer = await client.request(method, f"/v1/runs/h/{path}", json={"tick": 0} if method == "POST" else None)
        assert (path, answer.status_code) == (path, 404)
    for _ in range(2):
        assert (await run(client, "h")).json()["run_id"] == "h"


# -- what runs have in their data -------------------------------------------------------------------------------------


class Half(Workflow):
    """Gives half a character, which UTF-8 has no form for."""

    @step
    async def give(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result={"half": "\ud800", "none": float("nan"), "end": "\u2028"})


@pytest.fixture
async def odd() -> AsyncIterator[httpx2.AsyncClient]:
    async with serving() as served:
        served.runtime.register(Half(), name="half")
        async with served.client() as client:
            yield client


@pytest.mark.parametrize("path", ["/events/odd?after_sequence=-1&sse=false", "/v1/runs/odd/stream"])
async def test_half_a_character_breaks_no_stream(odd: httpx2.AsyncClient, path: str) -> None:
    body = {"workflow": "half", "run_id": "odd"}
    assert (await odd.post("/v1/runs?wait=10", json=body)).json()["status"] == "completed"
    answer = await odd.get(path, headers={"Accept": "application/x-ndjson"})
    [line] = answer.text.splitlines()
    assert json.loads(line)["value"]["result"] == {"half": "\ud800", "none": None, "end": "\u2028"}


@pytest.mark.parametrize(
    "extra", ["[" * 64 + "]" * 64, "NaN", '"\\ud800"', '{"a": 1, "a": 2}', "[" * 100_000], ids=lambda text: text[:8]
)
async def test_json_in_a_string_is_held_to_the_same(client: httpx2.AsyncClient, extra: str) -> None:
    start = f'{{"topic": "now", "more": {extra}}}'
    assert (await client.post("/workflows/asks/run", json={"start_event": start})).status_code == 400
    await client.post("/v1/runs", json={"workflow": "flow", "run_id": "f"})
    event = f'{{"type": "Go", "value": {extra}}}'
    assert (await client.post("/events/f", json={"event": event})).status_code == 400
    assert (await client.post("/events/f", json={"event": '{"type": "Go", "value": [1]}'})).status_code == 200


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        ("Failed", "WorkflowFailedEvent", "out of flour"),
        ("Cancelled", "WorkflowCancelledEvent", None),
        ("Succeeded", "StopEvent", None),
    ],
)
async def test_the_stream_of_a_flow_tells_success_from_failure(
    served: Served, client: httpx2.AsyncClient, status: str, kind: str, message: str | None
) -> None:
    inputs: dict[str, Any] = {"runStatus": status}
    if status == "Failed":
        inputs["runError"] = {"code": "E7", "message": message}
    document = {"definition": {"actions": {"End": {"type": "Terminate", "inputs": inputs, "runAfter": {}}}}}
    served.runtime.register(loom.load(document), name="ends")
    assert (await client.post("/v1/runs?wait=10", json={"workflow": "ends", "run_id": "f"})).status_code == 201
    answer = await client.get("/events/f?after_sequence=-1&sse=false")
    [told] = [json.loads(line) for line in answer.text.splitlines()]
    assert (told["type"], told["types"]) == (kind, None if kind == "StopEvent" else ["StopEvent"])
    assert message is None or told["value"]["exception"]["exception_message"] == message


# -- conditions and filters -------------------------------------------------------------------------------------------


async def test_a_copy_that_is_known_is_not_sent_again(client: httpx2.AsyncClient) -> None:
    await run(client, "h")
    for path in ("/v1/runs/h", "/v1/runs/h/state?tick=0"):
        mark = (await client.get(path)).headers["etag"]
        for known in (mark, f"W/{mark}", f'"other", {mark}', "*"):
            assert (await client.get(path, headers={"If-None-Match": known})).status_code == 304, (path, known)
        assert (await client.get(path, headers={"If-None-Match": '"other"'})).status_code == 200


async def test_a_copy_of_a_deleted_run_is_not_that_of_the_next_one(client: httpx2.AsyncClient) -> None:
    marks = []
    for topic in ("now", "fail"):
        body = {"workflow": "asks", "input": {"topic": topic}, "run_id": "same"}
        assert (await client.post("/v1/runs?wait=10", json=body)).status_code == 201
        marks.append((await client.get("/v1/runs/same/state?tick=0")).headers["etag"])
        assert (await client.delete("/v1/runs/same")).status_code == 204
    assert marks[0] != marks[1]


@pytest.mark.parametrize("filters", ["order=", "order=created_at&order=-created_at", "order=run_id"])
async def test_an_order_that_is_not_known_is_refused(client: httpx2.AsyncClient, filters: str) -> None:
    assert (await client.get(f"/v1/runs?{filters}")).status_code == 400


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("tags", {"a": 1}, "/tags"),
        ("tags", {"": "x"}, "/tags"),
        ("parameters", {}, "/parameters"),
        ("variables", {"a": 1}, "/variables"),
        ("input", [], "/input"),
    ],
)
async def test_a_refused_start_names_the_place(client: httpx2.AsyncClient, field: str, value: Any, path: str) -> None:
    body = {"workflow": "asks", "input": {"topic": "now"}, field: value}
    refused = await client.post("/v1/runs", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, path)


@pytest.mark.parametrize("idle", ["idle=true", "idle_duration_gt=1.0"])
async def test_no_handler_is_idle_in_a_status_that_is_not_known(
    served: Served, client: httpx2.AsyncClient, idle: str
) -> None:
    await client.post("/workflows/asks/run-nowait", json={"start_event": {"topic": "x"}, "handler_id": "h"})
    await served.until_waiting("h")
    response = await client.get(f"/handlers?{idle}&status=unheard-of")
    assert (response.status_code, response.json()) == (200, {"handlers": [], "next_cursor": None})

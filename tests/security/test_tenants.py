"""Tenants: a key that is limited to some workflows never sees, hears of, or moves anything of another one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from server_serving import Served, serving

from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.server.app import ROUTES

THEIRS, OURS, NOBODYS = "their-run", "our-run", "nobodys-run"
ENDLESS = {"/v1/changes"}
"""What has no end, so that a client that reads it whole never returns; test_changes.py has what a limited key sees."""
START = {"workflow": "asks", "input": {"topic": "their-topic"}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/runs/{run_id}/events": {"type": "Approval", "value": {"by": "x"}},
    "/v1/runs/{run_id}/fork": {"tick": 0},
    "/v1/runs/{run_id}/tags": {"tags": {"team": "x"}},
    "/events/{handler_id}": {"event": {"type": "Approval", "value": {"by": "x"}}},
    "/workflows/{name}/run": {},
    "/workflows/{name}/run-nowait": {},
    "/v1/schedules": {"workflow": "asks", "every": 60, "name": "theirs"},
    "/v1/definitions/{name}": {"definition": {"actions": {}}},
}


Two = tuple[Served, httpx2.AsyncClient, httpx2.AsyncClient]
"""A server, somebody with all rights, and somebody with all rights for the workflow `flow` only."""


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    """A server with a run of theirs and one of ours."""
    async with serving() as served:
        admin = await served.key("admin")
        limited = await served.key("admin", workflows=("flow",))
        async with served.client(admin) as all_of_it, served.client(limited) as client:
            assert (await all_of_it.post("/v1/runs", json={**START, "run_id": THEIRS})).status_code == 201
            assert (await client.post("/v1/runs", json={"workflow": "flow", "run_id": OURS})).status_code == 201
            await served.until_waiting(THEIRS)
            yield served, all_of_it, client


def told(answer: httpx2.Response, name: str) -> tuple[int, str]:
    """An answer without the name that was asked for, and without what every answer has of its own."""
    body = answer.text.replace(name, "NAME")
    if body.startswith("{"):
        found = json.loads(body)
        found.pop("request_id", None)
        body = json.dumps(found, sort_keys=True)
    return answer.status_code, body


def paths(*parameters: str) -> list[Any]:
    return [
        pytest.param(route.method, route.path, id=f"{route.method} {route.path}")
        for route in ROUTES
        if any(f"{{{name}}}" in route.path for name in parameters)
    ]


async def _answer(client: httpx2.AsyncClient, method: str, path: str, name: str) -> httpx2.Response:
    concrete = path
    for parameter in ("run_id", "handler_id", "name"):
        concrete = concrete.replace(f"{{{parameter}}}", name)
    body = BODIES.get(path) if method in ("POST", "PUT") else None
    return await client.request(method, concrete, **({"json": body} if body is not None else {}))


IMPORT = ("PUT", "/v1/runs/{run_id}/export")
"""Makes a run that is not there: its body is looked at first, so that both answers are the same refusal."""


@pytest.mark.parametrize(("method", "path"), [each for each in paths("run_id", "handler_id") if each.values != IMPORT])
async def test_a_run_of_others_is_as_unknown_as_one_that_is_not_there(two: Two, method: str, path: str) -> None:
    if "{token}" in path or "callback" in path:
        pytest.skip("open to whoever has its signed address")
    _, all_of_it, client = two
    theirs = await _answer(client, method, path, THEIRS)
    assert theirs.status_code == 404
    assert told(theirs, THEIRS) == told(await _answer(client, method, path, NOBODYS), NOBODYS)
    run = (await all_of_it.get(f"/v1/runs/{THEIRS}")).json()
    assert (run["status"], run["paused"], run["active_waiters"][0]["event_type"][-8:]) == ("running", False, "Approval")


@pytest.mark.parametrize(("method", "path"), paths("name"))
async def test_a_workflow_of_others_is_as_unknown_as_one_that_is_not_there(two: Two, method: str, path: str) -> None:
    _, all_of_it, client = two
    theirs = await _answer(client, method, path, "asks")
    assert theirs.status_code in (403, 404), theirs.text
    assert told(theirs, "asks") == told(await _answer(client, method, path, "nowhere"), "nowhere")
    assert "asks" in (await all_of_it.get("/workflows")).json()["workflows"]


async def test_lists_and_pages_show_none_of_others(two: Two) -> None:
    _, _, client = two
    for route in ROUTES:
        if route.method != "GET" or "{" in route.path or route.scope is None or route.path in ENDLESS:
            continue
        answer = await client.get(route.path)
        for word in (THEIRS, '"asks"', "their-topic", 'workflow="asks"'):
            assert word not in answer.text, (route.path, word)
    for query in ("", "?workflow=asks", "?workflow=asks&workflow=flow", "?status=running", "?waiting_for=Approval"):
        assert THEIRS not in (await client.get(f"/v1/runs{query}")).text, query
    for query in ("", "?workflow_name=asks", "?workflow_name=asks&workflow_name=flow", "?idle=true"):
        assert THEIRS not in (await client.get(f"/handlers{query}")).text, query


async def test_an_act_on_many_runs_reaches_none_of_others(two: Two) -> None:
    served, all_of_it, client = two
    for wanted in ({}, {"workflow": "asks"}, {"workflow": ["asks", "flow"]}, {"id_prefix": "their"}):
        for body in ({"dry_run": True}, {}):
            answer = await client.post("/v1/bulk", json={"action": "pause", "filter": wanted, **body})
            assert answer.status_code == 200
            assert THEIRS not in answer.text
            assert answer.json()["matched"] == (1 if wanted in ({}, {"workflow": ["asks", "flow"]}) else 0)
    assert (await all_of_it.get(f"/v1/runs/{THEIRS}")).json()["paused"] is False
    await served.until_waiting(THEIRS)


async def test_a_cursor_of_somebody_else_does_not_widen_what_is_seen(
    two: Two,
) -> None:
    _, all_of_it, client = two
    cursor = (await all_of_it.get("/v1/runs?limit=1")).json()["next_cursor"]
    assert (await client.get(f"/v1/runs?limit=1&cursor={cursor}")).status_code == 400
    cursor = (await all_of_it.get("/handlers?limit=1")).json()["next_cursor"]
    assert THEIRS not in (await client.get(f"/handlers?limit=1&cursor={cursor}")).text


async def test_nothing_of_others_is_started(two: Two) -> None:
    served, all_of_it, client = two
    before = len((await all_of_it.get("/v1/runs")).json()["items"])
    refusals = [await client.post("/v1/runs", json={**START, "workflow": name}) for name in ("asks", "nowhere")]
    assert [answer.status_code for answer in refusals] == [403, 403]
    assert told(refusals[0], "asks") == told(refusals[1], "nowhere")
    # The id of one of their runs does not make it ours, and does not tell whose it is.
    taken = await client.post("/v1/runs", json={"workflow": "flow", "run_id": THEIRS})
    assert taken.status_code == 409
    assert "asks" not in taken.text
    taken = await client.post("/workflows/flow/run-nowait", json={"handler_id": THEIRS})
    assert taken.status_code == 409
    assert "asks" not in taken.text
    taken = await client.post(f"/v1/runs/{OURS}/fork", json={"tick": 0, "run_id": THEIRS})
    assert taken.status_code == 409
    assert "asks" not in taken.text
    assert len((await all_of_it.get("/v1/runs")).json()["items"]) == before
    await served.until_waiting(THEIRS)


async def test_an_answer_that_is_kept_is_kept_for_one_key_only(
    two: Two,
) -> None:
    _, all_of_it, client = two
    same = {"Idempotency-Key": "same"}
    first = await all_of_it.post("/v1/runs", json=START, headers=same)
    assert first.status_code == 201
    answer = await client.post("/v1/runs", json=START, headers=same)
    assert answer.status_code == 403
    assert first.json()["run_id"] not in answer.text


async def test_the_workflows_of_a_key_come_from_the_store_alone(
    two: Two,
) -> None:
    _, _, client = two
    claims = {"X-Workflow": "asks", "X-Tenant": "asks", "X-Loom-Workflows": "asks", "X-Scopes": "admin"}
    assert (await client.get(f"/v1/runs/{THEIRS}", headers=claims)).status_code == 404
    assert (await client.get(f"/v1/runs/{THEIRS}?workflow=asks")).status_code in (400, 404)


async def test_schedules_of_others_are_as_unknown_as_those_that_are_not_there(two: Two) -> None:
    _, all_of_it, client = two
    theirs = {"name": "their-schedule", "workflow": "asks", "every": 3600, "input": {"topic": "their-topic"}}
    assert (await all_of_it.post("/v1/schedules", json=theirs)).status_code == 201
    assert "their-schedule" not in (await client.get("/v1/schedules")).text
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")):
        answers = [
            await client.request(method, f"/v1/schedules/{name}{path}") for name in ("their-schedule", "no-schedule")
        ]
        assert answers[0].status_code == 404, (method, path)
        assert told(answers[0], "their-schedule") == told(answers[1], "no-schedule")
    assert (await client.post("/v1/schedules", json={**theirs, "name": "new"})).status_code == 403
    # To give one of theirs another workflow would take it from them.
    stolen = await client.post("/v1/schedules", json={**theirs, "workflow": "flow"})
    assert stolen.status_code == 409
    assert "asks" not in stolen.text
    assert (await all_of_it.get("/v1/schedules/their-schedule")).json()["workflow"] == "asks"


@pytest.mark.parametrize("named", ["asks", "@triggerBody()?['w']", "@concat('as', 'ks')"])
async def test_what_a_flow_starts_is_not_a_way_around_the_limits_of_a_key(two: Two, named: str) -> None:
    _, all_of_it, client = two
    before = len((await all_of_it.get("/v1/runs?workflow=asks")).json()["items"])
    action = {"type": "workflow", "inputs": {"workflow": named, "body": {"topic": "now"}}, "runAfter": {}}
    inner = {"type": "Scope", "actions": {"Inner": action}, "runAfter": {}}
    for actions in ({"Attack": action}, {"Outer": inner}):
        document = {"definition": {"triggers": {"manual": {"type": "Request"}}, "actions": actions}}
        answer = await client.put("/v1/definitions/flow", json=document)
        assert answer.status_code in (403, 409), answer.text
        await client.post("/v1/runs", json={"workflow": "flow", "input": {"w": "asks"}})
    assert len((await all_of_it.get("/v1/runs?workflow=asks")).json()["items"]) == before


async def test_a_split_request_starts_nothing_of_others(two: Two) -> None:
    _, all_of_it, client = two
    for name in ("asks", "nowhere"):
        for path in (f"/v1/definitions/{name}/invoke", f"/v1/definitions/{name}/invoke/x"):
            assert (await client.post(path, json=[{"workflow": "asks"}] * 3)).status_code == 403
    assert len((await all_of_it.get("/v1/runs?workflow=asks")).json()["items"]) == 1


async def test_a_child_of_theirs_does_not_tell_whose_it_is(two: Two) -> None:
    served, all_of_it, client = two

    class Parent(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=await ctx.run_child("flow"))

    served.runtime.register(Parent(), name="parent")
    await all_of_it.post("/v1/runs", json={"workflow": "parent", "run_id": "their-parent"})
    children: list[Any] = []
    async with asyncio.timeout(60):
        while not children:
            await asyncio.sleep(0.01)  # the server needs turns to start it
            children = (await all_of_it.get("/v1/runs?parent_id=their-parent")).json()["items"]
    assert children[0]["parent_id"] == "their-parent"
    child = children[0]["run_id"]
    assert (await client.get(f"/v1/runs/{child}")).json()["parent_id"] is None
    for path in ("/v1/runs", "/handlers", f"/v1/runs/{child}/history", f"/v1/runs/{child}/state"):
        assert '"their-parent"' not in (await client.get(path)).text, path


@pytest.mark.parametrize(
    ("path", "field", "body"),
    [
        ("/v1/runs", "run_id", {"workflow": "flow"}),
        (f"/v1/runs/{OURS}/fork", "run_id", {"tick": 0}),
        ("/workflows/flow/run-nowait", "handler_id", {}),
    ],
)
async def test_no_caller_takes_the_id_of_a_notice(two: Two, path: str, field: str, body: dict[str, Any]) -> None:
    """A notice that finds its id taken would not tell the operator of a failed run."""
    _, _, client = two
    answer = await client.post(path, json={**body, field: "loom.problem:webhook:1"})
    assert answer.status_code == 400
    assert "'loom.problem:webhook:1' is kept for Loom's own runs: choose another one." in answer.text


async def test_counts_are_of_the_workflows_that_a_key_is_good_for(two: Two) -> None:
    _, admin, client = two
    whole, own = (await admin.get("/v1/counts")).json(), (await client.get("/v1/counts")).json()
    assert {each["workflow"] for each in whole["workflows"]} >= {"asks", "flow"}
    assert [each["workflow"] for each in own["workflows"]] == ["flow"]
    assert 0 < own["total"] < whole["total"]
    asked = (await client.get("/v1/counts?workflow=asks")).json()
    assert (asked["total"], asked["workflows"]) == (0, [])

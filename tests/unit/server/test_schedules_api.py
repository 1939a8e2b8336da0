"""Schedules over HTTP: made, replaced, paused, listed and ended; and what of them is not for everybody."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from server_serving import Served, serving

from loom.flows.calls import MASK

HOURLY = {"name": "tea-time", "workflow": "asks", "every": 3600, "input": {"topic": "tea"}}


async def made(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/schedules", json={**HOURLY, **body})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_a_schedule_is_made_once_and_replaced_by_another(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/schedules", json=HOURLY)
    assert answer.status_code == 201
    found = answer.json()
    assert (found["name"], found["workflow"], found["input"]) == ("tea-time", "asks", {"topic": "tea"})
    assert found["next_at"].endswith("Z")
    assert (found["last_at"], found["last_run_id"], found["paused"], found["catch_up"]) == (None, None, False, False)
    same = await client.post("/v1/schedules", json=HOURLY)
    assert (same.status_code, same.json()["run_id"]) == (200, found["run_id"])
    other = await client.post("/v1/schedules", json={**HOURLY, "input": {"topic": "coffee"}})
    assert (other.status_code, other.json()["input"]) == (200, {"topic": "coffee"})
    assert other.json()["run_id"] != found["run_id"]
    assert (await client.get("/v1/schedules/tea-time")).json() == other.json()


async def test_cron_and_recurrence_say_when_too(client: httpx2.AsyncClient) -> None:
    cron = await made(client, name="a", every=None, cron="0 8 * * 1", time_zone="Europe/Vienna")
    assert cron["recurrence"] == {"cron": "0 8 * * 1", "timeZone": "Europe/Vienna"}
    weekly = {"frequency": "Week", "interval": 1}
    assert (await made(client, name="b", every=None, recurrence=weekly))["recurrence"] == weekly


async def test_pause_resume_and_delete(client: httpx2.AsyncClient) -> None:
    assert (await made(client, paused=True))["paused"] is True
    assert (await made(client))["paused"] is True  # what is not said does not change
    resumed = await client.post("/v1/schedules/tea-time/resume")
    assert (resumed.status_code, resumed.json()["paused"]) == (202, False)
    paused = await client.post("/v1/schedules/tea-time/pause")
    assert (paused.status_code, paused.json()["paused"]) == (202, True)
    assert (await client.delete("/v1/schedules/tea-time")).status_code == 204
    for gone in (
        await client.get("/v1/schedules/tea-time"),
        await client.delete("/v1/schedules/tea-time"),
        await client.post("/v1/schedules/tea-time/pause"),
        await client.get("/v1/schedules/%00"),
    ):
        assert (gone.status_code, gone.json()["code"]) == (404, "schedule-not-found")
    assert (await client.get("/v1/schedules")).json() == {"items": [], "next_cursor": None}


async def test_pages_have_all_of_them_by_name(client: httpx2.AsyncClient) -> None:
    for name in ("c", "a", "b"):
        await made(client, name=name)
    first = (await client.get("/v1/schedules?limit=2")).json()
    rest = (await client.get(f"/v1/schedules?limit=2&cursor={first['next_cursor']}")).json()
    assert [each["name"] for each in (*first["items"], *rest["items"])] == ["a", "b", "c"]
    assert rest["next_cursor"] is None
    assert (await client.get("/v1/schedules?cursor=nonsense")).status_code == 400
    assert (await client.get("/v1/schedules?status=x")).status_code == 400


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"every": "soon"}, "/every"),
        ({"every": True}, "/every"),
        ({"name": "a b"}, "/name"),
        ({"name": "a:7"}, ""),
        ({"catch_up": "yes"}, "/catch_up"),
        ({"tags": {"a": 1}}, "/tags"),
        ({"cron": "0 8 * * 1"}, ""),
        ({"every": -1}, "/every"),
        ({"input": {"times": "x"}}, "/input/topic"),
        ({"colour": "red"}, "/colour"),
    ],
)
async def test_what_cannot_be_a_schedule_is_refused_with_its_place(wrong: dict[str, Any], path: str) -> None:
    async with serving() as served, served.client() as client:
        answer = await client.post("/v1/schedules", json={**HOURLY, **wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")
        assert answer.json()["errors"][0]["path"] == path
        assert (await client.get("/v1/schedules")).json()["items"] == []


async def test_a_workflow_that_is_not_served_cannot_be_scheduled(client: httpx2.AsyncClient) -> None:
    for workflow in ("nobody", "loom.schedule"):
        answer = await client.post("/v1/schedules", json={**HOURLY, "workflow": workflow})
        assert (answer.status_code, answer.json()["code"]) == (404, "definition-not-found")


async def test_a_schedule_starts_runs_and_tells_of_the_last_one() -> None:
    async with serving() as served, served.client() as client:
        schedule = await made(client, every=1, input={"topic": "now"}, tags={"team": "a"})
        async with asyncio.timeout(60):
            while (found := (await client.get("/v1/schedules/tea-time")).json())["last_run_id"] is None:
                news = served.runtime.watchers.subscribe(schedule["run_id"])
                await asyncio.wait([news], timeout=0.2)
        run = (await client.get(f"/v1/runs/{found['last_run_id']}")).json()
        assert (run["workflow"], run["tags"]["team"]) == ("asks", "a")
        assert found["last_at"] < found["next_at"]
        assert found["last_error"] is None


async def test_secure_parameters_are_masked(client: httpx2.AsyncClient) -> None:
    body = {"name": "f", "workflow": "flow", "every": 3600, "parameters": {"token": "hush-hush"}, "input": {"a": 1}}
    answer = await client.post("/v1/schedules", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["input"] == {"a": 1}
    for shown in (answer.text, (await client.get("/v1/schedules")).text, (await client.get("/v1/schedules/f")).text):
        assert "hush-hush" not in shown
        assert MASK in shown


async def test_the_run_of_a_schedule_does_not_show_them_either(served: Served, client: httpx2.AsyncClient) -> None:
    await made(client, name="f", workflow="flow", parameters={"token": "hush-hush"})
    async with asyncio.timeout(60):
        while not (state := (await client.get("/v1/runs/schedule:f/state")).json()).get("store"):
            await asyncio.wait([served.runtime.watchers.subscribe("schedule:f")], timeout=0.05)
    assert state["store"]["definition"] == MASK
    assert state["store"]["next_at"] is not None
    for path in ("", "/history?commands=true", "/state", "/state?tick=0"):
        assert "hush-hush" not in (await client.get(f"/v1/runs/schedule:f{path}")).text
    history = (await client.get("/v1/runs/schedule:f/history")).json()["items"]
    assert history[0]["tick"]["event"]["fields"] == MASK


async def test_keys_see_schedules_of_their_workflows_only(served: Served) -> None:
    admin, reader = await served.key("admin"), await served.key("read")
    limited = await served.key("admin", workflows=("flow",))
    async with served.client(admin) as client:
        await made(client)
    async with served.client(reader) as client:
        assert len((await client.get("/v1/schedules")).json()["items"]) == 1
        for refused in (
            await client.post("/v1/schedules", json=HOURLY),
            await client.delete("/v1/schedules/tea-time"),
            await client.post("/v1/schedules/tea-time/pause"),
        ):
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    async with served.client(limited) as client:
        assert (await client.get("/v1/schedules")).json()["items"] == []
        assert (await client.get("/v1/schedules/tea-time")).status_code == 404
        assert (await client.delete("/v1/schedules/tea-time")).status_code == 404
        assert (await client.post("/v1/schedules", json=HOURLY)).status_code == 403
        taken = await client.post("/v1/schedules", json={**HOURLY, "workflow": "flow"})
        assert (taken.status_code, taken.json()["code"]) == (409, "name-taken")
    async with served.client() as client:
        assert (await client.get("/v1/schedules")).status_code == 401

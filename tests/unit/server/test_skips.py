"""Delays ended over HTTP: what is taken, what is refused, who may, and what the state says of timers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from server_serving import Served

from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Naps(Workflow):
    """Fails once, and sleeps once, each for an hour."""

    @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(3)))
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number == 0:
            raise ConnectionError("not yet")
        await ctx.sleep(3600)
        return StopEvent(result="rested")


async def napping(served: Served, client: httpx2.AsyncClient, run_id: str = "n") -> None:
    served.runtime.register(Naps(timeout=9000), name="naps")
    assert (await client.post("/v1/runs", json={"workflow": "naps", "run_id": run_id})).status_code == 201
    await delayed(client, run_id, "retry")


async def delayed(client: httpx2.AsyncClient, run_id: str, purpose: str) -> list[dict[str, Any]]:
    """The timers of a run, once one of them has a purpose."""
    async with asyncio.timeout(60):
        while True:
            timers = (await client.get(f"/v1/runs/{run_id}/state")).json()["timers"]
            if purpose in [timer["purpose"] for timer in timers]:
                return timers
            await asyncio.sleep(0.01)


async def test_delays_are_skipped_one_after_the_other(served: Served, client: httpx2.AsyncClient) -> None:
    await napping(served, client)
    timers = await delayed(client, "n", "retry")
    assert {timer["purpose"]: timer["skippable"] for timer in timers} == {"retry": True, "timeout": False}
    answer = await client.post("/v1/runs/n/skip")
    assert (answer.status_code, answer.json()["run_id"]) == (202, "n")
    timers = await delayed(client, "n", "sleep")
    [sleep] = [timer["timer"] for timer in timers if timer["skippable"]]
    assert (await client.post("/v1/runs/n/skip", json={"timer": sleep})).status_code == 202
    ended = (await client.get("/v1/runs/n?wait=10")).json()
    assert (ended["status"], ended["result"]["value"]["result"]) == ("completed", "rested")
    ticks = (await client.get("/v1/runs/n/history?type=TickSkip")).json()["items"]
    assert [item["tick"]["timer"] for item in ticks] == [None, sleep]
    assert (await client.get("/v1/runs/n/replay")).json()["replay"] == "same"
    assert (await client.post("/v1/runs/n/skip")).json()["code"] == "run-finished"


async def test_what_cannot_be_skipped_is_refused(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "w"})
    await served.until_waiting("w")
    refused = await client.post("/v1/runs/w/skip")
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing-to-skip")
    assert "no step of it sleeps" in refused.json()["detail"]
    await napping(served, client)
    timers = await delayed(client, "n", "retry")
    [timeout] = [timer["timer"] for timer in timers if timer["purpose"] == "timeout"]
    for number in (timeout, 999):
        assert (await client.post("/v1/runs/n/skip", json={"timer": number})).json()["code"] == "nothing-to-skip"
    for body in ({"timer": 0}, {"timer": "x"}, {"other": 1}):
        assert (await client.post("/v1/runs/n/skip", json=body)).status_code == 400
    assert (await client.post("/v1/runs/nobody/skip")).json()["code"] == "run-not-found"
    past = (await client.get("/v1/runs/n/history?type=TickSkip")).json()["items"]
    assert past == []


async def test_a_repeated_request_skips_once(served: Served, client: httpx2.AsyncClient) -> None:
    await napping(served, client)
    same = {"Idempotency-Key": "one"}
    first = await client.post("/v1/runs/n/skip", headers=same)
    assert first.status_code == 202
    await delayed(client, "n", "sleep")
    again = await client.post("/v1/runs/n/skip", headers=same)
    assert (again.status_code, again.headers["Idempotent-Replay"]) == (202, "true")
    assert len((await client.get("/v1/runs/n/history?type=TickSkip")).json()["items"]) == 1


async def test_a_skip_is_recorded_and_needs_the_scope_of_starts(served: Served, client: httpx2.AsyncClient) -> None:
    await napping(served, client)
    async with (
        served.client(await served.key("read", "event")) as reader,
        served.client(await served.key("start")) as operator,
        served.client(await served.key("admin")) as admin,
    ):
        assert (await reader.post("/v1/runs/n/skip")).status_code == 403
        assert (await operator.post("/v1/runs/n/skip")).status_code == 202
        acts = (await admin.get("/v1/audit")).json()["items"]
        assert [(act["action"], act["target"], act["outcome"]) for act in acts] == [
            ("run.skip", "n", 202),
            ("run.skip", "n", 403),
        ]


async def test_the_times_of_the_engine_are_its_own(served: Served, client: httpx2.AsyncClient) -> None:
    made = {"name": "daily", "workflow": "asks", "every": 3600, "input": {"topic": "now"}}
    assert (await client.post("/v1/schedules", json=made)).status_code == 201
    refused = await client.post("/v1/runs/schedule:daily/skip")
    assert (refused.status_code, refused.json()["code"]) == (409, "nothing-to-skip")

"""Lists of runs by what holds them and in other orders, and tags that change after the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_serving import Served

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.server import ServerSettings


class Answer(HumanResponseEvent):
    text: str = ""


class Held(Workflow):
    """Waits, sleeps or ends, as it is told to."""

    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        match ev.how:
            case "wait":
                await ctx.wait_for_event(Answer)
            case "sleep":
                await ctx.sleep(3600)
            case _:
                pass
        return StopEvent(result="done")


@pytest.fixture
async def held(served: Served) -> AsyncIterator[Served]:
    served.runtime.register(Held(timeout=None), name="held")
    for run_id, how in (("a-wait", "wait"), ("a-sleep", "sleep"), ("b-end", "end")):
        await served.runtime.start("held", {"how": how}, run_id=run_id)
    async with asyncio.timeout(20):
        while [run async for run in served.runtime.list(status="running", idle=False, asleep=False)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while (await served.runtime.get("a-wait")).idle_since is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return served


async def listed(client: httpx2.AsyncClient, query: str) -> list[str]:
    answer = await client.get(f"/v1/runs?{query}")
    assert answer.status_code == 200, answer.text
    return [item["run_id"] for item in answer.json()["items"]]


async def test_filters_find_what_holds_a_run(held: Served, client: httpx2.AsyncClient) -> None:
    assert await listed(client, "asleep=true") == ["a-sleep"]
    assert await listed(client, "waiting=true") == ["a-wait"]
    assert await listed(client, "waiting=false&status=running") == ["a-sleep"]
    assert await listed(client, "id_prefix=a-&order=created_at") == ["a-wait", "a-sleep"]
    assert (await client.get("/v1/runs/a-sleep")).json()["asleep"] is True
    assert (await client.get("/v1/runs/a-wait")).json()["asleep"] is False
    named = [run.run_id async for run in held.runtime.list(asleep=True)]
    assert named == ["a-sleep"]


async def test_a_list_tells_when_a_run_that_is_asleep_goes_on(held: Served, client: httpx2.AsyncClient) -> None:
    due = (await client.get("/v1/runs/a-sleep")).json()["next_timer_at"]
    assert due is not None
    [listed_run] = (await client.get("/v1/runs?asleep=true")).json()["items"]
    assert listed_run["next_timer_at"] == due
    [waiting] = (await client.get("/v1/runs?waiting=true")).json()["items"]
    assert waiting["next_timer_at"] == waiting["active_waiters"][0]["deadline"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_lists_and_changes_have_the_timer_of_a_run_that_is_in_no_memory(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url, idle_timeout=0) as runtime, Served(runtime, ServerSettings()).client() as client:
        runtime.register(Held(timeout=None), name="held")
        await runtime.start("held", {"how": "sleep"}, run_id="a-sleep")
        async with asyncio.timeout(20):
            while runtime.figures["released"] < 1:  # noqa: ASYNC110 - a release has no event of its own
                await asyncio.sleep(0.01)
        due = (await client.get("/v1/runs/a-sleep")).json()["next_timer_at"]
        assert due is not None
        [found] = (await client.get("/v1/runs")).json()["items"]
        assert (found["in_memory"], found["next_timer_at"]) == (False, due)
        async with asyncio.timeout(20), aclosing(runtime.changes()) as changes:
            async for change in changes:
                if change.event == "counts":
                    await runtime.set_tags("a-sleep", {"seen": "yes"})
                elif change.run is not None:
                    assert (change.run.tags["seen"], change.run.next_timer_at) == ("yes", datetime.fromisoformat(due))
                    break


async def test_lists_are_ordered_by_the_last_change_page_by_page(held: Served, client: httpx2.AsyncClient) -> None:
    await held.runtime.send_event("a-wait", Answer())
    async with asyncio.timeout(20):
        while (await held.runtime.get("a-wait")).status == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    newest = await listed(client, "order=-updated_at")
    assert newest[0] == "a-wait"
    assert await listed(client, "order=updated_at") == newest[::-1]
    found: list[str] = []
    query = "/v1/runs?order=-updated_at&limit=1"
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get(query + (f"&cursor={cursor}" if cursor else ""))).json()
        found += [item["run_id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert found == newest
    moment = (await client.get("/v1/runs/a-wait")).json()["created_at"].replace("+", "%2B")
    assert sorted(await listed(client, f"updated_after={moment}")) == sorted(newest)
    assert await listed(client, "updated_after=2999-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    "query", ["order=status", "asleep=maybe", "waiting=1", "id_prefix=a%2Fb", "id_prefix=", "updated_after=now"]
)
async def test_filters_that_cannot_be_are_refused(served: Served, client: httpx2.AsyncClient, query: str) -> None:
    answer = await client.get(f"/v1/runs?{query}")
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:loom:problem:invalid-request")


async def test_a_cursor_is_good_for_its_order_only(held: Served, client: httpx2.AsyncClient) -> None:
    cursor = (await client.get("/v1/runs?limit=1")).json()["next_cursor"]
    assert (await client.get(f"/v1/runs?limit=1&order=-updated_at&cursor={cursor}")).status_code == 400


async def test_tags_are_replaced_and_found(held: Served, client: httpx2.AsyncClient) -> None:
    before = (await client.get("/v1/runs/b-end")).headers["etag"]
    answer = await client.put("/v1/runs/b-end/tags", json={"tags": {"team": "x", "empty": ""}})
    assert (answer.status_code, answer.json()["tags"]) == (200, {"team": "x", "empty": ""})
    assert answer.headers["etag"] != before
    assert await listed(client, "tag=team=x") == ["b-end"]
    await client.put("/v1/runs/b-end/tags", json={"tags": {"team": "y"}})
    assert (await listed(client, "tag=team=x"), await listed(client, "tag=team=y")) == ([], ["b-end"])
    assert (await client.put("/v1/runs/b-end/tags", json={"tags": {}})).json()["tags"] == {}
    fresh = await client.get("/v1/runs/b-end", headers={"If-None-Match": answer.headers["etag"]})
    assert fresh.status_code == 200


async def test_a_run_in_memory_keeps_its_new_tags(held: Served, client: httpx2.AsyncClient) -> None:
    await client.put("/v1/runs/a-wait/tags", json={"tags": {"team": "x"}})
    await held.runtime.send_event("a-wait", Answer())
    ended = (await client.get("/v1/runs/a-wait?wait=20")).json()
    assert (ended["status"], ended["tags"]) == ("completed", {"team": "x"})


@pytest.mark.parametrize(
    "body",
    [{}, {"tags": None}, {"tags": {"a": 1}}, {"tags": {"": "x"}}, {"tags": {"handler": "x"}}, {"tags": {}, "more": 1}],
)
async def test_tags_that_cannot_be_are_refused(held: Served, client: httpx2.AsyncClient, body: Any) -> None:
    answer = await client.put("/v1/runs/b-end/tags", json=body)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:loom:problem:invalid-request")
    assert (await client.put("/v1/runs/none/tags", json={"tags": {}})).status_code == 404

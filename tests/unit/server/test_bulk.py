"""One act on many runs over HTTP: what is counted, done, refused and recorded, and for whom."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from server_serving import Served

from loom.api.bulk import Bulk
from loom.runtime.durable.bulk import BulkWork, Unguarded
from loom.store.run_filters import run_query

NDJSON = {"Accept": "application/x-ndjson"}


async def many(served: Served, count: int, topic: str = "tea", prefix: str = "r") -> None:
    for number in range(count):
        run_id = f"{prefix}-{number}"
        handler = await served.runtime.start("asks", {"topic": topic}, run_id=run_id, tags={"kind": prefix})
        if topic == "tea":
            await served.until_waiting(run_id)
        elif topic == "now":
            await handler


async def acted(client: httpx2.AsyncClient, action: str, filters: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await client.post("/v1/bulk", json={"action": action, "filter": filters, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_dry_run_counts_and_changes_nothing(served: Served, client: httpx2.AsyncClient) -> None:
    await many(served, 3)
    told = await acted(client, "cancel", {"workflow": "asks", "status": ["running"]}, dry_run=True)
    assert (told["matched"], told["done"], told["finished"], told["dry_run"]) == (3, 0, True, True)
    assert sorted(told["sample"]) == ["r-0", "r-1", "r-2"]
    assert (await client.get("/v1/runs/r-0")).json()["status"] == "running"
    assert (await client.get("/v1/audit")).json()["items"] == []


async def test_each_act_reaches_all_that_match_and_no_other(served: Served, client: httpx2.AsyncClient) -> None:
    await many(served, 3)
    await many(served, 1, prefix="other")
    assert (await acted(client, "pause", {"tag": "kind=r"}))["done"] == 3
    assert (await acted(client, "resume", {"id_prefix": "r-", "status": "running"}))["done"] == 3
    told = await acted(client, "cancel", {"tag": ["kind=r"]}, reason="enough")
    assert (told["matched"], told["done"], told["failed"], told["finished"]) == (3, 3, [], True)
    for number in range(3):
        assert (await client.get(f"/v1/runs/r-{number}?wait=10")).json()["status"] == "cancelled"
    assert (await client.get("/v1/runs/other-0")).json()["status"] == "running"
    reasons = (await client.get("/v1/runs/r-0/history?type=TickCancelRun")).json()["items"]
    assert reasons[0]["tick"]["reason"] == "enough"
    assert (await acted(client, "delete", {"status": "cancelled"}))["done"] == 3
    assert (await client.get("/v1/runs/r-0")).status_code == 404
    assert (await acted(client, "cancel", {}))["matched"] == 1


async def test_what_fails_is_named_and_the_others_go_on(served: Served, client: httpx2.AsyncClient) -> None:
    await many(served, 2)
    await many(served, 2, topic="now", prefix="done")
    told = await acted(client, "cancel", {"workflow": "asks"})
    assert (told["matched"], told["done"], told["failed_count"], told["finished"]) == (4, 2, 2, True)
    assert {each["run_id"]: each["code"] for each in told["failed"]} == {
        "done-0": "run-finished",
        "done-1": "run-finished",
    }
    assert "has ended (completed)" in told["failed"][0]["message"]
    running = await acted(client, "retry", {"id_prefix": "done"})
    assert [each["code"] for each in running["failed"]] == ["run-finished"] * 2


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"action": "delete", "filter": {}}, "/filter"),
        ({"action": "delete", "filter": {"status": None}}, "/filter"),
        ({"action": "cancel"}, "/filter"),
        ({"action": "cancel", "filter": {"nothing": 1}}, "/filter"),
        ({"action": "cancel", "filter": {"order": "created_at"}}, "/filter"),
        ({"action": "cancel", "filter": {"status": "lost"}}, "/filter"),
        ({"action": "cancel", "filter": {"tag": {"a": 1}}}, "/filter"),
        ({"action": "explode", "filter": {}}, "/action"),
    ],
)
async def test_what_is_not_clear_is_refused(
    served: Served, client: httpx2.AsyncClient, body: dict[str, Any], path: str
) -> None:
    await many(served, 1)
    answer = await client.post("/v1/bulk", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (400, path)
    assert (await client.get("/v1/runs/r-0")).json()["status"] == "running"


async def test_progress_comes_line_by_line(served: Served, client: httpx2.AsyncClient) -> None:
    await many(served, 2)
    answer = await client.post("/v1/bulk", json={"action": "cancel", "filter": {"workflow": "asks"}}, headers=NDJSON)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert (lines[0]["matched"], lines[0]["done"], lines[0]["finished"]) == (2, 0, False)
    assert (lines[-1]["done"], lines[-1]["finished"]) == (2, True)


async def test_a_limited_key_reaches_its_own_runs_only(served: Served, client: httpx2.AsyncClient) -> None:
    await many(served, 2)
    await client.post("/v1/runs", json={"workflow": "flow", "run_id": "f"})
    async with (
        served.client(await served.key("read", "start", workflows=("flow",))) as limited,
        served.client(await served.key("read", "event")) as reader,
        served.client(await served.key("admin")) as admin,
    ):
        assert (await reader.post("/v1/bulk", json={"action": "cancel", "filter": {}})).status_code == 403
        refused = await limited.post("/v1/bulk", json={"action": "delete", "filter": {"status": "failed"}})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        told = await acted(limited, "cancel", {"workflow": "asks"})
        assert (told["matched"], told["sample"]) == (0, [])
        told = await acted(limited, "cancel", {})
        assert (told["matched"], told["done"], told["sample"]) == (1, 1, ["f"])
        assert (await admin.get("/v1/runs/r-0")).json()["status"] == "running"
        acts = [(act["action"], act["target"]) for act in (await admin.get("/v1/audit")).json()["items"]]
        assert acts[:2] == [("bulk.cancel", "1 of 1 runs"), ("run.cancel", "f")]


async def test_runs_of_the_engine_are_left_alone(served: Served, client: httpx2.AsyncClient) -> None:
    made = {"name": "daily", "workflow": "asks", "every": 3600, "input": {"topic": "now"}}
    assert (await client.post("/v1/schedules", json=made)).status_code == 201
    assert (await acted(client, "cancel", {"status": "running"}))["matched"] == 0
    assert (await client.get("/v1/runs/schedule:daily")).json()["status"] == "running"


async def test_two_thousand_runs_are_cancelled_with_progress(served: Served, client: httpx2.AsyncClient) -> None:
    del client
    runtime = served.runtime
    for number in range(2000):  # nobody works for it: they wait for a worker
        await runtime.start("elsewhere", {}, run_id=f"w-{number}")
    told: list[Bulk] = [each async for each in runtime.bulk("cancel", {"workflow": "elsewhere"})]
    assert (told[0].matched, told[0].done) == (2000, 0)
    assert (told[-1].done, told[-1].failed_count, told[-1].finished) == (2000, 0, True)
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert len(told[-1].sample) == 20


async def test_a_stop_tells_where_it_was(served: Served, client: httpx2.AsyncClient) -> None:
    del client

    class Stops(Unguarded):
        left = 1

        def goes_on(self) -> bool:
            self.left -= 1
            return self.left >= 0

    for number in range(40):
        await served.runtime.start("elsewhere", {}, run_id=f"w-{number}")
    query = run_query({"workflow": "elsewhere"}, served.runtime.now())
    work = BulkWork(served.runtime, "cancel", guard=Stops())
    told = [each async for each in work.progress(query)]
    assert (told[-1].matched, told[-1].done, told[-1].finished) == (40, 32, False)

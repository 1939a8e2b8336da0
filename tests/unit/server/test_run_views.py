"""A run over time over HTTP: its graph with counts, its timeline, iterations of loops, and one repetition."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from server_serving import Served, serving

from loom import Event, StartEvent, StopEvent, Workflow, retry_policy, step, stop_after_attempt, wait_fixed

NESTED: dict[str, Any] = {
    "definition": {
        "actions": {
            "Rows": {
                "type": "Foreach",
                "foreach": "@createArray(10, 20, 30)",
                "runtimeConfiguration": {"concurrency": {"repetitions": 1}},
                "actions": {
                    "N": {"type": "Compose", "inputs": "@item()"},
                    "Twice": {
                        "type": "Until",
                        "expression": "@equals(iterationIndexes('Twice'), 1)",
                        "limit": {"count": 5, "timeout": "PT1H"},
                        "actions": {
                            "Product": {"type": "Compose", "inputs": "@mul(outputs('N'), iterationIndexes('Twice'))"}
                        },
                        "runAfter": {"N": ["Succeeded"]},
                    },
                },
                "runAfter": {},
            },
            "Go": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {"Rows": ["Succeeded"]}},
        }
    }
}


class Item(Event):
    n: int


class Total(Event):
    n: int


class Retries(Workflow):
    """Fans out to three items, of which one fails once."""

    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=n) for n in range(3)]

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(3)))
    async def work(self, ev: Item) -> Total:
        _calls.append(ev.n)
        if _calls.count(1) == 1 and ev.n == 1:
            raise ValueError("not yet")
        return Total(n=ev.n)

    @step
    async def join(self, evs: list[Total]) -> StopEvent:
        return StopEvent(result=sum(each.n for each in evs))


_calls: list[int] = []
"""The numbers of the items that were worked on, in this order."""


@pytest.fixture
async def nested(served: Served, client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A flow whose loops are over, and that waits."""
    put = await client.put("/v1/definitions/nested", json=NESTED)
    assert put.status_code in (200, 201), put.text
    assert (await client.post("/v1/runs", json={"workflow": "nested", "run_id": "n"})).status_code == 201
    await served.until_waiting("n")
    return client


async def get(client: httpx2.AsyncClient, address: str, /, **params: Any) -> Any:
    answer = await client.get(address, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_graph_counts_what_became_of_actions(nested: httpx2.AsyncClient) -> None:
    graph = await get(nested, "/v1/runs/n/graph")
    ids = {node["id"] for node in graph["nodes"]}
    counts = {each["node"]: each for each in graph["steps"]}
    assert set(counts) <= ids
    assert counts["N"]["completed"] == 3
    assert counts["Product"]["completed"] == 6
    assert counts["Twice"]["completed"] == 3
    assert counts["Rows"]["completed"] == 1
    assert (counts["Go"]["waiting"], counts["Go"]["attempt"]) == (1, None)
    assert [loop["name"] for loop in graph["loops"]] == ["Rows", "Twice"]
    begin = await get(nested, "/v1/runs/n/graph", tick=0)
    assert begin["tick"] == 0
    assert (await nested.get("/v1/runs/n/graph?tick=99")).status_code == 400
    assert (await nested.get("/v1/runs/none/graph")).status_code == 404


async def test_iterations_come_in_pages_newest_first(nested: httpx2.AsyncClient) -> None:
    first = await get(nested, "/v1/runs/n/iterations", path="Rows", limit=2)
    rest = await get(nested, "/v1/runs/n/iterations", path="Rows", limit=2, cursor=first["next_cursor"])
    assert [item["iteration"] for item in first["items"] + rest["items"]] == [2, 1, 0]
    assert rest["next_cursor"] is None
    assert {item["status"] for item in first["items"]} == {"complete"}
    inner = await get(nested, "/v1/runs/n/iterations", path="Rows[1]/Twice", order="iteration")
    assert [(each["iteration"], each["condition_result"]) for each in inner["items"]] == [(0, False), (1, True)]
    assert [each["result"] for each in inner["items"]] == [{"Product": 0}, {"Product": 20}]
    assert (await get(nested, "/v1/runs/n/iterations", path="Twice"))["items"][0]["result"] == {"Product": 30}
    for wrong in ("path=None", "path=N", "", "path=Rows&order=up", "path=Rows&cursor=x", "path=Rows&limit=0"):
        assert (await nested.get(f"/v1/runs/n/iterations?{wrong}")).status_code == 400, wrong
    foreign = f"path=Rows&order=iteration&cursor={first['next_cursor']}"
    assert (await nested.get(f"/v1/runs/n/iterations?{foreign}")).status_code == 400


async def test_names_with_slashes_are_no_paths(served: Served, client: httpx2.AsyncClient) -> None:
    inner = {"type": "foreach", "foreach": "@createArray(1, 2)", "actions": {"of/it": {"type": "compose", "inputs": 1}}}
    outer = {"type": "foreach", "foreach": "@createArray(7)", "actions": {"in/it": inner}}
    assert (await client.put("/v1/definitions/slashes", json={"actions": {"all/of": outer}})).status_code == 201
    assert (await client.post("/v1/runs?wait=60", json={"workflow": "slashes", "run_id": "s"})).status_code == 201
    for path, rounds in {"all/of": [0], "all/of[0]/in/it": [1, 0], "in/it": [1, 0]}.items():
        items = (await get(client, "/v1/runs/s/iterations", path=path))["items"]
        assert [each["iteration"] for each in items] == rounds, path
    [one] = (await get(client, "/v1/runs/s/actions", path="all/of[0]/in/it[1]/of/it"))["items"]
    assert (one["path"], one["outputs"]) == ("all/of[0]/in/it[1]/of/it", 1)
    for wrong in ("it", "of[0]/in/it", "all/of[0]/it", "/" * 600):
        assert (await client.get("/v1/runs/s/iterations", params={"path": wrong})).status_code == 400, wrong


async def test_one_repetition_of_an_action(nested: httpx2.AsyncClient) -> None:
    [one] = (await get(nested, "/v1/runs/n/actions", path="Rows[1]/Twice[0]/Product"))["items"]
    assert (one["path"], one["status"], one["outputs"]) == ("Rows[1]/Twice[0]/Product", "Succeeded", 0)
    [early] = (await get(nested, "/v1/runs/n/actions", path="Rows[0]/N"))["items"]
    assert (early["status"], early["outputs"], early["inputs"]) == ("Succeeded", 10, 10)
    [loop] = (await get(nested, "/v1/runs/n/actions", path="Rows[2]/Twice"))["items"]
    assert (loop["iterations"], loop["outputs"]) == (2, {"Product": 30})
    for gone in ("Rows[7]/N", "Rows[1]/Nothing", "Twice[0]/Product"):
        assert (await get(nested, "/v1/runs/n/actions", path=gone))["items"] == []


async def test_the_lanes_of_a_loop_share_its_iterations(nested: httpx2.AsyncClient) -> None:
    timeline = await get(nested, "/v1/runs/n/timeline")
    lanes = {lane["name"]: lane for lane in timeline["lanes"]}
    assert lanes["Rows"]["kind"] == lanes["Twice"]["kind"] == "loop"
    assert [bar["iteration"] for bar in lanes["Rows"]["bars"]] == [0, 1, 2]
    assert [bar["iteration"] for bar in lanes["Product"]["bars"]] == [0, 1] * 3
    [wait] = lanes["Go"]["bars"]
    assert (wait["kind"], wait["status"], wait["end"], wait["iteration"]) == ("wait", "running", None, None)
    one = await get(nested, "/v1/runs/n/timeline", lane="Product", offset=1, limit=2)
    assert [(lane["name"], lane["total"], len(lane["bars"])) for lane in one["lanes"]] == [("Product", 6, 2)]
    assert not timeline["partial"]
    for wrong in ("limit=2", "lane=N&limit=2001", "begin=soon", "begin=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z"):
        assert (await nested.get(f"/v1/runs/n/timeline?{wrong}")).status_code == 400, wrong


async def test_the_lanes_of_steps_have_attempts_and_queues(tmp_path: Any) -> None:
    _calls.clear()
    async with serving(f"sqlite:///{tmp_path}/x.db") as served, served.client() as client:
        served.runtime.register(Retries(), name="retries")
        await client.post("/v1/runs?wait=30", json={"workflow": "retries", "run_id": "r"})
        timeline = await get(client, "/v1/runs/r/timeline")
        lanes = {lane["name"]: lane for lane in timeline["lanes"]}
        assert list(lanes) == ["split", "work", "join"]
        work = [bar for bar in lanes["work"]["bars"] if bar["kind"] == "work"]
        assert sorted((bar["attempt"], bar["status"]) for bar in work) == [
            (1, "failed"),
            (1, "ok"),
            (1, "ok"),
            (2, "ok"),
        ]
        assert next(bar["error"] for bar in work if bar["status"] == "failed") == "ValueError: not yet"
        assert sum(bar["kind"] == "queue" for bar in lanes["work"]["bars"]) == 2
        counts = {each["node"]: each for each in (await get(client, "/v1/runs/r/graph"))["steps"]}
        assert (counts["work"]["completed"], counts["work"]["retries"], counts["work"]["failed"]) == (3, 1, 0)


async def test_a_lane_with_too_many_bars_has_their_density(
    nested: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.runtime.views.timeline.MOST_BARS", 12)
    lanes = {lane["name"]: lane for lane in (await get(nested, "/v1/runs/n/timeline"))["lanes"]}
    assert (lanes["Product"]["bars"], lanes["Product"]["total"]) == (None, 6)
    assert max(part["work"] for part in lanes["Product"]["density"]) >= 1
    assert len(lanes["Rows"]["bars"]) == 3


async def test_what_is_secure_is_masked(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={"workflow": "flow", "input": {"pin": "4711"}, "run_id": "f"})
    await served.until_waiting("f")
    for path in ("graph", "timeline"):
        assert "s3cret-4711" not in (await client.get(f"/v1/runs/f/{path}")).text
    assert (await client.get("/v1/runs/f/iterations?path=Wait")).status_code == 400

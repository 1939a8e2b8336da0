"""Data that is odd but allowed, or not allowed: no request makes the server fail."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from server_serving import Served

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.server.answers import JsonAnswer

ODD: list[Any] = [
    None, 0, -1, 1.5, 1e308, 10**30, -(10**30), True, "", "\0", "ü😀", "\u2028", [], [None], {}, {"": ""}, {"\0": "\0"},
    {"__is_pydantic": True, "value": {}, "qualified_name": "os.system"}, {"__loom": "float", "value": "nan"},
    [[[[]]]], "x" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("field", ["workflow", "input", "run_id", "parameters", "variables", "version", "tags"])
async def test_no_start_makes_the_server_fail(client: httpx2.AsyncClient, field: str) -> None:
    for workflow in ("asks", "flow"):
        for value in ODD:
            body = {"workflow": workflow, "input": {"topic": "now"}, field: value}
            answer = await client.post("/v1/runs", json=body)
            assert answer.status_code < 500, (body, answer.text)
        for value in ODD:
            body = {"workflow": workflow, "input": {"topic": value, "times": value, "more": value}}
            answer = await client.post("/v1/runs", json=body)
            assert answer.status_code < 500, (body, answer.text)
    assert (await client.get("/v1/runs?limit=500")).status_code == 200


@pytest.mark.parametrize("field", ["type", "value", "step", "waiter_id", "event_id"])
async def test_no_event_makes_the_server_fail(served: Served, client: httpx2.AsyncClient, field: str) -> None:
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "s"})
    await client.post("/v1/runs", json={"workflow": "flow", "run_id": "f"})
    await served.until_waiting("s")
    await served.until_waiting("f")
    for run_id, kind in (("s", "Approval"), ("f", "Other")):
        for value in ODD:
            body = {"type": kind, "value": {"by": "x"}, "waiter_id": "nobody", field: value}
            answer = await client.post(f"/v1/runs/{run_id}/events", json=body)
            assert answer.status_code < 500, (body, answer.text)
        for path in ("", "/history?commands=true", "/state", "/loops"):
            answer = await client.get(f"/v1/runs/{run_id}{path}")
            assert answer.status_code == 200, (path, answer.text)


@pytest.mark.parametrize("seconds", [1e10, 1e12, 9.3e18, 1e308])
async def test_a_wait_beyond_all_dates_can_be_looked_at(
    served: Served, client: httpx2.AsyncClient, seconds: float
) -> None:
    ask = {"type": "waitForEvent", "inputs": {"event": "Go", "timeout": "@triggerBody()"}}
    slow = {"type": "wait", "inputs": {"interval": {"count": "@triggerBody()", "unit": "second"}}}
    actions = {"ask": {**ask, "runAfter": {}}, "slow": {**slow, "runAfter": {}}}
    assert (await client.put("/v1/definitions/far", json={"actions": actions})).status_code < 300
    await client.post("/v1/runs", json={"workflow": "far", "input": seconds, "run_id": "r"})
    paths = ("/v1/runs", "/handlers", *(f"/v1/runs/r{part}" for part in ("", "/why", "/state", "/history", "/actions")))
    for path in paths:
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "cannot be shown" not in answer.text
    await client.post("/v1/runs/r/cancel", json={})
    assert (await client.get("/v1/runs/r?wait=20")).json()["status"] in ("cancelled", "failed")


class Basket(StartEvent):
    items: list[str]


class Picked(HumanResponseEvent):
    values: list[str]


class Bill(StopEvent):
    keys: int


class Shop(Workflow):
    @step
    async def sell(self, ctx: Context, ev: Basket) -> Bill:
        ctx.write_event_to_stream(ev)
        answer = await ctx.wait_for_event(Picked, timeout=None)
        return Bill(keys=len(ev.items) + len(answer.values))


async def test_fields_named_as_methods_of_a_mapping(served: Served, client: httpx2.AsyncClient) -> None:
    served.runtime.register(Shop(), name="shop")
    refused = await client.post("/v1/runs", json={"workflow": "shop", "input": {}})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "/input/items"), refused.text
    await client.post("/v1/runs", json={"workflow": "shop", "input": {"items": ["tea", "milk"]}, "run_id": "a"})
    await served.until_waiting("a")
    await client.post("/v1/runs/a/events", json={"type": "Picked", "value": {"values": ["tea"]}})
    shown = (await client.get("/v1/runs/a?wait=10")).json()
    assert (shown["status"], shown["result"]) == ("completed", {"type": "Bill", "value": {"keys": 3}}), shown
    assert '"items":["tea","milk"]' in (await client.get("/v1/runs/a/stream")).text
    assert "Basket" in (await client.get("/v1/definitions/shop")).text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), b"null"),
        ([float("inf"), 10**30], b"[null,1000000000000000000000000000000]"),
        ("\ud800", b'"\\ud800"'),
        ({"a": object}, None),
    ],
)
def test_answers_are_strict_json(value: Any, text: bytes | None) -> None:
    rendered = JsonAnswer(value).body
    assert text is None or rendered == text


async def test_a_socket_is_not_answered(served: Served) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/runs", "headers": [], "client": ("127.0.0.1", 1), "query_string": b""}
    await served.app(scope, receive, send)
    assert [message["type"] for message in sent] in ([], ["websocket.close"])

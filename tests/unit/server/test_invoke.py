"""Flows as endpoints: a request fires the trigger, and the Response action answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from server_serving import Asks, Served

import loom
from loom.server.settings import ServerSettings


def flow(trigger: dict[str, Any] | None = None, **actions: Any) -> Any:
    """A flow of actions in a row."""
    following: dict[str, Any] = {}
    for name, action in actions.items():
        after = {list(following)[-1]: ["Succeeded"]} if following else {}
        following[name] = {"runAfter": after, **action}
    triggers = {"manual": {"type": "Request", "kind": "Http", **(trigger or {})}}
    return loom.load({"definition": {"triggers": triggers, "actions": following, "contentVersion": "1.0.0.0"}})


def answers(body: Any = None, **inputs: Any) -> dict[str, Any]:
    return {"type": "Response", "inputs": {"statusCode": 200, "body": body, **inputs}}


WAITS = {"type": "waitForEvent", "inputs": {"event": "Go"}}
FAILS = {"type": "Compose", "inputs": "@div(1, 0)"}
TELLS = flow(Answer=answers("@triggerOutputs()"))


@asynccontextmanager
async def endpoint(*flows: Any, url: str = "memory://", **options: Any) -> AsyncIterator[tuple[Served, Any]]:
    """A client for a server with flows that are called `a`, `b` and so on."""
    async with loom.connect(url) as runtime:
        for name, each in zip("abcdef", flows, strict=False):
            runtime.register(each, name=name)
        runtime.register(Asks(), name="asks")
        served = Served(runtime, ServerSettings(**options))
        async with served.client() as client:
            yield served, client


async def test_the_response_answers_with_status_headers_and_body() -> None:
    said = answers({"id": "@triggerBody()?['id']"}, statusCode=201, headers={"X-Kind": "order", "Location": "/o/1"})
    async with endpoint(flow(Answer=said, Wait=WAITS)) as (_, client):
        answer = await client.post("/v1/definitions/a/invoke", json={"id": 7})
        assert (answer.status_code, answer.json()) == (201, {"id": 7})
        assert (answer.headers["x-kind"], answer.headers["location"]) == ("order", "/o/1")
        assert answer.headers["content-type"] == "application/json"
        run = (await client.get(f"/v1/runs/{answer.headers['loom-run-id']}")).json()
        assert (run["workflow"], run["status"]) == ("a", "running")


async def test_a_flow_sees_the_request_without_credentials() -> None:
    async with endpoint(TELLS) as (served, _):
        key = await served.key("start")
        given = {"X_API_Key": "abc", "Cookie": "session=1", "Proxy_Authorization": "Basic eA==", "X_Trace": "t-1"}
        async with served.client(key, **given) as client:
            answer = await client.post("/v1/definitions/a/invoke?colour=red&wait=5", json=[1])
        seen = answer.json()
        assert (seen["body"], seen["queries"]) == ([1], {"colour": "red"})
        assert seen["headers"]["X-Trace"] == "t-1"
        assert seen["headers"]["Content-Type"] == "application/json"
        assert not {"authorization", "x-api-key", "cookie", "proxy-authorization"} & {
            name.lower() for name in seen["headers"]
        }
        assert key not in answer.text


@pytest.mark.parametrize(
    ("content", "kind", "body"),
    [
        (b'{"a": 1}', "application/vnd.x+json; charset=utf-8", {"a": 1}),
        (b'{"a": 1}', None, {"a": 1}),
        (b"", "application/json", None),
        ("grüß".encode(), "text/plain; charset=utf-8", "grüß"),
        (b"\x00\x01", "application/octet-stream", {"$content-type": "application/octet-stream", "$content": "AAE="}),
        (
            b"a=1&b=x+y",
            "application/x-www-form-urlencoded",
            {
                "$content-type": "application/x-www-form-urlencoded",
                "$content": "YT0xJmI9eCt5",
                "$formdata": [{"key": "a", "value": "1"}, {"key": "b", "value": "x y"}],
            },
        ),
    ],
)
async def test_bodies_of_all_kinds_become_values(content: bytes, kind: str | None, body: Any) -> None:
    async with endpoint(TELLS) as (_, client):
        headers = {"Content-Type": kind} if kind is not None else {}
        answer = await client.post("/v1/definitions/a/invoke", content=content, headers=headers)
        assert answer.json()["body"] == body


async def test_a_number_that_is_not_finite_is_refused() -> None:
    async with endpoint(TELLS) as (_, client):
        answer = await client.post(
            "/v1/definitions/a/invoke", content=b"[1e999]", headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("content", [b"{", b'{"a": NaN}', b"[" * 70 + b"]" * 70])
async def test_json_that_is_none_starts_nothing(content: bytes) -> None:
    async with endpoint(TELLS) as (_, client):
        answer = await client.post(
            "/v1/definitions/a/invoke", content=content, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")
        assert (await client.get("/v1/runs")).json()["items"] == []


async def test_a_flow_without_a_response_gives_its_run() -> None:
    async with endpoint(flow(Wait=WAITS)) as (_, client):
        answer = await client.post("/v1/definitions/a/invoke")
        assert (answer.status_code, answer.headers["loom-response"]) == (202, "none")
        run = (await client.get(answer.headers["location"])).json()
        assert (answer.json()["run_id"], run["workflow"], run["status"]) == (run["run_id"], "a", "running")
        assert answer.headers["loom-run-id"] == run["run_id"]


async def test_an_answer_that_comes_later_is_waited_for() -> None:
    async with endpoint(flow(Wait=WAITS, Answer=answers("@body('Wait')"))) as (served, client):
        asking = asyncio.create_task(
            client.post("/v1/definitions/a/invoke?wait=20", headers={"Idempotency-Key": "one"})
        )
        async with asyncio.timeout(60):
            while not (runs := (await client.get("/v1/runs?idle=true")).json()["items"]):
                await asyncio.wait([asking], timeout=0.02)
        await client.post(f"/v1/runs/{runs[0]['run_id']}/events", json={"type": "Go", "value": {"n": 5}})
        assert (await asking).json() == {"n": 5}
        again = await client.post("/v1/definitions/a/invoke?wait=20", headers={"Idempotency-Key": "one"})
        assert (again.json(), again.headers["idempotent-replay"]) == ({"n": 5}, "true")
        assert len((await client.get("/v1/runs")).json()["items"]) == 1
        assert served.runtime.callbacks.url is None


async def test_an_error_that_a_flow_answers_with_is_repeated_without_another_run() -> None:
    async with endpoint(flow(Answer=answers("down", statusCode=503))) as (_, client):
        for _ in range(2):
            answer = await client.post("/v1/definitions/a/invoke", headers={"Idempotency-Key": "k"})
            assert (answer.status_code, answer.text) == (503, "down")
        assert len((await client.get("/v1/runs")).json()["items"]) == 1


async def test_headers_that_are_not_a_flows_to_set_are_dropped() -> None:
    unsafe = {
        "Set-Cookie": "a=1",
        "Transfer-Encoding": "chunked",
        "Content-Length": "1",
        "Connection": "close",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Credentials": "true",
        "X-Request-ID": "mine",
        "Loom-Run-ID": "another",
        "X-Content-Type-Options": "none",
        "Content-Security-Policy": "script-src *",
        "X-Split": "a\r\nSet-Cookie: b=2",
        "Bad Name": "x",
        "X-Good": "yes",
        "Content-Type": "text/html",
    }
    said = answers("<script>alert(1)</script>", headers=unsafe)
    async with endpoint(flow(Answer=said)) as (_, client):
        first = await client.post("/v1/definitions/a/invoke", headers={"Idempotency-Key": "k"})
        again = await client.post("/v1/definitions/a/invoke", headers={"Idempotency-Key": "k"})
        for answer in (first, again):
            assert answer.text == "<script>alert(1)</script>"
            assert (answer.headers["x-good"], answer.headers["content-type"]) == ("yes", "text/html")
            assert answer.headers["content-security-policy"] == "sandbox"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-request-id"] != "mine"
            assert answer.headers["loom-run-id"] != "another"
            assert answer.headers["content-length"] == str(len(answer.content))
            assert not {
                "set-cookie",
                "transfer-encoding",
                "connection",
                "x-split",
                "access-control-allow-origin",
            } & set(answer.headers)


@pytest.mark.parametrize(
    ("said", "status", "content"),
    [
        (answers(None, statusCode=204), 204, b""),
        (answers("gone", statusCode="404"), 404, b"gone"),
        (answers({"$content-type": "image/png", "$content": "AAE="}), 200, b"\x00\x01"),
        (answers([1, "ü"]), 200, '[1,"ü"]'.encode()),
    ],
)
async def test_bodies_and_statuses_of_answers(said: dict[str, Any], status: int, content: bytes) -> None:
    async with endpoint(flow(Answer=said)) as (_, client):
        answer = await client.post("/v1/definitions/a/invoke")
        assert (answer.status_code, answer.content) == (status, content)


@pytest.mark.parametrize(
    "inputs",
    [
        {"statusCode": 99},
        {"statusCode": 700},
        {"statusCode": "often"},
        {"body": {"$content-type": "a\r\nb", "$content": "AA=="}},
    ],
)
async def test_an_answer_that_http_has_no_form_for_is_told_with_the_run(inputs: dict[str, Any]) -> None:
    async with endpoint(flow(Answer=answers(**inputs))) as (_, client):
        answer = await client.post("/v1/definitions/a/invoke")
        assert (answer.status_code, answer.json()["code"]) == (502, "no-response")
        assert "no form in HTTP" in answer.json()["detail"]
        assert (await client.get(f"/v1/runs/{answer.headers['loom-run-id']}")).json()["workflow"] == "a"


async def test_the_triggers_method_schema_and_path_hold() -> None:
    schema = {"type": "object", "required": ["id"]}
    strict = flow({"inputs": {"schema": schema}, "operationOptions": "EnableSchemaValidation"}, Answer=answers("ok"))
    gets = flow({"inputs": {"method": "GET"}}, Answer=answers())
    pathed = flow(
        {"inputs": {"method": "post", "relativePath": "/orders/{id}/lines/{line}"}},
        Answer=answers("@triggerOutputs()['relativePathParameters']"),
    )
    async with endpoint(strict, gets, pathed) as (_, client):
        refused = await client.post("/v1/definitions/a/invoke", json={"no": 1})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-request")
        assert (await client.post("/v1/definitions/a/invoke", json={"id": 1})).text == "ok"
        assert (await client.post("/v1/definitions/b/invoke")).status_code == 405
        found = await client.post("/v1/definitions/c/invoke/orders/a%20b/lines/2")
        assert found.json() == {"id": "a b", "line": "2"}
        for path in ("", "/orders/1", "/orders/1/lines/2/3", "/others/1/lines/2", "/orders//lines/2"):
            assert (await client.post(f"/v1/definitions/c/invoke{path}")).status_code == 404
        assert (await client.post("/v1/definitions/a/invoke/more", json={"id": 1})).status_code == 404
        assert (await client.get("/v1/definitions/a/invoke")).status_code == 405


async def test_what_cannot_be_invoked() -> None:
    async with endpoint(TELLS) as (served, client):
        assert (await client.post("/v1/definitions/nobody/invoke")).json()["code"] == "definition-not-found"
        assert (await client.post("/v1/definitions/asks/invoke")).status_code == 400
        served.server.draining = True
        assert (await client.post("/v1/definitions/a/invoke")).status_code == 503
        served.server.draining = False
        for scopes, workflows, status in (
            (("read",), None, 403),
            (("start",), ("b",), 403),
            (("start",), ("a",), 200),
        ):
            key = await served.key(*scopes, workflows=workflows)  # type: ignore[arg-type]
            async with served.client(key) as limited:
                assert (await limited.post("/v1/definitions/a/invoke")).status_code == status
        assert (await client.post("/v1/definitions/a/invoke")).status_code == 401


# -- splitting and conditions -----------------------------------------------------------------------------------------

SPLITS = flow(
    {
        "splitOn": "@triggerBody()?['rows']",
        "inputs": {"schema": {"type": "object", "required": ["rows"]}},
        "operationOptions": "EnableSchemaValidation",
    },
    Row={"type": "Compose", "inputs": "@triggerBody()"},
)


async def test_a_trigger_that_splits_starts_a_run_per_element(tmp_path: Any) -> None:
    async with endpoint(SPLITS, url=f"sqlite:///{tmp_path}/runs.db") as (_, client):
        rows: list[Any] = [{"n": 1}, "two", None]
        answer = await client.post("/v1/definitions/a/invoke", json={"rows": rows}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202, answer.text
        run_ids = [each["run_id"] for each in answer.json()["items"]]
        assert len(set(run_ids)) == 3
        for run_id, row in zip(run_ids, rows, strict=True):
            assert (await client.get(f"/v1/runs/{run_id}?wait=10")).json()["status"] == "completed"
            [action] = (await client.get(f"/v1/runs/{run_id}/actions")).json()["items"]
            assert action["outputs"] == row
        again = await client.post("/v1/definitions/a/invoke", json={"rows": rows}, headers={"Idempotency-Key": "k"})
        assert [each["run_id"] for each in again.json()["items"]] == run_ids
        assert len((await client.get("/v1/runs")).json()["items"]) == 3


async def test_a_start_by_hand_does_not_split() -> None:
    async with endpoint(SPLITS) as (_, client):
        answer = await client.post("/v1/runs?wait=10", json={"workflow": "a", "input": {"n": 1}})
        assert (answer.status_code, answer.json()["status"]) == (201, "completed")


@pytest.mark.parametrize("body", [{"rows": "text"}, {"rows": None}, {"other": []}, {"rows": [0] * 1001}])
async def test_what_cannot_be_split_starts_nothing(body: Any) -> None:
    async with endpoint(SPLITS) as (_, client):
        answer = await client.post("/v1/definitions/a/invoke", json=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request")
        assert (await client.get("/v1/runs")).json()["items"] == []


async def test_an_empty_split_or_a_condition_that_does_not_hold_starts_nothing() -> None:
    asks = {"conditions": [{"expression": "@equals(triggerBody()?['go'], true)"}]}
    async with endpoint(SPLITS, flow(asks, Answer=answers("went"))) as (_, client):
        none = await client.post("/v1/definitions/a/invoke", json={"rows": []})
        assert (none.status_code, none.json()) == (202, {"items": [], "next_cursor": None})
        none = await client.post("/v1/definitions/b/invoke", json={"go": False})
        assert (none.status_code, none.json()["items"]) == (202, [])
        assert (await client.get("/v1/runs")).json()["items"] == []
        assert (await client.post("/v1/definitions/b/invoke", json={"go": True})).text == "went"


async def test_a_repetition_after_a_crash_makes_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with endpoint(SPLITS) as (served, client):
        start, starts = served.runtime.starter.begin, 0

        async def failing(*args: Any, **named: Any) -> Any:
            nonlocal starts
            starts += 1
            if starts == 2:
                raise loom.StoreUnavailable("gone")
            return await start(*args, **named)

        monkeypatch.setattr(served.runtime.starter, "begin", failing)
        first = await client.post(
            "/v1/definitions/a/invoke", json={"rows": [1, 2, 3]}, headers={"Idempotency-Key": "k", "X-Try": "1"}
        )
        assert first.status_code == 503
        second = await client.post(
            "/v1/definitions/a/invoke", json={"rows": [1, 2, 3]}, headers={"Idempotency-Key": "k", "X-Try": "2"}
        )
        assert second.status_code == 202, second.text
        assert len((await client.get("/v1/runs")).json()["items"]) == 3

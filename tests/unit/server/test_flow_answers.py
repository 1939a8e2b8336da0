"""The status codes of flows as endpoints, as one table: trigger, method and outcome give status, headers and body."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import httpx2
import pytest
from server_serving import Served
from test_invoke import FAILS, WAITS, answers, endpoint, flow

INVOKE = "/v1/definitions/a/invoke"
LATER = {**answers("later"), "operationOptions": "Asynchronous"}
DEEP = {
    "type": "Scope",
    "actions": {
        "If": {
            "type": "If",
            "expression": "@equals(triggerBody()?['n'], 1)",
            "actions": {"Inner": {**answers("deep"), "runAfter": {}}},
        }
    },
}
CANCELS = {"type": "Terminate", "inputs": {"runStatus": "Cancelled"}}
REFUSES = {"type": "Terminate", "inputs": {"runStatus": "Failed", "runError": {"code": "E7", "message": "no stock"}}}
SKIPPED = {**answers(), "runAfter": {"First": ["Failed"]}}
FIRST = {"type": "Compose", "inputs": 1}
CHECKED = {
    "inputs": {"schema": {"type": "object", "required": ["id"]}},
    "operationOptions": "EnableSchemaValidation",
}


class Row(NamedTuple):
    """A row of the table."""

    trigger: dict[str, Any]
    actions: dict[str, Any]
    method: str
    status: int
    headers: dict[str, str | None]
    """What they must be; None: absent, empty: any."""
    body: Any = None
    """Text, the value of JSON, or the code of a problem."""
    path: str = ""
    sent: Any = None


OWN = {"loom-run-id": "", "loom-response": None}
PENDING = {"loom-run-id": "", "loom-response": "pending", "location": "", "retry-after": ""}
NONE = {"loom-run-id": "", "loom-response": "none"}


def asks(method: Any, **inputs: Any) -> dict[str, Any]:
    return {"inputs": {"method": method, **inputs}}


TABLE: dict[str, Row] = {
    # which method
    "POST where none is named": Row({}, {"R": answers("hi")}, "POST", 200, OWN, "hi"),
    "GET where none is named": Row({}, {"R": answers("hi")}, "GET", 405, {"allow": "POST"}, "method-not-allowed"),
    **{
        f"{method} where it is named": Row(asks(method), {"R": answers("hi")}, method, 200, OWN, "hi")
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    },
    "a name in any case": Row(asks("put"), {"R": answers("hi")}, "PUT", 200, OWN, "hi"),
    "several names": Row(asks(["GET", "PUT"]), {"R": answers("hi")}, "GET", 200, OWN, "hi"),
    "none of several": Row(asks("GET, PUT"), {"R": answers()}, "POST", 405, {"allow": "GET, PUT"},
                           "method-not-allowed"),
    "HEAD is no GET": Row(asks("GET"), {"R": answers("hi")}, "HEAD", 405, {"allow": "GET"}),
    "HEAD where it is named": Row(asks("HEAD"), {"R": answers("hi")}, "HEAD", 200, OWN),
    "a method that HTTP lacks": Row(asks("FETCH"), {"R": answers()}, "POST", 405, {"allow": ""}, "method-not-allowed"),
    # which path
    "a relative path": Row(
        asks("GET", relativePath="/o/{id}"),
        {"R": answers("@triggerOutputs()['relativePathParameters']['id']")},
        "GET", 200, OWN, "a b", "/o/a%20b",
    ),
    "a slash in a value": Row(
        asks("GET", relativePath="/o/{id}/{more}"),
        {"R": answers("@triggerOutputs()['relativePathParameters']")},
        "GET", 200, OWN, {"id": "feature/1", "more": "ü%2F"}, "/o/feature%2F1/%C3%BC%252F/",
    ),
    "another path": Row(asks("GET", relativePath="/o/{id}"), {"R": answers()}, "GET", 404, {}, "not-found", "/p/1"),
    "a path too many": Row({}, {"R": answers()}, "POST", 404, {}, "not-found", "/more"),
    # which outcome
    "a status and a header": Row(
        {}, {"R": answers({"n": 1}, statusCode=418, headers={"X-A": "b"})}, "POST", 418, {**OWN, "x-a": "b"}, {"n": 1}
    ),
    "an error of the flow's own": Row({}, {"R": answers("down", statusCode=503)}, "POST", 503, OWN, "down"),
    "a Response deep inside": Row({}, {"S": DEEP}, "POST", 200, OWN, "deep", sent={"n": 1}),
    "a Response in a loop": Row(
        {},
        {"L": {"type": "Foreach", "foreach": [1], "actions": {"R": answers("@item()")}}},
        "POST", 200, OWN, 1,
    ),
    "a Response, then a wait": Row({}, {"R": answers("now"), "W": WAITS}, "POST", 200, OWN, "now"),
    "a Response, then a failure": Row({}, {"R": answers("now"), "F": FAILS}, "POST", 200, OWN, "now"),
    "a failure before the Response": Row({}, {"F": FAILS, "R": answers()}, "POST", 502, NONE, "no-response"),
    "a Terminate before the Response": Row({}, {"T": REFUSES, "R": answers()}, "POST", 502, NONE, "no-response"),
    "a cancelled run": Row({}, {"T": CANCELS, "R": answers()}, "POST", 502, NONE, "no-response"),
    "a branch without the Response": Row({}, {"S": DEEP}, "POST", 502, NONE, "no-response", sent={"n": 2}),
    "a Response that is skipped": Row({}, {"First": FIRST, "R": SKIPPED}, "POST", 502, NONE, "no-response"),
    "a Response that comes late": Row({}, {"W": WAITS, "R": answers()}, "POST", 504, PENDING | {"retry-after": None},
                                      "response-late"),
    "no Response at all": Row({}, {"W": WAITS}, "POST", 202, NONE),
    "no Response, and a failure": Row({}, {"F": FAILS}, "POST", 202, NONE),
    "an asynchronous Response": Row({}, {"R": LATER}, "POST", 202, PENDING),
    "an asynchronous Response after a wait": Row({}, {"W": WAITS, "R": LATER}, "POST", 202, PENDING),
    # which body
    "a body that breaks its schema": Row(CHECKED, {"R": answers()}, "POST", 400, {"loom-run-id": None},
                                         "invalid-request", sent={"no": 1}),
    "no answer's body": Row({}, {"R": answers(None, statusCode=204)}, "POST", 204, OWN),
    "bytes": Row({}, {"R": answers({"$content-type": "image/png", "$content": "AAE="})}, "POST", 200,
                 {**OWN, "content-type": "image/png"}, b"\x00\x01"),
    "a text": Row({}, {"R": answers("grüß")}, "POST", 200,
                  {**OWN, "content-type": "text/plain; charset=utf-8"}, "grüß"),
    "a text in another charset": Row(
        {}, {"R": answers("grüß", headers={"Content-Type": "text/csv; charset=iso-8859-1"})}, "POST", 200,
        {**OWN, "content-type": "text/csv; charset=iso-8859-1"}, "grüß".encode("latin-1")),
    "a text that looks like JSON": Row({}, {"R": answers('{"a": 1}')}, "POST", 200,
                                       {**OWN, "content-type": "text/plain; charset=utf-8"}, '{"a": 1}'),
    "JSON": Row({}, {"R": answers([1, None])}, "POST", 200, {**OWN, "content-type": "application/json"}, [1, None]),
}  # fmt: skip


@pytest.mark.parametrize("signed", [False, True], ids=["with a key", "by an address"])
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
async def test_the_table_holds(row: Row, signed: bool) -> None:
    async with endpoint(flow(row.trigger, **row.actions), response_timeout=0.2 if row.status == 504 else 60) as (
        served,
        _,
    ):
        key = await served.key("start", "read")
        query = ""
        if signed:
            query = "?" + (await served.runtime.flow_address("a", url="http://x")).url.partition("?")[2]
        async with served.client(None if signed else key) as caller:
            answer = await caller.request(row.method, f"{INVOKE}{row.path}{query}", json=row.sent)
            check(row, answer)
            if row.status == 202 and signed:
                assert answer.content == b""
            elif row.status == 202:
                assert answer.json()["run_id"] == answer.headers["loom-run-id"]
            if "location" in answer.headers and row.headers.get("location") == "":
                await finish_and_follow(served, caller, answer, waits="W" in row.actions)


def check(row: Row, answer: httpx2.Response) -> None:
    assert answer.status_code == row.status, answer.text
    for name, wanted in row.headers.items():
        assert (name in answer.headers) == (wanted is not None), (name, answer.headers)
        assert not wanted or answer.headers[name] == wanted
    if row.method == "HEAD":
        assert answer.content == b""
    elif isinstance(row.body, bytes):
        assert answer.content == row.body
    elif answer.headers.get("content-type") == "application/problem+json":
        assert answer.json()["code"] == row.body
    elif row.body is not None:
        assert (answer.text if isinstance(row.body, str) else answer.json()) == row.body


async def finish_and_follow(
    served: Served, caller: httpx2.AsyncClient, answer: httpx2.Response, *, waits: bool
) -> None:
    """Follow the Location: 202 until the Response is there, then the Response, again and again."""
    run_id = answer.headers["loom-run-id"]
    if waits:
        await served.until_waiting(run_id)
        for _ in range(2):
            pending = await caller.get(answer.headers["location"])
            assert (pending.status_code, pending.content) == (202, b"")
            assert (pending.headers["location"], pending.headers["loom-response"]) == (
                answer.headers["location"],
                "pending",
            )
        async with served.client(await served.key("event")) as sender:
            await sender.post(f"/v1/runs/{run_id}/events", json={"type": "Go", "value": {}})
    separator = "&" if "?" in answer.headers["location"] else "?"
    for _ in range(2):
        found = await caller.get(f"{answer.headers['location']}{separator}wait=30")
        assert (found.status_code, found.headers["loom-run-id"]) == (200, run_id)
        assert "loom-response" not in found.headers


async def test_the_error_of_a_run_without_a_response_is_told() -> None:
    async with endpoint(flow(T=REFUSES, R=answers()), flow(Fail=FAILS, R=answers())) as (_, client):
        refused = (await client.post(INVOKE)).json()
        assert refused["error"]["code"] == "E7"
        assert refused["detail"].endswith("has ended without a response: failed. no stock")
        failed = (await client.post("/v1/definitions/b/invoke")).json()
        assert "Fail" in failed["detail"] or "div" in failed["detail"]
        assert failed["error"].get("traceback") is None


async def test_a_late_answer_is_kept_for_its_place_and_a_repetition_waits_for_the_same_run() -> None:
    async with endpoint(flow(W=WAITS, R=answers("@body('W')")), response_timeout=0.2) as (_, client):
        late = await client.post(INVOKE, headers={"Idempotency-Key": "k"})
        assert late.status_code == 504
        run_id = late.headers["loom-run-id"]
        asking = asyncio.create_task(client.get(f"{late.headers['location']}?wait=30"))
        await client.post(f"/v1/runs/{run_id}/events", json={"type": "Go", "value": {"n": 1}})
        assert (await asking).json() == {"n": 1}
        again = await client.post(INVOKE, headers={"Idempotency-Key": "k"})
        assert (again.status_code, again.json(), again.headers["loom-run-id"]) == (200, {"n": 1}, run_id)


async def test_a_502_is_the_answer_of_a_repetition_too() -> None:
    async with endpoint(flow(asks("PUT"), F=FAILS, R=answers())) as (_, client):
        first, again = [await client.put(INVOKE, headers={"Idempotency-Key": "k"}) for _ in range(2)]
        assert (first.status_code, again.status_code) == (502, 502)
        assert again.headers["idempotent-replay"] == "true"
        assert first.headers["loom-run-id"] == again.headers["loom-run-id"]
        assert len((await client.get("/v1/runs")).json()["items"]) == 1


async def test_with_a_wait_the_run_is_given_instead_of_a_504() -> None:
    async with endpoint(flow(W=WAITS, R=answers())) as (_, client):
        for wait in ("0", "0.05"):
            answer = await client.post(f"{INVOKE}?wait={wait}")
            assert (answer.status_code, answer.json()["status"]) == (202, "running")
            assert answer.headers["location"].endswith("/response")


async def test_the_response_of_what_is_no_flow_or_not_there() -> None:
    async with endpoint(flow(R=answers())) as (_, client):
        await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "now"}, "run_id": "s"})
        assert (await client.get("/v1/runs/s/response")).status_code == 400
        assert (await client.get("/v1/runs/none/response")).json()["code"] == "run-not-found"


async def test_an_answer_of_ten_megabytes(tmp_path: Any) -> None:
    large = {"type": "Compose", "inputs": "@join(range(1, 100000), ',')"}
    text = {
        "type": "Compose",
        "inputs": "@concat(outputs('Large'), outputs('Large'), outputs('Large'), outputs('Large'))",
    }
    rows = ["@{outputs('Text')}@{outputs('Text')}@{outputs('Text')}@{outputs('Text')}@{outputs('Text')}"]
    said = answers(rows[0])
    async with endpoint(flow(Large=large, Text=text, R=said), url=f"sqlite:///{tmp_path}/r.db") as (_, client):
        answer = await client.post(INVOKE, timeout=60)
        assert answer.status_code == 200, answer.text[:500]
        assert len(answer.content) > 10_000_000
        again = await client.get(f"/v1/runs/{answer.headers['loom-run-id']}/response", timeout=60)
        assert again.content == answer.content

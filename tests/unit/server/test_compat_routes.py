"""The compatible routes, where the client does not go: odd bodies, repeated requests, callers that leave, damage."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import httpx2
import pytest
from pydantic import field_validator
from server_serving import Served, serving

import loom
from loom.store.records import RunQuery

NOW = {"start_event": {"topic": "now"}}
WAITS = {"start_event": {"topic": "soup"}}


async def started(client: httpx2.AsyncClient, workflow: str = "asks", **body: Any) -> dict[str, Any]:
    answer = await client.post(f"/workflows/{workflow}/run-nowait", json={**WAITS, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_kwargs_stand_for_the_start_event(client: httpx2.AsyncClient) -> None:
    done = await client.post("/workflows/asks/run", json={"kwargs": {"topic": "now"}})
    assert done.json()["result"]["value"] == {"text": "at once"}


@pytest.mark.parametrize(
    "start",
    [
        {"topic": "now"},
        json.dumps({"topic": "now"}),
        {"type": "Topic", "value": {"topic": "now"}},
        {"type": "StartEvent", "value": {"topic": "now"}, "qualified_name": None},
        {"qualified_name": "server_serving.Topic", "data": {"topic": "now"}},
        json.dumps({"type": "Topic", "value": {"topic": "now"}}),
        {"topic": "now", "value": 3},  # a field of that name makes no envelope
        {"_data": {"more": 1}, "topic": "now"},
    ],
)
async def test_forms_of_a_start(client: httpx2.AsyncClient, start: Any) -> None:
    done = await client.post("/workflows/asks/run", json={"start_event": start})
    assert (done.status_code, done.json()["result"]["value"]) == (200, {"text": "at once"})


@pytest.mark.parametrize(
    "body",
    [
        [],
        None,
        {},
        {"start_event": {"topic": 1}},
        {"start_event": [1]},
        {"start_event": "no json"},
        {"start_event": "[" * 100_000},
        {"start_event": {"type": "Approval", "value": {"by": "me"}}},
        {**NOW, "handler_id": 7},
        {**NOW, "handler_id": "a/b"},
        {**NOW, "handler_id": ""},
        {**NOW, "context": {"state": {}}},
    ],
)
async def test_bodies_that_start_nothing(client: httpx2.AsyncClient, served: Served, body: Any) -> None:
    for route in ("run", "run-nowait"):
        answer = await client.post(f"/workflows/asks/{route}", json=body)
        assert answer.status_code == 400, answer.text
        assert list(answer.json()) == ["detail"]
    assert await served.runtime.store.find(RunQuery()) == []


async def test_own_workflows_are_out_of_reach(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/workflows")).json() == {"workflows": ["asks", "flow"]}
    for name in ("loom.schedule", "loom.actor", "nothing"):
        assert (await client.get(f"/workflows/{name}/schema")).status_code == 404
        assert (await client.post(f"/workflows/{name}/run", json={})).status_code == 404


async def test_a_repeated_request_starts_one_run(client: httpx2.AsyncClient, served: Served) -> None:
    headers = {"Idempotency-Key": "once"}
    first = await client.post("/workflows/asks/run-nowait", json=WAITS, headers=headers)
    again = await client.post("/workflows/asks/run-nowait", json=WAITS, headers=headers)
    assert again.json() == first.json()
    assert again.headers["Idempotent-Replay"] == "true"
    assert len(await served.runtime.store.find(RunQuery())) == 1


async def test_a_failed_run_that_is_asked_for_again(client: httpx2.AsyncClient, served: Served) -> None:
    """A 500 is not kept, but the run is: the repetition finds it."""
    body, headers = {"start_event": {"topic": "fail"}}, {"Idempotency-Key": "once"}
    first = await client.post("/workflows/asks/run", json=body, headers=headers)
    again = await client.post("/workflows/asks/run", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (500, 500)
    assert again.json()["run_id"] == first.json()["run_id"]
    assert len(await served.runtime.store.find(RunQuery())) == 1


async def test_starts_at_the_same_time_for_one_handler(client: httpx2.AsyncClient, served: Served) -> None:
    def start(topic: str) -> Any:
        body = {"start_event": {"topic": topic}, "handler_id": "one"}
        return client.post("/workflows/asks/run-nowait", json=body)

    answers = await asyncio.gather(*(start(topic) for topic in ("tea", "soup", "bread")))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    assert len(await served.runtime.store.find(RunQuery())) == 1


async def test_a_draining_server_starts_nothing(client: httpx2.AsyncClient, served: Served) -> None:
    handler = await started(client)
    await served.until_waiting(handler["run_id"])
    served.server.draining = True
    answer = await client.post("/workflows/asks/run", json=NOW)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    event = {"event": {"type": "Approval", "value": {"by": "Ada"}}}
    assert (await client.post(f"/events/{handler['handler_id']}", json=event)).status_code == 200
    assert (await client.get("/health")).json() == {"status": "healthy"}


async def test_events_as_strings_and_for_flows(client: httpx2.AsyncClient, served: Served) -> None:
    asking, flow = await started(client), await started(client, "flow", start_event={"pin": "1"})
    for handler, event in ((asking, {"type": "Approval", "value": {"by": "Ada"}}), (flow, {"type": "Go", "value": 7})):
        await served.until_waiting(handler["run_id"])
        sent = await client.post(f"/events/{handler['handler_id']}", json={"event": json.dumps(event)})
        assert (sent.status_code, sent.json()) == (200, {"status": "sent"})
        await (await served.runtime.handler(handler["run_id"]))
        found = await client.get(f"/handlers/{handler['handler_id']}")
        assert (found.status_code, found.json()["status"]) == (200, "completed")
    assert (await client.get(f"/results/{asking['handler_id']}")).json()["result"] == {"text": "soup by Ada"}


class Sized(loom.StopEvent):
    """A class that may change after a run has ended with it: what it took before, it then refuses."""

    size: int
    largest: ClassVar[int] = 10

    @field_validator("size")
    @classmethod
    def check(cls, size: int) -> int:
        if size > cls.largest:
            raise ValueError("too large")
        return size


class Measures(loom.Workflow):
    @loom.step
    async def measure(self, _event: loom.StartEvent) -> Sized:
        return Sized(size=7)


async def test_a_result_that_cannot_be_read_is_422(
    client: httpx2.AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.runtime.register(Measures(), "measures")
    done = (await client.post("/workflows/measures/run", json={})).json()
    assert done["result"]["value"] == {"size": 7}
    monkeypatch.setattr(Sized, "largest", 5)
    for route in ("handlers", "results"):
        answer = await client.get(f"/{route}/{done['handler_id']}")
        assert (answer.status_code, list(answer.json())) == (422, ["detail"])
    listed = (await client.get("/handlers")).json()["handlers"]
    assert [(found["result"], found["result_unreadable"]) for found in listed] == [(None, True)]
    assert listed[0]["status"] == "completed"


class Strange(loom.Workflow):
    @loom.step
    async def stop(self, event: loom.StartEvent) -> loom.StopEvent:
        return loom.StopEvent(result=[float("inf"), chr(0xD800) if event.get("half") else "ä"])


async def test_results_that_json_has_no_words_for(client: httpx2.AsyncClient, served: Served) -> None:
    served.runtime.register(Strange(), "strange")
    for start, text in (({}, "ä"), ({"half": True}, chr(0xD800))):
        done = await client.post("/workflows/strange/run", json={"start_event": start})
        assert (done.status_code, json.loads(done.content)["result"]["value"]) == (200, {"result": [None, text]})
    assert len(json.loads((await client.get("/handlers")).content)["handlers"]) == 2


async def test_purge_takes_older_runs_too(client: httpx2.AsyncClient, served: Served) -> None:
    """Also one that failed, and was brought back to life under its own id."""
    body = {"start_event": {"topic": "fail"}, "handler_id": "mine"}
    for _ in range(2):
        assert (await client.post("/workflows/asks/run", json=body)).status_code == 500
    await served.runtime.retry("mine")
    assert (await client.post("/handlers/mine/cancel", params={"purge": "true"})).json() == {"status": "deleted"}
    assert await served.runtime.store.find(RunQuery()) == []
    assert (await client.post("/handlers/mine/cancel", params={"purge": "perhaps"})).status_code == 400


async def test_a_caller_that_leaves_is_let_go() -> None:
    """The run goes on; nothing waits for it on behalf of somebody who is not there any more."""
    async with serving() as served:
        gone, stored = asyncio.Event(), asyncio.Event()
        answered: list[Any] = []
        body = json.dumps({**WAITS, "handler_id": "left"}).encode()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            for message in messages:
                return message
            stored.set()  # it is waited for the end of the connection when the run is there
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            answered.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/workflows/asks/run",
            "raw_path": b"/workflows/asks/run",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "http_version": "1.1",
        }
        request = asyncio.create_task(served.app(scope, receive, send))
        async with asyncio.timeout(60):
            await stored.wait()
            await served.until_waiting("left")
            gone.set()
            await asyncio.wait([request])
        assert not served.runtime.endings._waiting
        assert (await served.runtime.get("left")).status == "running"


async def test_a_context_is_taken_where_that_is_allowed() -> None:
    async with serving(accept_context=True) as served, served.client() as client:
        workflow = served.runtime.codes["asks"].workflow
        context: loom.Context[Any] = loom.Context(workflow)
        await context.store.set("kept", 3)
        handler = await started(client, context=context.to_dict())
        await served.until_waiting(handler["run_id"])
        state = await served.runtime.read_store(handler["run_id"])
        assert (state["kept"], state["topic"]) == (3, "soup")
        wrong = await client.post("/workflows/asks/run", json={**NOW, "context": {"state": 3}})
        assert wrong.status_code == 400

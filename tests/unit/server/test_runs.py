"""Runs over HTTP: start, get, list, tell, fork and delete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
from server_serving import Approval, Served

from loom.core.ticks import TickAddEvent
from loom.effects.flow_codec import AnyEventCodec
from loom.steps.registry import wire_name
from loom.steps.stand_ins import stand_in
from loom.store import codec
from loom.store.operations import PostMessage


async def started(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, **body})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_a_start_is_a_run_with_an_address(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "now"}, "run_id": "r1"})
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/runs/r1"
    ended = (await client.get("/v1/runs/r1?wait=10")).json()
    assert ended["status"] == "completed"
    assert ended["result"] == {"type": "Done", "value": {"text": "at once"}}
    assert ended["active_waiters"] is None
    assert ended["completed_at"] is not None


async def test_wait_at_the_start_gives_the_end(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/runs?wait=10", json={"workflow": "asks", "input": {"topic": "now"}})
    assert (answer.status_code, answer.json()["status"]) == (201, "completed")


async def test_the_same_start_again_is_the_same_run_and_another_one_is_refused(client: httpx2.AsyncClient) -> None:
    await started(client, run_id="same")
    body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": "same"}
    assert (await client.post("/v1/runs", json=body)).status_code == 200
    other = await client.post("/v1/runs", json={**body, "input": {"topic": "coffee"}})
    assert (other.status_code, other.json()["code"]) == (409, "run-exists")


async def test_a_failed_run_is_no_failure_of_the_server(client: httpx2.AsyncClient) -> None:
    run = await started(client, run_id="bad", input={"topic": "fail"})
    ended = await client.get(f"/v1/runs/{run['run_id']}?wait=10")
    assert ended.status_code == 200
    assert ended.json()["status"] == "failed"
    error = ended.json()["error"]
    assert (error["code"], error["step"], error["message"]) == ("failed", "ask", "no such topic")
    assert 'in ask\n    raise RuntimeError("no such topic")' in error["traceback"]
    [listed] = (await client.get("/v1/runs?status=failed")).json()["items"]
    assert listed["error"] == {**error, "traceback": None}
    ticks = (await client.get("/v1/runs/bad/history?type=TickStepResult")).json()["items"]
    assert ticks[-1]["tick"]["failure"]["traceback"] == error["traceback"]
    again = await client.post("/v1/runs/bad/retry")
    assert again.status_code == 202
    assert (await client.get("/v1/runs/bad?wait=10")).json()["status"] == "failed"


async def test_a_failed_run_is_healed_by_another_event(client: httpx2.AsyncClient) -> None:
    await started(client, run_id="bad", input={"topic": "fail"})
    await client.get("/v1/runs/bad?wait=10")
    for event, path in (
        ({"type": "Topic", "value": {"times": "x"}}, "/event/value/topic"),
        ({"type": "os.system", "value": {}}, "/event/type"),
        ({"type": "Approval", "value": {"by": "x"}}, "/event"),
        ({"type": "Topic", "surprise": 1}, "/event"),
        ("Topic", "/event"),
    ):
        answer = await client.post("/v1/runs/bad/retry", json={"event": event})
        assert answer.status_code == 400, event
        assert answer.json()["errors"][0]["path"] == path, answer.text
    better = {"type": "Topic", "value": {"topic": "now"}}
    assert (await client.post("/v1/runs/bad/retry", json={"event": better})).status_code == 202
    assert (await client.get("/v1/runs/bad?wait=10")).json()["status"] == "completed"
    late = await client.post("/v1/runs/bad/retry", json={"event": better})
    assert late.json()["code"] == "run-finished"


async def test_a_refused_answer_is_shown_with_the_wait(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="w")
    await served.until_waiting("w")
    # As a command beside the server stores it, which does not know the class.
    record = AnyEventCodec().record(stand_in(wire_name(Approval))(secret="hush"))
    tick = TickAddEvent(at=0.0, event=record, accepted=True)
    await served.runtime._post(PostMessage("w", codec.encode_tick(tick), served.runtime.now()), "Approval")
    waiter: dict[str, Any] = {"refused": None}
    async with asyncio.timeout(60):
        while waiter["refused"] is None:
            await asyncio.sleep(0.005)
            # Between the answer and its refusal nothing is waited for.
            [waiter] = (await client.get("/v1/runs/w")).json()["active_waiters"] or [waiter]
    assert waiter["refused"]["reason"] == "by: Field required"
    assert (await client.get("/v1/runs/w/state")).json()["refused"] == [waiter["refused"]]
    await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "ann"}})
    assert (await client.get("/v1/runs/w?wait=10")).json()["result"]["value"] == {"text": "tea by ann"}
    lines = (await client.get("/v1/runs/w/stream", headers={"Accept": "application/x-ndjson"})).text.splitlines()
    told = [json.loads(line) for line in lines if "AnswerRefusedEvent" in line]
    assert [(one["type"], one["value"]["step"], one["value"]["reason"]) for one in told] == [
        ("AnswerRefusedEvent", "ask", "by: Field required")
    ]


async def test_what_the_input_lacks_is_named(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/runs", json={"workflow": "asks", "input": {"times": "x"}})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert {each["path"] for each in found["errors"]} == {"/input/topic", "/input/times"}
    assert found["type"] == "urn:loom:problem:invalid-request"
    assert found["request_id"] == answer.headers["x-request-id"]


async def test_an_event_ends_the_wait(served: Served, client: httpx2.AsyncClient) -> None:
    run = await started(client, run_id="w")
    await served.until_waiting("w")
    idle = (await client.get("/v1/runs?status=running&idle=true&waiting_for=Approval")).json()["items"]
    assert [each["run_id"] for each in idle] == ["w"]
    assert idle[0]["idle_since"] is not None
    assert idle[0]["active_waiters"][0]["step"] == "ask"
    answer = await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "Ann"}, "event_id": "e1"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["delivered"] == "waiter"
    assert answer.json()["duplicate"] is False
    ended = (await client.get("/v1/runs/w?wait=10")).json()
    assert ended["result"]["value"] == {"text": "tea by Ann"}
    again = await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "Ann"}, "event_id": "e1"})
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    late = await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "Ann"}})
    assert (late.status_code, late.json()["code"]) == (409, "run-finished")
    assert run["run_id"] == "w"


async def test_who_takes_an_event_is_told_as_it_is(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="w")
    await served.until_waiting("w")
    for kind, expected in (("HumanResponseEvent", "kept"), ("StopEvent", None), ("InputRequiredEvent", None)):
        sent = (await client.post("/v1/runs/w/events", json={"type": kind, "value": {}})).json()
        assert (sent["delivered"], sent["duplicate"]) == (expected, False), kind
    assert (await client.get("/v1/runs/w")).json()["kept_events"] == 1


async def test_an_event_that_nobody_knows_or_that_is_wrong_is_refused(
    served: Served, client: httpx2.AsyncClient
) -> None:
    await started(client, run_id="w")
    await served.until_waiting("w")
    for body, path in (
        ({"type": "os.system", "value": {}}, "/type"),
        ({"type": "Approval", "value": {}}, "/value/by"),
        ({"type": "Approval", "value": "yes"}, "/value"),
        ({"type": "Approval", "value": {"by": "x"}, "step": "nowhere"}, "/step"),
        ({"type": "Approval", "value": {"by": "x"}, "event_id": "a b"}, "/event_id"),
        ({"type": 7}, "/type"),
        ({"type": "Approval", "surprise": 1}, "/surprise"),
    ):
        answer = await client.post("/v1/runs/w/events", json=body)
        assert answer.status_code == 400, body
        assert answer.json()["errors"][0]["path"] == path, answer.text


async def test_cancel_pause_resume_and_delete(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="c")
    await served.until_waiting("c")
    assert (await client.post("/v1/runs/c/pause")).status_code == 202
    assert (await client.post("/v1/runs/c/resume")).status_code == 202
    assert (await client.post("/v1/runs/c/resume", json={"max_depth": 20_000})).status_code == 202
    refused = (await client.post("/v1/runs/c/resume", json={"max_depth": 0})).json()
    assert [error["path"] for error in refused["errors"]] == ["/max_depth"]
    assert (await client.delete("/v1/runs/c")).json()["code"] == "run-active"
    assert (await client.post("/v1/runs/c/retry")).json()["code"] == "run-active"
    assert (await client.post("/v1/runs/c/cancel", json={"reason": "enough", "force": True})).status_code == 202
    assert (await client.get("/v1/runs/c?wait=10")).json()["status"] == "cancelled"
    assert (await client.post("/v1/runs/c/cancel")).status_code == 200
    assert (await client.post("/v1/runs/c/pause")).json()["code"] == "run-finished"
    told = (await client.get("/v1/runs/c/history?type=TickCancelRun")).json()["items"]
    assert told[0]["tick"]["reason"] == "enough"
    assert (await client.delete("/v1/runs/c")).status_code == 204
    assert (await client.get("/v1/runs/c")).json()["code"] == "run-not-found"
    assert (await client.delete("/v1/runs/c")).status_code == 404


async def test_a_fork_goes_on_from_a_tick(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="f")
    await served.until_waiting("f")
    answer = await client.post("/v1/runs/f/fork", json={"tick": 0, "run_id": "f2"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["forked_from"] == "f"
    await served.until_waiting("f2")
    assert (await client.post("/v1/runs/f/fork", json={"tick": 9999})).json()["errors"][0]["path"] == "/tick"
    assert (await client.post("/v1/runs/f/fork", json={"tick": 0, "run_id": "f2"})).json()["code"] == "run-exists"


async def test_the_tag_of_a_run_changes_with_it(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="t")
    await served.until_waiting("t")
    first = await client.get("/v1/runs/t")
    same = await client.get("/v1/runs/t", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    await client.post("/v1/runs/t/events", json={"type": "Approval", "value": {"by": "x"}})
    ended = await client.get("/v1/runs/t?wait=10", headers={"If-None-Match": first.headers["etag"]})
    assert ended.status_code == 200


async def test_pages_have_everything_once_though_runs_come_meanwhile(client: httpx2.AsyncClient) -> None:
    for number in range(7):
        await started(client, run_id=f"p{number}")
    seen: list[str] = []
    url = "/v1/runs?workflow=asks&limit=3&order=created_at"
    cursor = None
    while True:
        page = (await client.get(url + (f"&cursor={cursor}" if cursor else ""))).json()
        seen += [each["run_id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await started(client, run_id=f"q{len(seen)}")
    assert seen == [*(f"p{number}" for number in range(7)), "q3", "q6"]
    newest = (await client.get("/v1/runs?limit=2")).json()
    assert [each["run_id"] for each in newest["items"]] == ["q6", "q3"]
    assert (await client.get(f"/v1/runs?limit=2&status=failed&cursor={newest['next_cursor']}")).status_code == 400


async def test_filters_that_nobody_knows_are_refused(client: httpx2.AsyncClient) -> None:
    for query in (
        "status=done",
        "stauts=running",
        "idle=maybe",
        "idle_longer_than=-1",
        "idle_longer_than=nan",
        "limit=0",
        "limit=501",
        "limit=%D9%A1",
        "order=run_id;drop",
        "created_after=yesterday",
        "created_after=2026-13-01T00:00:00Z",
        "cursor=AAAA",
        "cursor=%00",
        "workflow=%00",
        "tag=novalue",
        "idle=true&idle=true",
    ):
        answer = await client.get(f"/v1/runs?{query}")
        assert (answer.status_code, answer.json().get("code")) == (400, "invalid-request"), query


async def test_idle_and_another_status_match_nothing(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="w")
    await served.until_waiting("w")
    assert (await client.get("/v1/runs?idle=true&status=failed")).json()["items"] == []
    assert (await client.get("/v1/runs?idle_longer_than=300")).json()["items"] == []
    assert len((await client.get("/v1/runs?idle_longer_than=0")).json()["items"]) == 1


async def test_an_unknown_workflow_or_field_is_told(client: httpx2.AsyncClient) -> None:
    unknown = await client.post("/v1/runs", json={"workflow": "nobody"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "definition-not-found")
    field = await client.post("/v1/runs", json={"workflow": "asks", "inptu": {}})
    assert field.json()["errors"][0]["path"] == "/inptu"
    own = await client.post("/v1/runs", json={"workflow": "loom.schedule", "input": {}})
    assert own.status_code == 404


async def test_a_server_that_stops_takes_no_starts_but_events(served: Served, client: httpx2.AsyncClient) -> None:
    await started(client, run_id="w")
    await served.until_waiting("w")
    served.server.draining = True
    refused = await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "x"}})
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")
    assert "retry-after" in refused.headers
    assert (await client.get("/v1/health/ready")).status_code == 503
    assert (await client.get("/v1/health/live")).status_code == 200
    sent = await client.post("/v1/runs/w/events", json={"type": "Approval", "value": {"by": "x"}})
    assert sent.status_code == 200


async def test_of_many_starts_of_one_run_one_makes_it(client: httpx2.AsyncClient) -> None:
    body = {"workflow": "asks", "input": {"topic": "tea"}, "run_id": "same"}
    answers = await asyncio.gather(*(client.post("/v1/runs", json=body) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [*[200] * 9, 201]


async def test_a_wait_goes_on_though_no_news_come_for_a_while(served: Served, client: httpx2.AsyncClient) -> None:
    """Where others may work on the store too, it is asked now and then; that ends nobody's wait."""
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "slow"})
    await served.until_waiting("slow")
    asking = asyncio.create_task(client.get("/v1/runs/slow?wait=20"))
    done, _ = await asyncio.wait([asking], timeout=0.3)
    assert not done
    await client.post("/v1/runs/slow/events", json={"type": "Approval", "value": {"by": "x"}})
    assert (await asking).json()["status"] == "completed"

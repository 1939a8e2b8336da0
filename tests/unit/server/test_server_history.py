"""The past and the state of runs over HTTP, and what is secret in it."""

from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest
from server_serving import LOOP, Served

import loom
from loom.core.reducer import replay_steps
from loom.store import codec
from loom.store.records import Chunk

SECRETS = ("s3cret-4711", "t0p-secret")


@pytest.fixture
async def waiting(served: Served, client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """Two runs that wait: of steps, and of a flow with secrets."""
    first = await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "s"})
    second = await client.post("/v1/runs", json={"workflow": "flow", "input": {"pin": "4711"}, "run_id": "f"})
    assert (first.status_code, second.status_code) == (201, 201), second.text
    await served.until_waiting("s")
    await served.until_waiting("f")
    return client


async def test_the_history_comes_in_pages(waiting: httpx2.AsyncClient) -> None:
    whole = (await waiting.get("/v1/runs/s/history")).json()
    assert [item["seq"] for item in whole["items"]] == list(range(len(whole["items"])))
    assert whole["items"][0]["tick"]["type"] == "TickStartRun"
    assert whole["next_cursor"] is None
    first = (await waiting.get("/v1/runs/s/history?limit=1")).json()
    rest = (await waiting.get(f"/v1/runs/s/history?cursor={first['next_cursor']}")).json()
    assert first["items"] + rest["items"] == whole["items"]
    assert (await waiting.get("/v1/runs/s/history?after=0")).json()["items"] == whole["items"][1:]
    one = (await waiting.get("/v1/runs/s/history?type=TickAwaitEvent")).json()["items"]
    assert [item["tick"]["type"] for item in one] == ["TickAwaitEvent"]
    for wrong in ("type=Tick", "after=-2", "after=x", "commands=perhaps", "limit=501"):
        assert (await waiting.get(f"/v1/runs/s/history?{wrong}")).status_code == 400, wrong
    assert (await waiting.get("/v1/runs/none/history")).status_code == 404


async def test_a_page_of_the_history_ends_before_it_is_too_large(
    waiting: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks hold the answers of services, each of up to 16 MiB. The first of a page is always there."""
    whole = (await waiting.get("/v1/runs/f/history")).json()["items"]
    monkeypatch.setattr("loom.server.v1.history.PAGE_BYTES", 100)
    found, cursor = [], "-1"
    while cursor is not None:
        page = (await waiting.get(f"/v1/runs/f/history?cursor={cursor}")).json()
        assert len(page["items"]) == 1
        found, cursor = found + page["items"], page["next_cursor"]
    assert found == whole
    assert len(whole) > 1


async def test_a_tick_says_what_it_led_to(waiting: httpx2.AsyncClient) -> None:
    items = (await waiting.get("/v1/runs/s/history?commands=true")).json()["items"]
    run = next(command for command in items[0]["commands"] if command["type"] == "CommandRunWorker")
    assert run["step"] == "ask"


async def test_what_ticks_led_to_is_worked_out_beside_the_event_loop(
    waiting: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()
    decode = codec.decode_ticks

    def decoded(run_id: str, chunk: Chunk) -> Any:
        threads.add(threading.get_ident())
        return decode(run_id, chunk)

    def steps(*arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return replay_steps(*arguments)

    monkeypatch.setattr("loom.server.v1.history.codec.decode_ticks", decoded)
    monkeypatch.setattr("loom.server.v1.history.replay_steps", steps)
    answer = await waiting.get("/v1/runs/s/history?commands=true&after=1000")
    assert answer.json()["items"] == []
    assert threads
    assert threading.get_ident() not in threads


async def test_the_state_of_steps(waiting: httpx2.AsyncClient) -> None:
    state = (await waiting.get("/v1/runs/s/state")).json()
    assert state["store"] == {"topic": "tea"}
    assert [(step["step"], step["waiting"]) for step in state["steps"]] == [("ask", 1)]
    assert state["active_waiters"][0]["event_type"].endswith("Approval")
    past = await waiting.get("/v1/runs/s/state?tick=0")
    assert (past.json()["store"], past.json()["tick"]) == ({}, 0)
    again = await waiting.get("/v1/runs/s/state?tick=0", headers={"If-None-Match": past.headers["etag"]})
    assert again.status_code == 304
    assert "immutable" in past.headers["cache-control"]
    assert (await waiting.get("/v1/runs/s/state?tick=999")).status_code == 400


async def test_a_past_state_is_the_same_after_the_end(served: Served, waiting: httpx2.AsyncClient) -> None:
    before = (await waiting.get("/v1/runs/s/state?tick=1")).content
    await waiting.post("/v1/runs/s/events", json={"type": "Approval", "value": {"by": "x"}})
    assert (await waiting.get("/v1/runs/s?wait=10")).json()["status"] == "completed"
    assert (await waiting.get("/v1/runs/s/state?tick=1")).content == before


async def test_the_actions_of_a_flow(waiting: httpx2.AsyncClient) -> None:
    found = {each["name"]: each for each in (await waiting.get("/v1/runs/f/actions")).json()["items"]}
    assert (found["Hidden"]["status"], found["Wait"]["status"]) == ("Succeeded", "Running")
    one = (await waiting.get("/v1/runs/f/actions?path=Wait")).json()["items"]
    assert [each["name"] for each in one] == ["Wait"]
    assert (await waiting.get("/v1/runs/s/actions")).status_code == 400
    assert (await waiting.get("/v1/runs/f/loops?all=true")).json()["items"] == []


async def test_a_flow_goes_on_with_an_event_of_its_own_name(waiting: httpx2.AsyncClient) -> None:
    sent = await waiting.post("/v1/runs/f/events", json={"type": "Go", "value": {"n": 1}})
    assert (sent.status_code, sent.json()["delivered"]) == (200, "waiter")
    ended = (await waiting.get("/v1/runs/f?wait=10")).json()
    assert (ended["status"], ended["kind"]) == ("completed", "flow")
    assert ended["result"]["status"] == "Succeeded"
    found = {each["name"]: each["status"] for each in (await waiting.get("/v1/runs/f/actions")).json()["items"]}
    assert found == {"Hidden": "Succeeded", "Wait": "Succeeded"}


async def test_what_is_secure_is_masked_everywhere(waiting: httpx2.AsyncClient) -> None:
    await waiting.post("/v1/runs/f/pause")
    views = [
        "/v1/runs/f",
        "/v1/runs",
        "/v1/runs/f/history",
        "/v1/runs/f/history?commands=true",
        "/v1/runs/f/state",
        "/v1/runs/f/state?tick=0",
        "/v1/runs/f/actions",
        "/v1/runs/f/loops?all=true",
    ]
    await waiting.post("/v1/runs/f/resume")
    for step in ("before", "after"):
        for path in views:
            answer = await waiting.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert not any(secret in answer.text for secret in SECRETS), (step, path)
        await waiting.post("/v1/runs/f/events", json={"type": "Go", "value": {"n": 1}})
        await waiting.get("/v1/runs/f?wait=10")


async def test_the_loops_of_a_flow_under_way_and_over(served: Served, client: httpx2.AsyncClient) -> None:
    served.runtime.register(loom.load(LOOP), name="loop")
    await client.post("/v1/runs", json={"workflow": "loop", "run_id": "l"})
    await served.until_waiting("l")
    [running] = (await client.get("/v1/runs/l/loops")).json()["items"]
    assert (running["name"], running["status"], running["iteration"]) == ("Again", "running", 1)
    assert (running["max_iterations"], running["path"], running["type"]) == (5, "Again[0]", "until")
    every = (await client.get("/v1/runs/l/loops?all=true")).json()["items"]
    assert [(loop["name"], loop["status"], loop["iteration"]) for loop in every] == [
        ("Again", "running", 1),
        ("Over", "complete", 1),
    ]
    assert set(every[0]) == set(every[1])
    await client.post("/v1/runs/l/events", json={"type": "Go", "value": {"n": 2}})
    assert (await client.get("/v1/runs/l?wait=10")).json()["status"] == "completed"
    assert (await client.get("/v1/runs/l/loops")).json()["items"] == []
    ended = (await client.get("/v1/runs/l/loops?all=true")).json()["items"]
    assert {loop["name"]: loop["status"] for loop in ended} == {"Over": "complete", "Again": "complete"}
    for path, parameter in (("/v1/runs/l/stream?", "internal"), ("/events/l?after_sequence=-1&", "include_internal")):
        quiet, whole = [(await client.get(f"{path}{parameter}={flag}")).text for flag in ("false", "true")]
        assert ("LoopIterationEvent" in quiet, "LoopIterationEvent" in whole) == (False, True)

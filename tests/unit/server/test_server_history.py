"""The past and the state of runs over HTTP, and what is secret in it."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_serving import LOOP, Served, serving

import loom
from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.client import Client
from loom.core.reducer import replay_steps
from loom.runtime.durable import adapter
from loom.server.settings import ServerSettings
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
    for phase in ("before", "after"):
        for path in views:
            answer = await waiting.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert not any(secret in answer.text for secret in SECRETS), (phase, path)
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
    state = (await client.get("/v1/runs/l/state")).json()
    [stands] = state["loops"]
    assert {**stands, "duration": 0} == {**running, "duration": 0}, "the same words"
    await client.post("/v1/runs/l/events", json={"type": "Go", "value": {"n": 2}})
    assert (await client.get("/v1/runs/l?wait=10")).json()["status"] == "completed"
    assert (await client.get("/v1/runs/l/loops")).json()["items"] == []
    ended = (await client.get("/v1/runs/l/loops?all=true")).json()["items"]
    assert {loop["name"]: loop["status"] for loop in ended} == {"Over": "complete", "Again": "complete"}
    [again] = [loop for loop in ended if loop["name"] == "Again"]
    kept = ("type", "condition", "max_iterations", "timeout")
    assert {key: again[key] for key in kept} == {key: running[key] for key in kept}, "what it was before its end"
    for path, parameter in (("/v1/runs/l/stream?", "internal"), ("/events/l?after_sequence=-1&", "include_internal")):
        quiet, whole = [(await client.get(f"{path}{parameter}={flag}")).text for flag in ("false", "true")]
        assert ("LoopIterationEvent" in quiet, "LoopIterationEvent" in whole) == (True, True)
        assert ("ActionEvent" in quiet, "ActionEvent" in whole) == (False, True)


async def test_types_are_spelled_as_documents_spell_them(served: Served, client: httpx2.AsyncClient) -> None:
    say = {"say": {"type": "compose", "inputs": 1}}
    ask = {"type": "waitForEvent", "inputs": {"event": "Go"}}
    body = {"again": {"type": "doUntil", "condition": "@equals(1, 1)", "actions": say}, "ask": ask}
    served.runtime.register(loom.load({"actions": body}), name="spelled")
    await client.post("/v1/runs", json={"workflow": "spelled", "run_id": "t"})
    await served.until_waiting("t")
    spelled = {"again": "doUntil", "say": "compose", "ask": "waitForEvent"}
    for path in ("/v1/runs/t/actions", "/v1/runs/t/loops?all=true"):
        for each in (await client.get(path)).json()["items"]:
            assert each["type"] == spelled[each["name"]], path
    state = (await client.get("/v1/runs/t/state")).json()
    assert [each["type"] for each in state["under_way"]] == ["waitForEvent"]
    graph = (await client.get("/v1/definitions/spelled/graph")).json()
    assert {node["id"]: node["type"] for node in graph["nodes"]} == spelled
    drawn = (await client.get("/workflows/spelled/representation")).json()["graph"]
    assert {node["id"]: node["description"] for node in drawn["nodes"]} == spelled


# -- pruned -----------------------------------------------------------------------------------------------------------


class Again(Event):
    number: int


class Counts(Workflow):
    @step
    async def count(self, ev: StartEvent | Again) -> Again | StopEvent:
        number = ev.number if isinstance(ev, Again) else 0
        return StopEvent(result=number) if number == 40 else Again(number=number + 1)


async def test_every_tick_can_be_looked_at_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", 5)
    async with loom.connect("memory://", prune=True) as runtime:
        runtime.register(Counts(), name="counts")
        await (await runtime.start("counts", run_id="c"))
        row = await runtime.row("c")
        assert row.first_tick > 0, "nothing was pruned"
        async with Served(runtime, ServerSettings()).client() as client:
            told = [await client.get(f"/v1/runs/c/state?tick={tick}") for tick in range(row.head.ticks)]
            assert {answer.status_code for answer in told} == {200, 410}
            assert [answer.status_code for answer in told] == sorted((a.status_code for a in told), reverse=True)
            assert told[0].json()["code"] == "history-gone"
            assert "were pruned" in told[0].json()["detail"]
            forked = await client.post("/v1/runs/c/fork", json={"tick": row.head.ticks - 1})
            assert (forked.status_code, forked.json()["code"]) == (410, "history-gone")
            for query in ("", "?commands=true"):
                whole = await client.get(f"/v1/runs/c/history{query}")
                assert (whole.status_code, whole.json()["code"]) == (410, "history-gone")
            kept = await client.get(f"/v1/runs/c/history?after={row.first_tick - 1}")
            assert [item["seq"] for item in kept.json()["items"]] == list(range(row.first_tick, row.head.ticks))
            assert (await client.get("/v1/runs/c/state")).status_code == 200
            assert (await client.get("/v1/runs/c/replay")).status_code == 200


# -- replayed ---------------------------------------------------------------------------------------------------------


async def test_a_run_gives_what_is_stored(served: Served, client: httpx2.AsyncClient) -> None:
    for name, given in (("asks", {"topic": "x"}), ("flow", {"pin": "1"})):
        await client.post("/v1/runs", json={"workflow": name, "input": given, "run_id": name})
        await served.until_waiting(name)
        run = (await client.get(f"/v1/runs/{name}")).json()
        found = (await client.get(f"/v1/runs/{name}/replay")).json()
        counted = {"first_tick": 0, "ticks": run["tick"] + 1, "events": run["cursor"] + 1}
        assert found == {"run_id": name, "replay": "same", **counted, "snapshot": found["snapshot"], "differences": []}


async def test_what_differs_is_named_and_what_is_secure_is_not_shown(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/runs.db") as served, served.client() as client:
        await client.post("/v1/runs", json={"workflow": "flow", "input": {"pin": "1"}, "run_id": "f"})
        await served.until_waiting("f")
        await client.post("/v1/runs/f/events", json={"type": "Go", "value": {"n": 1}})
        ended = (await client.get("/v1/runs/f?wait=10")).json()
        assert ended["status"] == "completed"
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
            connection.execute("UPDATE runs SET status = 'failed'")
        text = (await client.get("/v1/runs/f/replay")).text
        assert '"different"' in text
        assert "The row says status='failed'; replay gives 'completed'." in text
        assert "s3cret" not in text
        assert "t0p" not in text


async def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/runs.db") as served, served.client() as client:
        await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "x"}, "run_id": "r"})
        await served.until_waiting("r")
        with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
            connection.execute("UPDATE chunks SET data = x'00'")
        answer = await client.get("/v1/runs/r/replay")
        assert (answer.status_code, answer.json()["code"]) == (422, "result-unreadable")
        assert "r" in (await client.get("/v1/runs/r/state")).json()["damaged"]


async def test_who_may_ask(served: Served, client: httpx2.AsyncClient) -> None:
    assert (await client.get("/v1/runs/nobody/replay")).json()["code"] == "run-not-found"
    assert (await client.get("/v1/runs/nobody/replay?deep=true")).status_code == 400
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "x"}, "run_id": "r"})
    for scope, workflows, status in (("read", None, 200), ("event", None, 403), ("read", ("flow",), 404)):
        async with served.client(await served.key(scope, workflows=workflows)) as keyed:
            assert (await keyed.get("/v1/runs/r/replay")).status_code == status


# -- why --------------------------------------------------------------------------------------------------------------


class Halts(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent | None:
        return None


async def test_the_client_is_told_what_holds_a_run(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "w"})
    await served.until_waiting("w")
    transport = httpx2.ASGITransport(app=served.app)
    async with Client("http://127.0.0.1", transport=transport) as caller:
        why = await caller.why("w")
    assert (why.kind, why.status, why.workflow) == ("waiter", "running", "asks")
    assert why.sentence.startswith("Step 'ask' waits for event 'Approval' since ")
    cause = why.causes[0]
    assert (cause.step, cause.event_type, cause.waiter_id is not None) == ("ask", "server_serving.Approval", True)
    shown = (await client.get("/v1/runs/w/why")).json()
    assert shown["causes"][0]["since"].endswith("Z")
    missing = await client.get("/v1/runs/nobody/why")
    assert (missing.status_code, missing.json()["code"]) == (404, "run-not-found")


async def test_stuck_runs_are_shown_and_found(served: Served, client: httpx2.AsyncClient) -> None:
    served.runtime.register(Halts(), name="halts")
    await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "tea"}, "run_id": "w"})
    await client.post("/v1/runs", json={"workflow": "halts", "run_id": "h"})
    await served.until_waiting("w")
    await served.until_waiting("h")
    items = (await client.get("/v1/runs?stuck=true")).json()["items"]
    assert [item["run_id"] for item in items] == ["h"]
    assert items[0]["stuck"] == "Step 'begin' returned None, and nothing else was left to do."
    assert items[0]["error"] is None
    assert items[0]["status"] == "running"
    others = (await client.get("/v1/runs?stuck=false")).json()["items"]
    assert [(item["run_id"], item["stuck"]) for item in others] == [("w", None)]
    assert (await client.get("/v1/runs/h/why")).json()["kind"] == "stuck"
    compatible = (await client.get("/handlers/h")).json()
    assert (compatible["status"], compatible["error"]) == ("running", None)

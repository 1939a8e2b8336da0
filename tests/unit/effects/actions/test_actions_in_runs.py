"""Actions in whole runs of flows: in memory and stored, across a restart and a release."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from action_server import ActionServer, Reply, serving

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.effects.flow_events import FlowEvent
from loom.steps.events import AnswerRefusedEvent


class ApprovalOfRuns(loom.Event):
    ok: bool


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ActionServer]:
    with serving() as running:
        monkeypatch.setenv("LOOM_HTTP_ALLOW", f"127.0.0.1:{running.port}")
        yield running


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("activities", "actors", "ai_providers", "actions"):
        monkeypatch.setattr(HANDLERS, name, {})

    @loom.actor("counter")
    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def receive(self, given: int) -> int:
            self.total += given
            return self.total


def flow(**actions: Any) -> Any:
    return loom.load({"actions": actions})


async def outputs_of(url: str, **actions: Any) -> dict[str, Any]:
    async with loom.connect(url) as runtime:
        runtime.register(flow(**actions), name="main")
        result = await asyncio.wait_for(await runtime.start("main", {}, run_id="r"), 60)
    assert result.status == "Succeeded", result.error
    return {name: action.outputs for name, action in result.actions.items()}


async def test_activities_know_their_run(url: str) -> None:
    @loom.activity("who")
    def who(given: Any, context: loom.ActionContext) -> Any:
        return [given, context.run_id, context.action, context.idempotency_key.startswith("r:")]

    found = await outputs_of(url, one={"type": "activity", "inputs": {"activityType": "who", "input": 5}})
    assert found["one"] == [5, "r", "one", True]


async def test_actors_count_one_message_at_a_time(url: str) -> None:
    each = {"type": "actor", "inputs": {"actorType": "counter", "input": "@item()"}}
    found = await outputs_of(
        url,
        all={"type": "foreach", "items": [1, 2, 3], "actions": {"each": each}},
        private={"type": "actor", "inputs": {"actorType": "counter", "input": 10}},
        own={"type": "actor", "inputs": {"actorType": "counter", "actorId": "x", "input": 4}},
        again={"type": "actor", "inputs": {"actorType": "counter", "actorId": "x", "input": 5}},
    )
    assert (found["private"], found["own"], found["again"]) == (16, 4, 9)


async def test_children_of_both_kinds(url: str) -> None:
    class Doubles(loom.Workflow):
        @loom.step
        async def work(self, ev: loom.StartEvent) -> loom.StopEvent:
            return loom.StopEvent(result={"twice": ev.number * 2})

    answer = {"type": "Response", "inputs": {"statusCode": 201, "body": "@triggerBody()"}}
    async with loom.connect(url) as runtime:
        runtime.register(flow(answer=answer), name="flow")
        runtime.register(Doubles(), name="python")
        runtime.register(
            flow(
                a={"type": "workflow", "inputs": {"workflow": "flow", "body": {"z": 1}}},
                b={
                    "type": "workflow",
                    "inputs": {"host": {"workflow": {"id": "/x/workflows/python"}}, "body": {"number": 4}},
                },
            ),
            name="main",
        )
        result = await asyncio.wait_for(await runtime.start("main", {}), 60)
    assert result.actions["a"].outputs == {"statusCode": 201, "headers": {}, "body": {"z": 1}}
    assert result.actions["b"].outputs == {"twice": 8}


async def test_people_are_asked_until_they_answer_well(url: str) -> None:
    schema = {"type": "object", "properties": {"ok": {"const": True}}}
    asks = {"type": "waitForEvent", "inputs": {"event": "ApprovalOfRuns", "prompt": "ok?", "schema": schema}}
    pays = {"type": "waitForEvent", "inputs": {"event": "paid", "requirements": {"id": 7}}}
    seen: list[loom.Event] = []
    async with loom.connect(url) as runtime:
        runtime.register(flow(asks=asks, pays=pays), name="main")
        handler = await runtime.start("main", {}, run_id="r")
        async for event in handler.stream_events():
            seen.append(event)
            if isinstance(event, loom.InputRequiredEvent) and event.get("event") == "ApprovalOfRuns":
                for ok in (False, True):
                    await runtime.send_event("r", ApprovalOfRuns(ok=ok))
            elif isinstance(event, loom.InputRequiredEvent):
                for number in (6, 7):
                    await runtime.send_event("r", FlowEvent(name="paid", data={"id": number}))
        result = await handler
    assert [result.actions[name].outputs for name in ("asks", "pays")] == [{"ok": True}, {"id": 7}]
    assert [type(event) for event in seen].count(AnswerRefusedEvent) == 1


async def test_polling_goes_on_after_a_restart(server: ActionServer, tmp_path: Path) -> None:
    polled = asyncio.Event()
    loop = asyncio.get_running_loop()

    def still(_: Any) -> Reply:
        loop.call_soon_threadsafe(polled.set)
        return Reply(202, b"{}", headers={"Retry-After": "0"})

    server.replies["/start"] = Reply(202, b"{}", headers={"Location": "/poll", "Retry-After": "0"})
    server.replies["/poll"] = still
    send = {"type": "http", "inputs": {"method": "POST", "uri": f"{server.url}/start"}}
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as runtime:
        runtime.register(flow(send=send), name="main")
        await runtime.start("main", {}, run_id="r")
        await asyncio.wait_for(polled.wait(), 60)
    server.replies["/poll"] = Reply(200, b'"done"')
    async with loom.connect(url) as runtime:
        runtime.register(flow(send=send), name="main")
        result = await asyncio.wait_for(await runtime.handler("r"), 60)
    assert result.actions["send"].outputs["body"] == "done"
    assert [asked.path for asked in server.asked].count("/start") == 1


async def test_a_released_wait_comes_back_with_its_answer(tmp_path: Path) -> None:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db", idle_timeout=0.0) as runtime:
        runtime.register(flow(asks={"type": "waitForEvent", "inputs": {"prompt": "?"}}), name="main")
        await runtime.start("main", {}, run_id="r")
        async with asyncio.timeout(60):
            while runtime.figures["in_memory"]:  # noqa: ASYNC110 - nobody is told of a release
                await asyncio.sleep(0.01)
        await runtime.send_event("r", loom.HumanResponseEvent(answer=42))
        result = await asyncio.wait_for(await runtime.handler("r"), 60)
    assert result.actions["asks"].outputs == {"answer": 42}

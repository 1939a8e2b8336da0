"""What readers get of an event: also where its class is missing, or its values have no form in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.records import EventKind, EventRecord
from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.streams import envelope, one_line, shown
from loom.server.app import create_app

FLOW = {
    "definition": {
        "triggers": {"manual": {"type": "Request"}},
        "actions": {"Compose": {"type": "Compose", "inputs": "@triggerBody()"}},
        "outputs": {"said": {"type": "String", "value": "@outputs('Compose')"}},
    }
}


class Odd(Event):
    value: Any = None


class Talker(Workflow):
    @step
    async def talk(self, ev: StartEvent, ctx: Context) -> StopEvent:
        for value in ((1, 2), b"bytes", float("nan"), 2**100, {"a": {1}}):
            ctx.write_event_to_stream(Odd(value=value))
        return StopEvent(result=None)


async def lines(runtime: Any, path: str) -> list[dict[str, Any]]:
    transport = httpx2.ASGITransport(create_app(runtime), client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(path, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_values_that_json_lacks_have_a_form() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Talker(), name="talker")
        await (await runtime.start("talker", run_id="r"))
        found = await lines(runtime, "/v1/runs/r/stream?type=Odd")
    assert [entry["value"]["value"] for entry in found] == [[1, 2], "bytes", None, 2**100, {"a": [1]}]


def test_an_event_whose_class_is_missing_has_the_fields_that_were_stored() -> None:
    kind = EventKind("gone.Gone", ("gone.Base", "workflows.events.StopEvent", "workflows.events.Event"), "Gone")
    body = json.dumps({"__is_pydantic": True, "value": {"n": 1}, "qualified_name": "gone.Gone"})
    event = shown(EventRecord(kind, body), AnyEventCodec())
    assert envelope(event) == {
        "value": {"n": 1},
        "type": "Gone",
        "types": ["Base", "StopEvent"],
        "qualified_name": "gone.Gone",
    }
    assert event.is_any(frozenset({"gone.Gone"}))
    assert event.is_any(frozenset({"StopEvent"}))
    assert not event.is_any(frozenset({"Other"}))
    assert shown(EventRecord(kind, "no json"), AnyEventCodec()).value == {"stored": "no json"}


def test_no_character_of_a_text_ends_its_line() -> None:
    text = "".join(map(chr, (*range(32), 0x85, 0x2028, 0x2029, 0xE4, 0x1F600)))
    line = one_line({"text": text}).decode()
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"text": text}


async def test_the_stream_of_a_flow_ends_with_its_outputs() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(loom.load(FLOW), name="flow")
        await (await runtime.start("flow", "hello", run_id="r"))
        [own] = await lines(runtime, "/v1/runs/r/stream")
        assert own["type"] == "StopEvent"
        assert own["value"]["result"]["status"] == "Succeeded"
        assert own["value"]["result"]["outputs"] == {"said": "hello"}
        assert "actions" not in own["value"]["result"]
        [old] = await lines(runtime, "/events/r?after_sequence=-1&sse=false")
        assert old["value"] == {"result": {"said": "hello"}}


async def test_a_process_that_lacks_the_code_shows_the_stream(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as worker, loom.connect(url) as other:
        worker.register(Talker(), name="talker")
        await (await worker.start("talker", run_id="r"))
        there = await lines(worker, "/v1/runs/r/stream?internal=true")
        assert await lines(other, "/v1/runs/r/stream?internal=true") == there

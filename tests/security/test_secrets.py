"""Secrets: what a flow marks as secure, and keys, are in no answer, stream, metric, log, error or line of output."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from security_rig import until
from server_serving import Served, serving

import loom
from loom.cli.app import main
from loom.server.app import ROUTES
from loom.server.auth import new_key

SECRET = "hush-9f3a71"
PARTS = ("hush", "9f3a71", "aHVzaC05ZjNhNzE")  # also in Base64
SECURE = {"runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}}}

FLOW: dict[str, Any] = {
    "definition": {
        "parameters": {"token": {"type": "SecureString", "defaultValue": "hush-"}},
        "triggers": {"manual": {"type": "Request", **SECURE}},
        "actions": {
            "Keep": {
                "type": "InitializeVariable",
                "inputs": {"variables": [{"name": "kept", "type": "string", "value": "@parameters('token')"}]},
                "runAfter": {},
                **SECURE,
            },
            "Hidden": {
                "type": "Compose",
                "inputs": "@concat(parameters('token'), triggerBody()?['pin'])",
                "runAfter": {"Keep": ["Succeeded"]},
                **SECURE,
            },
            "Wait": {
                "type": "waitForEvent",
                "inputs": {
                    "event": "Go",
                    "requirements": {"pin": "@outputs('Hidden')"},
                    "prompt": "@outputs('Hidden')",
                },
                "runAfter": {"Hidden": ["Succeeded"]},
                **SECURE,
            },
            "Call": {
                "type": "Http",
                "inputs": {
                    "method": "GET",
                    "uri": "@concat('http://127.0.0.1:1/', outputs('Hidden'), '?', body('Wait'))",
                },
                "retryPolicy": {"type": "none"},
                "runAfter": {"Wait": ["Succeeded"]},
                **SECURE,
            },
            "Handled": {
                "type": "activity",
                "inputs": {"activityType": "fails with what it got", "input": "@outputs('Hidden')"},
                "retryPolicy": {"type": "none"},
                "runAfter": {"Call": ["Failed"]},
                **SECURE,
            },
            "Break": {
                "type": "ParseJson",
                "inputs": {"content": "@outputs('Hidden')", "schema": {"type": "object"}},
                "runAfter": {"Handled": ["Failed"]},
                **SECURE,
            },
        },
        "outputs": {"shown": {"type": "String", "value": "fine"}},
    }
}


@loom.activity("fails with what it got")
async def fails(value: str) -> None:
    raise ValueError(f"cannot use {value}")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What tracing exports."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


ENDLESS = ("/events/", "/v1/changes")
"""Answers that go on until their reader leaves."""


def assert_hidden(text: str, where: object) -> None:
    for part in PARTS:
        assert part not in text, (where, text[max(0, text.find(part) - 200) : text.find(part) + 50])


async def all_answers(client: httpx2.AsyncClient, run_id: str) -> int:
    """Ask every GET route about a run, and look through what it says."""
    asked = 0
    for route in ROUTES:
        if route.method != "GET":
            continue
        path = route.path.replace("{run_id}", run_id).replace("{handler_id}", run_id).replace("{name}", "hides")
        for query in ("", "?commands=true", "?tick=1", "?tick=2", "?all=true", "?format=mermaid", "?internal=true"):
            if "stream" in path or path.startswith(ENDLESS):
                continue
            answer = await client.get(path + query)
            assert_hidden(answer.text, path + query)
            assert_hidden(str(answer.headers), path + query)
            asked += 1
    return asked


async def streams(client: httpx2.AsyncClient, run_id: str) -> None:
    """Read both streams of a run that has ended."""
    for path in (
        f"/v1/runs/{run_id}/stream?internal=true",
        f"/events/{run_id}?include_internal=true&after_sequence=-1",
        f"/events/{run_id}?include_internal=true&after_sequence=-1&sse=false",
    ):
        answer = await client.get(path)
        assert answer.status_code == 200
        assert_hidden(answer.text, path)


async def test_no_answer_of_the_server_no_log_and_no_trace_has_secure_data(
    spans: InMemorySpanExporter, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    served.runtime.register(loom.load(FLOW), name="hides")
    keys = await served.key("start", "event", "read"), await served.key("admin")
    async with served.client(keys[0]) as client, served.client(keys[1]) as admin:
        await _all_of_a_run(served, client)
        document = (await admin.get("/v1/definitions/hides")).json()
        assert document["parameters"]["token"]["defaultValue"] == "hush-", "whoever may put it gets it as it is"
    assert_hidden(caplog.text, "log")
    exported = [span.to_json() for span in spans.get_finished_spans()]
    assert len(exported) >= 3
    assert_hidden("".join(exported), "trace")


async def _all_of_a_run(served: Served, client: httpx2.AsyncClient) -> None:
    start = {"workflow": "hides", "run_id": "r", "input": {"pin": "9f3a71"}}
    answer = await client.post("/v1/runs", json=start)
    assert answer.status_code == 201
    assert_hidden(answer.text, "start")
    await served.until_waiting("r")

    waiter = (await client.get("/v1/runs/r")).json()["active_waiters"][0]
    assert list(waiter["requirements"]) == ["pin"], "its name is shown, its value is not"
    assert await all_answers(client, "r") > 50

    # To try out what it waits for tells nothing.
    for tried in ("wrong", SECRET):
        sent = await client.post("/v1/runs/r/events", json={"type": "Go", "value": {"pin": tried}})
        assert sent.json()["delivered"] == "inbox"
        assert_hidden(sent.text, "send")
    ended = await client.get("/v1/runs/r?wait=10")
    assert ended.json()["status"] == "failed"
    assert_hidden(ended.text, "end")
    actions = (await client.get("/v1/runs/r/actions")).json()["items"]
    failed = {action["name"] for action in actions if action["status"] == "Failed"}
    assert failed == {"Call", "Handled", "Break"}, "each has failed with the secret in its message"
    await all_answers(client, "r")
    await streams(client, "r")
    fork = await client.post("/v1/runs/r/fork", json={"tick": 1})
    assert_hidden(fork.text, "fork")


async def test_refusals_do_not_repeat_what_was_sent(
    served: Served, client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    served.runtime.register(loom.load(FLOW), name="hides")
    requests: list[tuple[str, Any]] = [
        ("/v1/runs", {"workflow": "asks", "input": {"topic": {"x": SECRET}}}),
        ("/v1/runs", {"workflow": "asks", "input": {"times": SECRET, "topic": "x"}}),
        ("/v1/runs", {"workflow": "hides", "parameters": {"unknown": SECRET}}),
        ("/v1/runs", {"workflow": "hides", "parameters": {"token": {"a": SECRET}}}),
        ("/workflows/asks/run-nowait", {"start_event": {"times": SECRET, "topic": "x"}}),
    ]
    for path, body in requests:
        answer = await client.post(path, json=body)
        assert answer.status_code == 400, (path, body, answer.text)
        assert_hidden(answer.text, (path, body))
    assert_hidden(caplog.text, "log")


async def test_keys_are_nowhere_but_with_their_owner(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as served:
        key, other = await served.key("admin"), await served.key("read")
        secret = key.split("_", 2)[2]
        texts: list[str] = []
        async with served.client(key) as client:
            await client.post("/v1/runs", json={"workflow": "asks", "run_id": "r", "input": {"topic": "t"}})
            await client.post("/v1/runs/r/cancel")
            for route in ROUTES:
                if route.method == "GET" and "stream" not in route.path and not route.path.startswith(ENDLESS):
                    answer = await client.get(route.path.replace("{run_id}", "r").replace("{handler_id}", "r"))
                    texts += [answer.text, str(answer.headers)]
        for wrong in (key + "x", other.split("_", 2)[2]):
            async with served.client(wrong) as client:
                texts.append((await client.get("/v1/runs")).text)
        texts.append(caplog.text)
        assert not [text for text in texts if secret in text or other.split("_", 2)[2] in text]
        stored = new_key(("read",))[1]
        assert stored.hash not in "".join(texts)


@pytest.fixture
def command_line(tmp_path: Path) -> Any:
    """Runs the command line on a store that has a run of the flow."""
    store, target = f"sqlite:///{tmp_path}/runs.db", tmp_path / "hides.json"
    target.write_text(json.dumps(FLOW))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--store", store])
        return result.output + (result.stderr or "")

    async def prepare() -> None:
        async with loom.connect(store) as runtime:
            runtime.register(loom.load(FLOW), name="hides")
            options = {"parameters": {"token": "hush-"}, "run_id": "r"}
            await runtime.start("hides", {"pin": "9f3a71"}, **options)
            await until(runtime, "r", lambda info: info.idle_since is not None)

    asyncio.run(prepare())
    return run


def test_no_line_of_the_command_line_has_secure_data(command_line: Any) -> None:
    said = ""
    for arguments in (
        ("workflow", "list"),
        ("workflow", "list", "--json"),
        ("workflow", "status", "r"),
        ("workflow", "status", "r", "--json"),
        ("workflow", "status", "r", "--tick", "2", "--json"),
        ("workflow", "history", "r"),
        ("workflow", "history", "r", "--json"),
        ("workflow", "events", "r", "--json", "--internal"),
        ("workflow", "replay", "r"),
        ("workflow", "replay", "r", "--json"),
    ):
        output = command_line(*arguments)
        assert_hidden(output, arguments)
        said += output
    assert "Wait" in said

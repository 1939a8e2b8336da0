"""Definitions and schedules: what is sent, and what is made of the answers."""

from __future__ import annotations

import json

import httpx2
import pytest
from client_rig import Script, ok, problem

import loom


async def test_definitions_of_all_pages() -> None:
    script = Script(
        ok({"items": [{"name": "a", "kind": "steps", "version": None}], "next_cursor": "n"}),
        ok({"items": [{"name": "b", "kind": "flow", "version": 3, "etag": '"3"'}], "next_cursor": None}),
    )
    async with script.client() as client:
        first, second = await client.definitions()
    assert (first.name, first.kind, second.version, second.etag) == ("a", "steps", 3, '"3"')


async def test_documents_are_sent_as_what_they_are() -> None:
    script = Script(*[ok({"name": "f", "kind": "flow", "version": 1}) for _ in range(3)])
    texts = ['\n{"actions": {}}', "actions: {}\n"]
    async with script.client() as client:
        await client.put_definition("f", {"actions": {}})
        for text in texts:
            await client.put_definition("f", text)
    kinds = [request.headers["content-type"] for request in script.requests]
    assert kinds == ["application/json", "application/json", "application/yaml"]
    assert json.loads(script.requests[0].content) == {"actions": {}}
    assert [request.content.decode() for request in script.requests[1:]] == texts
    assert {(request.method, request.url.path) for request in script.requests} == {("PUT", "/v1/definitions/f")}


async def test_a_stored_definition_that_may_be_stored_is_not_stored_again() -> None:
    """With `If-Match` the second one would be refused, though the first one was it."""
    script = Script(httpx2.ReadError("cut"))
    async with script.client() as client:
        with pytest.raises(loom.StoreUnavailable) as caught:
            await client.put_definition("f", {}, if_match='"1"')
    assert caught.value.outcome_unknown
    assert len(script.requests) == 1


async def test_validation_tells_all_and_raises_nothing() -> None:
    found = {"severity": "error", "code": "x", "path": "/actions/A", "message": "no type", "line": 3, "column": 1}
    script = Script(problem("draining", 503), ok({"valid": False, "diagnostics": [found]}))
    async with script.client() as client:
        validation = await client.validate("actions:\n")
    assert not validation.valid
    assert (validation.diagnostics[0].path, validation.diagnostics[0].line) == ("/actions/A", 3)
    assert {request.headers["content-type"] for request in script.requests} == {"application/yaml"}


async def test_graphs_and_schemas() -> None:
    script = Script(ok({"nodes": [], "edges": []}), httpx2.Response(200, text="flowchart TD\n"), ok({"start": {}}))
    async with script.client() as client:
        assert await client.graph("f") == {"nodes": [], "edges": []}
        assert await client.mermaid("f") == "flowchart TD\n"
        assert await client.schema("f") == {"start": {}}
    assert [str(request.url.raw_path, "ascii") for request in script.requests] == [
        "/v1/definitions/f/graph",
        "/v1/definitions/f/graph?format=mermaid",
        "/v1/definitions/f/schema",
    ]


async def test_schedules() -> None:
    shown = {
        "name": "nightly",
        "workflow": "my",
        "recurrence": {"cron": "0 3 * * *"},
        "next_at": "2026-01-01T03:00:00Z",
    }
    script = Script(ok(shown, 201), ok({"items": [shown], "next_cursor": None}), httpx2.Response(204))
    async with script.client() as client:
        made = await client.schedule("nightly", "my", cron="0 3 * * *", time_zone="Europe/Berlin", input={"a": 1})
        assert list(await client.schedules()) == [made]
        await client.delete_schedule("nightly")
    assert made.next_at is not None
    assert made.next_at.hour == 3
    body = {"name": "nightly", "workflow": "my", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "input": {"a": 1}}
    assert json.loads(script.requests[0].content) == body
    assert script.keys[0]
    assert script.requests[2].url.path == "/v1/schedules/nightly"

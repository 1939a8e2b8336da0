"""Definitions and expressions: validation executes nothing, a document names registered actions only, and expressions
reach nothing but JSON values."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import Any

import httpx2
import pytest
from server_serving import Served, serving

from loom.effects.actions.handlers import HANDLERS

EXPRESSIONS = [
    "@__import__('os').system('id')",
    "@''.__class__.__mro__",
    "@string('').__class__",
    "@json('{}')['__class__']",
    "@triggerBody().__init__.__globals__",
    "@eval('1')",
    "@exec('1')",
    "@open('/etc/passwd')",
    "@globals()",
    "@getattr(1, 'real')",
    "@constructor('return process')()",
    "@{lambda: 1}",
    "@outputs('x').constructor.constructor('return 1')()",
    "@environ('PATH')",
    "@parameters('__class__')",
    "@item().__dict__",
]
HUNGRY = [
    "@length(range(0, 99999999))",
    "@" + "concat(" * 300 + "'a'" + ")" * 300,
    "@replace('" + "a" * 4000 + "', 'a', '" + "b" * 4000 + "')",
    "@" + "add(1," * 200 + "1" + ")" * 200,
    "@string(range(0, 1000000))",
]
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 8}x]\n" for n in range(1, 9))
"""A few lines of YAML that stand for a hundred million items."""


def composed(expression: Any) -> dict[str, Any]:
    return {"definition": {"actions": {"Out": {"type": "Compose", "inputs": expression, "runAfter": {}}}}}


@pytest.fixture
def no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing starts a process or reads a secret of the environment, and no other test has registered a handler."""
    for handlers in (HANDLERS.activities, HANDLERS.actors, HANDLERS.ai_providers, HANDLERS.actions):
        for name in list(handlers):
            monkeypatch.delitem(handlers, name)

    def caught(*args: Any, **options: Any) -> None:
        raise AssertionError(f"escaped: {args} {options}")

    monkeypatch.setattr(os, "system", caught)
    monkeypatch.setattr(os, "popen", caught)
    monkeypatch.setattr(subprocess, "Popen", caught)


async def _outcome(client: httpx2.AsyncClient, name: str, document: Any) -> dict[str, Any]:
    """What comes of a document that is put and started."""
    put = await client.put(f"/v1/definitions/{name}", json=document)
    assert put.status_code in (201, 200, 400, 422), put.text
    if put.status_code >= 400:
        return {"status": "refused"}
    answer = await client.post("/v1/runs?wait=20", json={"workflow": name, "input": {"a": 1}})
    assert answer.status_code in (201, 400), answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
async def test_an_expression_reaches_no_host_object(
    expression: str, client: httpx2.AsyncClient, no_escape: None
) -> None:
    checked = await client.post("/v1/definitions/validate", json=composed(expression))
    assert checked.status_code == 200
    run = await _outcome(client, "attack", composed(expression))
    assert run["status"] in ("refused", "failed"), run
    assert "root:" not in str(run)
    assert "<class" not in str(run)


@pytest.mark.parametrize("expression", HUNGRY, ids=range(len(HUNGRY)))
async def test_an_expression_that_wants_too_much_gets_an_error_soon(
    expression: str, client: httpx2.AsyncClient
) -> None:
    begun = time.monotonic()
    run = await _outcome(client, "hungry", composed(expression))
    assert time.monotonic() - begun < 30
    assert run["status"] in ("refused", "failed", "completed")
    if run["status"] == "completed":
        assert len(str(run)) < 20_000_000


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("python", {"code": "import os; os.system('id')"}),
        ("JavaScriptCode", {"code": "return process.env"}),
        ("CSharpScriptCode", {"CodeFile": "x"}),
        ("ExecutePowershellCode", {"CodeFile": "x"}),
        ("os.system", {"args": ["id"]}),
        ("loom.cli.app:main", {}),
        ("activity", {"activityType": "os.system", "input": "id"}),
        ("activity", {"activityType": "subprocess:run", "input": "id"}),
        ("actor", {"actorType": "os.system", "method": "x"}),
        ("ApiConnection", {"host": {"connection": {"name": "os.system"}}}),
        ("workflow", {"workflow": "loom.schedules"}),
    ],
)
async def test_a_document_runs_registered_actions_only(
    kind: str, inputs: dict[str, Any], client: httpx2.AsyncClient, no_escape: None
) -> None:
    action = {"type": kind, "inputs": inputs, "runAfter": {}, "limit": {"timeout": "PT5S"}}
    action["retryPolicy"] = {"type": "none"}
    document = {"definition": {"actions": {"Attack": action}}}
    assert (await client.post("/v1/definitions/validate", json=document)).status_code == 200
    put = await client.put("/v1/definitions/attack", json=document)
    assert put.status_code in (201, 422), put.text
    if put.status_code == 201:
        answer = await client.post("/v1/runs?wait=0.5", json={"workflow": "attack"})
        assert answer.json()["status"] in ("failed", "running"), answer.text
        assert answer.json()["result"] is None or answer.json()["result"]["outputs"] == {}


async def test_validation_stores_and_starts_nothing(served: Served, client: httpx2.AsyncClient) -> None:
    document = {
        "definition": {
            "triggers": {"often": {"type": "Recurrence", "recurrence": {"frequency": "Second", "interval": 1}}},
            "actions": {"Call": {"type": "Http", "inputs": {"method": "GET", "uri": "http://127.0.0.1:1/"}}},
        }
    }
    before = (await client.get("/v1/definitions")).json()
    for _ in range(3):
        assert (await client.post("/v1/definitions/validate", json=document)).json()["valid"]
    assert (await client.get("/v1/definitions")).json() == before
    assert (await client.get("/v1/schedules")).json()["items"] == []
    assert (await client.get("/v1/runs")).json()["items"] == []


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['id']",
        "definition: !!python/object/new:os.system ['id']",
        LAUGHS,
        "a: &a\n  b: *a\n",
        "- " * 3000,
        "{" * 3000,
        "definition: !include /etc/passwd",
        "<<: !!binary aGk=",
    ],
    ids=range(8),
)
async def test_yaml_makes_no_objects_and_does_not_explode(
    text: str, client: httpx2.AsyncClient, no_escape: None
) -> None:
    for method, path in (("POST", "/v1/definitions/validate"), ("PUT", "/v1/definitions/attack")):
        async with asyncio.timeout(60):
            answer = await client.request(method, path, content=text, headers={"Content-Type": "application/yaml"})
        assert answer.status_code in (400, 413, 422) or not answer.json()["valid"], answer.text
        assert "root:" not in answer.text


async def test_a_definition_needs_the_right_to_define() -> None:
    async with serving() as served:
        for scope in ("read", "start", "event"):
            async with served.client(await served.key(scope)) as client:  # type: ignore[arg-type]
                assert (await client.put("/v1/definitions/x", json=composed("a"))).status_code == 403
                assert (await client.delete("/v1/definitions/flow")).status_code == 403


async def test_a_definition_cannot_take_the_place_of_code(client: httpx2.AsyncClient) -> None:
    for name in ("asks", "loom.schedules", "loom.anything"):
        answer = await client.put(f"/v1/definitions/{name}", json=composed("a"))
        assert answer.status_code in (400, 403, 404, 409), (name, answer.text)

"""`/v1/definitions`: flows that are put, looked at and deleted, and the versions that runs have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from server_serving import FLOW, Asks, Served, serving

import loom
from loom.client import Client
from loom.flows.document import digest_of, document_text, read_document
from loom.server.settings import ServerSettings

YAML = {"Content-Type": "application/yaml"}


def document(word: str = "one", **more: Any) -> dict[str, Any]:
    """A flow that says a word."""
    actions = {"say": {"type": "compose", "inputs": word}}
    return {"actions": actions, "outputs": {"said": {"type": "string", "value": "@outputs('say')"}}, **more}


@pytest.fixture(params=["memory", "sqlite"])
async def served(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Served]:
    """A server that works for all definitions, on either store."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with following(url) as found:
        yield found


class following:  # noqa: N801 - used like a function
    """A server that works for all definitions."""

    def __init__(self, url: str = "memory://") -> None:
        self._runtime = loom.connect(url, definitions=True)

    async def __aenter__(self) -> Served:
        self._runtime.register(Asks(), name="asks")
        await self._runtime.__aenter__()
        return Served(self._runtime, ServerSettings())

    async def __aexit__(self, *error: object) -> None:
        await self._runtime.close()


async def said(client: httpx2.AsyncClient, **more: Any) -> tuple[str, int]:
    """What a new run says, and its version."""
    answer = await client.post("/v1/runs?wait=10", json={"workflow": "f", **more})
    assert answer.status_code == 201, answer.text
    run = answer.json()
    assert run["kind"] == "flow"
    return run["result"]["outputs"]["said"], run["version"]


async def test_putting_versions(client: httpx2.AsyncClient) -> None:
    first = await client.put("/v1/definitions/f", json=document())
    assert (first.status_code, first.headers["location"]) == (201, "/v1/definitions/f")
    made = first.json()
    assert (made["name"], made["kind"], made["version"], made["warnings"]) == ("f", "flow", 1, [])
    assert made["etag"] == first.headers["etag"]
    assert await said(client) == ("one", 1)
    same = await client.put("/v1/definitions/f", json=document())
    assert (same.status_code, same.json()) == (200, made)
    second = await client.put("/v1/definitions/f", json=document("two"))
    assert (second.status_code, second.json()["version"]) == (200, 2)
    assert second.headers["etag"] != made["etag"]
    assert await said(client) == ("two", 2)
    # An earlier content is that version again.
    back = await client.put("/v1/definitions/f", json=document())
    assert (back.status_code, back.json()["version"], back.headers["etag"]) == (200, 1, made["etag"])
    assert await said(client) == ("one", 1)
    listed = (await client.get("/v1/definitions/f/versions")).json()
    assert [(each["version"], each["current"]) for each in listed["items"]] == [(2, False), (1, True)]


async def test_a_run_by_the_number_of_its_version(client: httpx2.AsyncClient) -> None:
    for word in ("one", "two"):
        await client.put("/v1/definitions/f", json=document(word))
    assert await said(client, version=1) == ("one", 1)
    assert await said(client, version=2, run_id="r") == ("two", 2)
    again = await client.post("/v1/runs", json={"workflow": "f", "version": 2, "run_id": "r"})
    assert (again.status_code, again.json()["version"]) == (200, 2)
    other = await client.post("/v1/runs", json={"workflow": "f", "version": 1, "run_id": "r"})
    assert (other.status_code, other.json()["code"]) == (409, "run-exists")
    unknown = await client.post("/v1/runs", json={"workflow": "f", "version": 3})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "definition-not-found")
    assert "no version 3" in unknown.json()["detail"]
    steps = await client.post("/v1/runs", json={"workflow": "asks", "input": {"topic": "now"}, "version": 1})
    assert (steps.status_code, steps.json()["code"]) == (404, "definition-not-found")
    for odd in ("1", 0, True, 1.5):
        refused = await client.post("/v1/runs", json={"workflow": "f", "version": odd})
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "/version")


async def test_conditions(client: httpx2.AsyncClient) -> None:
    async def put(word: str, **headers: str) -> tuple[int, str | None]:
        answer = await client.put("/v1/definitions/f", json=document(word), headers=headers)
        return answer.status_code, answer.json().get("code")

    mismatch = (412, "version-mismatch")
    assert await put("one", **{"If-Match": "*"}) == mismatch
    assert await put("one", **{"If-Match": '"abc"'}) == mismatch
    assert (await client.get("/v1/definitions/f")).status_code == 404
    assert await put("one", **{"If-None-Match": "*"}) == (201, None)
    assert await put("two", **{"If-None-Match": "*"}) == mismatch
    first = (await client.get("/v1/definitions/f")).headers["etag"]
    assert await put("two", **{"If-Match": f'"abc", {first}'}) == (200, None)
    assert await put("three", **{"If-Match": first}) == mismatch
    stale = await client.delete("/v1/definitions/f", headers={"If-Match": first})
    assert (stale.status_code, stale.json()["code"]) == mismatch
    assert await said(client) == ("two", 2)


async def test_of_two_who_expect_the_same_one_wins(client: httpx2.AsyncClient) -> None:
    etag = (await client.put("/v1/definitions/f", json=document())).headers["etag"]
    answers = await asyncio.gather(
        *(
            client.put("/v1/definitions/f", json=document(f"v{number}"), headers={"If-Match": etag})
            for number in range(5)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412, 412]
    assert len((await client.get("/v1/definitions/f/versions")).json()["items"]) == 2


async def test_getting_a_document(client: httpx2.AsyncClient) -> None:
    wrapped = {"definition": document(), "kind": "Stateful"}
    first = await client.put("/v1/definitions/f", json=wrapped)
    shown = await client.get("/v1/definitions/f")
    assert shown.json() == wrapped
    assert (await client.put("/v1/definitions/f", json=shown.json())).json()["version"] == 1
    # A wrapper that says nothing is not kept, and what is shown is the same definition.
    bare = await client.put("/v1/definitions/f", json={"properties": {"definition": document("two")}})
    assert bare.json()["version"] == 2
    shown = await client.get("/v1/definitions/f")
    assert shown.json() == document("two")
    assert (await client.put("/v1/definitions/f", json=shown.json())).json()["version"] == 2
    etag = shown.headers["etag"]
    unchanged = await client.get("/v1/definitions/f", headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", etag)
    older = await client.get("/v1/definitions/f?version=1", headers={"If-None-Match": etag})
    assert (older.status_code, older.json(), older.headers["etag"]) == (200, wrapped, first.headers["etag"])
    assert (await client.get("/v1/definitions/f?version=9")).status_code == 404
    assert (await client.get("/v1/definitions/f?version=0")).status_code == 400
    assert (await client.get("/v1/definitions/f?versoin=1")).status_code == 400


@pytest.mark.parametrize("kind", ["application/yaml", "text/yaml; charset=utf-8", "application/x-yaml"])
async def test_yaml(client: httpx2.AsyncClient, kind: str) -> None:
    text = (
        "actions:\n  say: {type: compose, inputs: one}\noutputs:\n  said: {type: string, value: \"@outputs('say')\"}\n"
    )
    answer = await client.put("/v1/definitions/f", content=text, headers={"Content-Type": kind})
    assert answer.status_code == 201, answer.text
    assert (await client.get("/v1/definitions/f")).json() == document()
    assert await said(client) == ("one", 1)


async def test_all_that_is_wrong_with_a_definition(client: httpx2.AsyncClient) -> None:
    text = """
    actions:
      a b: {type: compose, inputs: "@nope(1)"}
      c: {type: compose, inputs: "@add(1", runAfter: {missing: [Succeeded]}}
    """
    answer = await client.put("/v1/definitions/f", content=text, headers=YAML)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    problem = answer.json()
    assert problem["code"] == "definition-invalid"
    found = {each["path"]: each for each in problem["errors"]}
    assert found.keys() == {"/actions/a b/inputs", "/actions/c/inputs", "/actions/c/runAfter/missing"}
    assert (found["/actions/a b/inputs"]["line"], found["/actions/c/inputs"]["line"]) == (3, 4)
    assert all(each["column"] > 1 and each["message"] for each in found.values())
    assert {path: (each["severity"], each["code"]) for path, each in found.items()} == {
        "/actions/a b/inputs": ("warning", "advice"),
        "/actions/c/inputs": ("error", "invalid"),
        "/actions/c/runAfter/missing": ("error", "invalid"),
    }
    assert (await client.get("/v1/definitions/f")).status_code == 404
    judged = await client.post("/v1/definitions/validate", content=text, headers=YAML)
    assert judged.json() == {"valid": False, "diagnostics": problem["errors"]}


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ('{"actions": {', "application/json", 1),
        ('{"actions": {}}\n{', "application/json", 2),
        ("actions: {}", "application/json", 1),
        ("[]", "application/json", 1),
        ("actions:\n  a: @b", "application/yaml", 2),
    ],
)
async def test_a_text_that_cannot_be_read(client: httpx2.AsyncClient, text: str, kind: str, line: int) -> None:
    headers = {"Content-Type": kind}
    judged = await client.post("/v1/definitions/validate", content=text, headers=headers)
    assert judged.status_code == 200
    [found] = judged.json()["diagnostics"]
    assert (judged.json()["valid"], found["code"], found["path"], found["line"]) == (False, "unreadable", "", line)
    put = await client.put("/v1/definitions/f", content=text, headers=headers)
    assert (put.status_code, put.json()["errors"]) == (422, [found])


async def test_bodies_that_are_none(client: httpx2.AsyncClient) -> None:
    async def code(content: bytes, kind: str) -> tuple[int, str]:
        answer = await client.put("/v1/definitions/f", content=content, headers={"Content-Type": kind})
        return answer.status_code, answer.json()["code"]

    assert await code(b"", "application/json") == (422, "definition-invalid")
    assert await code(b"{}", "text/plain") == (415, "unsupported-media-type")
    assert await code(b"\xff\xfe", "application/yaml") == (400, "invalid-request")
    assert await code(b"[" * 70 + b"]" * 70, "application/json") == (400, "invalid-request")
    assert await code(b"a: " + b"[" * 200 + b"]" * 200, "application/yaml") == (422, "definition-invalid")
    assert await code(b'"' + b"x" * (1 << 20) + b'"', "application/json") == (413, "too-large")
    bomb = b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (n + 1, n + 1, n, n) for n in range(97, 120))
    assert await code(bomb, "application/yaml") == (422, "definition-invalid")


async def test_validating_stores_nothing_and_runs_nothing(client: httpx2.AsyncClient, served: Served) -> None:
    odd = document(actions={"say": {"type": "compose", "inputs": "@outputs('say"}})
    answer = await client.post("/v1/definitions/validate", json=document())
    assert (answer.status_code, answer.json()) == (200, {"valid": True, "diagnostics": []})
    assert (await client.post("/v1/definitions/validate", json=odd)).json()["valid"] is False
    assert [each["name"] for each in (await client.get("/v1/definitions")).json()["items"]] == ["asks"]
    assert [row async for row in served.runtime.list()] == []


async def test_a_document_that_is_only_judged_holds_up_none_that_is_put(client: httpx2.AsyncClient) -> None:
    """A key with scope `read` judges documents: whatever these take, `PUT` has a lock and a thread of its own."""
    sums = [f"@add(1, {number})" for number in range(6000)]  # each one new, for known ones are not compiled again
    large = document(actions={f"A{n}": {"type": "compose", "inputs": sums[20 * n : 20 * n + 20]} for n in range(300)})
    judging = [asyncio.ensure_future(client.post("/v1/definitions/validate", json=large)) for _ in range(3)]
    await asyncio.sleep(0)
    assert (await client.put("/v1/definitions/f", json=document())).status_code == 201
    assert not all(answer.done() for answer in judging)
    assert [(await answer).json()["valid"] for answer in judging] == [True] * 3


async def test_warnings_are_told_with_the_answer(client: httpx2.AsyncClient) -> None:
    unused = document(actions={"say": {"type": "compose", "inputs": "@variables('v')"}})
    answer = await client.put("/v1/definitions/f", json=unused)
    judged = (await client.post("/v1/definitions/validate", json=unused)).json()
    assert (answer.status_code, judged["valid"]) == (201, True)
    assert answer.json()["warnings"] == judged["diagnostics"]
    assert [(each["severity"], each["code"]) for each in judged["diagnostics"]] == [("warning", "advice")]


async def test_deleting(client: httpx2.AsyncClient, served: Served) -> None:
    await client.put("/v1/definitions/f", json=FLOW)
    run_id = (await client.post("/v1/runs", json={"workflow": "f", "input": {"pin": 1}})).json()["run_id"]
    await served.until_waiting(run_id)
    assert (await client.delete("/v1/definitions/f")).status_code == 204
    for answer in (
        await client.delete("/v1/definitions/f"),
        await client.get("/v1/definitions/f"),
        await client.get("/v1/definitions/f/versions"),
        await client.get("/v1/definitions/f/graph"),
        await client.post("/v1/runs", json={"workflow": "f"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "definition-not-found")
    assert [each["name"] for each in (await client.get("/v1/definitions")).json()["items"]] == ["asks"]
    assert (await client.get("/workflows")).json() == {"workflows": ["asks"]}
    assert (await client.post("/workflows/f/run-nowait", json={})).status_code == 404
    await client.post(f"/v1/runs/{run_id}/events", json={"type": "Go", "value": {"n": 1}})
    run = (await client.get(f"/v1/runs/{run_id}?wait=10")).json()
    assert (run["status"], run["version"]) == ("completed", 1)
    again = await client.put("/v1/definitions/f", json=FLOW)
    assert (again.status_code, again.json()["version"]) == (201, 1)
    assert (await client.post("/workflows/f/run-nowait", json={})).status_code == 200


async def test_names_that_belong_to_others(client: httpx2.AsyncClient) -> None:
    for name in ("asks", "loom.schedule", "loom.mine"):
        put = await client.put(f"/v1/definitions/{name}", json=document())
        assert (put.status_code, put.json()["code"]) == (409, "name-taken")
        gone = await client.delete(f"/v1/definitions/{name}")
        assert (gone.status_code, gone.json()["code"]) == (409, "name-taken")
    for name in ("x" * 201, "%00", "a%0Ab", "%20a", "a%5Cb"):
        put = await client.put(f"/v1/definitions/{name}", json=document())
        assert (put.status_code, put.json()["code"]) == (400, "invalid-request"), name
    for name in ("validate", "Bestellung prüfen", "x" * 200):
        assert (await client.put(f"/v1/definitions/{name}", json=document())).status_code == 201
        assert (await client.get(f"/v1/definitions/{name}")).json() == document()


async def test_pages(client: httpx2.AsyncClient) -> None:
    for name in ("b", "d", "a", "c"):
        await client.put(f"/v1/definitions/{name}", json=document())
    await client.delete("/v1/definitions/c")
    names: list[str] = []
    cursor: str | None = None
    while True:
        params = {"limit": "2", **({"cursor": cursor} if cursor is not None else {})}
        page = (await client.get("/v1/definitions", params=params)).json()
        assert len(page["items"]) <= 2
        names += [each["name"] for each in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert names == ["a", "asks", "b", "d"]
    for word in ("two", "three"):
        await client.put("/v1/definitions/a", json=document(word))
    page = (await client.get("/v1/definitions/a/versions?limit=2")).json()
    assert [each["version"] for each in page["items"]] == [3, 2]
    last = (await client.get(f"/v1/definitions/a/versions?limit=2&cursor={page['next_cursor']}")).json()
    assert ([each["version"] for each in last["items"]], last["next_cursor"]) == ([1], None)
    assert (await client.get(f"/v1/definitions?cursor={page['next_cursor']}")).status_code == 400
    assert (await client.get("/v1/definitions?cursor=nonsense")).status_code == 400


async def test_workflows_in_python(client: httpx2.AsyncClient) -> None:
    [listed] = (await client.get("/v1/definitions")).json()["items"]
    expected = {"name": "asks", "kind": "steps", "version": None, "etag": None, "updated_at": None, "served": True}
    expected["enabled"] = True
    assert listed == expected
    shown = (await client.get("/v1/definitions/asks")).json()
    assert (shown["start"], shown["stop"]) == ("Topic", "Done")
    assert {each["type"]: sorted(each["schema"]["properties"]) for each in shown["events"]}["Topic"] == [
        "times",
        "topic",
    ]
    assert (await client.get("/v1/definitions/asks/versions")).json() == {"items": [], "next_cursor": None}
    assert (await client.get("/v1/definitions/asks?version=1")).status_code == 404
    schema = (await client.get("/v1/definitions/asks/schema")).json()
    assert schema["start"]["required"] == ["topic"]
    assert schema["parameters"] is None
    graph = (await client.get("/v1/definitions/asks/graph")).json()
    assert {"ask", "Topic", "Done"} <= {node["id"] for node in graph["nodes"]}
    assert {("Topic", "ask"), ("ask", "Done")} <= {(edge["source"], edge["target"]) for edge in graph["edges"]}
    mermaid = await client.get("/v1/definitions/asks/graph?format=mermaid")
    assert (mermaid.headers["content-type"], mermaid.text[:9]) == ("text/plain; charset=utf-8", "flowchart")


async def test_graphs_and_schemas_of_flows(client: httpx2.AsyncClient) -> None:
    told = document(
        triggers={"manual": {"type": "Request", "inputs": {"schema": {"type": "object", "required": ["n"]}}}},
        parameters={
            "level": {"type": "int", "defaultValue": 3, "allowedValues": [1, 3]},
            "token": {"type": "SecureString", "defaultValue": "hush"},
            "place": {"type": "string"},
        },
    )
    told["actions"]["then"] = {"type": "compose", "inputs": 1, "runAfter": {"say": ["Failed"]}}
    await client.put("/v1/definitions/f", json=told)
    schema = (await client.get("/v1/definitions/f/schema")).json()
    assert schema["start"] == {"type": "object", "required": ["n"]}
    assert schema["parameters"] == {
        "type": "object",
        "properties": {
            "level": {"type": "integer", "enum": [1, 3], "default": 3},
            "token": {"type": "string", "writeOnly": True},
            "place": {"type": "string"},
        },
        "required": ["place"],
    }
    graph = (await client.get("/v1/definitions/f/graph")).json()
    assert [(node["id"], node["node_type"]) for node in graph["nodes"]] == [
        ("trigger:manual", "trigger"),
        ("say", "action"),
        ("then", "action"),
    ]
    assert graph["edges"] == [
        {"source": "trigger:manual", "target": "say", "label": None},
        {"source": "say", "target": "then", "label": "Failed"},
    ]
    await client.put("/v1/definitions/f", json=document())
    assert len((await client.get("/v1/definitions/f/graph?version=1")).json()["nodes"]) == 3
    assert len((await client.get("/v1/definitions/f/graph")).json()["nodes"]) == 1
    mermaid = await client.get("/v1/definitions/f/graph?format=mermaid")
    assert mermaid.text.startswith("flowchart TD\n    n0")
    assert (await client.get("/v1/definitions/f/graph?format=dot")).status_code == 400


async def test_keys(served: Served) -> None:
    admin = await served.key("admin")
    reader = await served.key("read", workflows=("f",))
    owner = await served.key("admin", workflows=("f", "gone"))
    async with served.client(admin) as everything, served.client(reader) as one, served.client(owner) as own:
        await everything.put("/v1/definitions/f", json=document())
        await everything.put("/v1/definitions/g", json=document())
        assert [each["name"] for each in (await one.get("/v1/definitions")).json()["items"]] == ["f"]
        assert [each["name"] for each in (await own.get("/v1/definitions")).json()["items"]] == ["f"]
        assert (await one.get("/v1/definitions/f")).status_code == 200
        for path in ("g", "asks", "g/graph", "g/schema", "g/versions", "nothing"):
            hidden = await one.get(f"/v1/definitions/{path}")
            assert (hidden.status_code, hidden.json()["code"]) == (404, "definition-not-found")
        assert (await one.put("/v1/definitions/f", json=document())).status_code == 403
        assert (await one.delete("/v1/definitions/f")).status_code == 403
        assert (await own.put("/v1/definitions/g", json=document())).status_code == 403
        assert (await own.delete("/v1/definitions/g")).status_code == 403
        assert (await own.put("/v1/definitions/f", json=document("two"))).status_code == 200
        assert (await one.post("/v1/definitions/validate", json=document())).json()["valid"] is True
    async with served.client() as nobody:
        assert (await nobody.get("/v1/definitions")).status_code == 401
        assert (await nobody.post("/v1/definitions/validate", json=document())).status_code == 401


async def test_what_files_registered_has_versions_too() -> None:
    async with serving() as served, served.client() as client:
        listed = {each["name"]: each for each in (await client.get("/v1/definitions")).json()["items"]}
        assert {name: (each["kind"], each["version"]) for name, each in listed.items()} == {
            "asks": ("steps", None),
            "flow": ("flow", 1),
        }
        assert (await client.get("/v1/definitions/flow")).json() == FLOW["definition"]
        assert (await client.put("/v1/definitions/flow", json=document("two"))).json()["version"] == 2
        run = (await client.post("/v1/runs?wait=10", json={"workflow": "flow"})).json()
        assert (run["version"], run["result"]["outputs"]) == (2, {"said": "two"})


async def test_what_was_put_is_there_after_a_restart(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with following(url) as served, served.client() as client:
        await client.put("/v1/definitions/f", json=document())
        await client.put("/v1/definitions/f", json=document("two"))
    async with following(url) as served, served.client() as client:
        assert await said(client) == ("two", 2)
        assert await said(client, version=1) == ("one", 1)


async def test_a_count_above_the_limit_is_refused_when_it_is_put_and_capped_where_it_is_stored(
    served: Served, client: httpx2.AsyncClient
) -> None:
    say = {"type": "compose", "inputs": "one"}
    retry = {"type": "retry", "action": say, "retryPolicy": {"count": 5_000}}
    asked = document(actions={"again": retry}, outputs={"said": {"type": "string", "value": "@outputs('again')"}})
    put = await client.put("/v1/definitions/f", json=asked)
    assert put.status_code == 422
    [found] = put.json()["errors"]
    assert (found["path"], found["message"]) == (
        "/actions/again/retryPolicy/count",
        "Retry count exceeds system limit: 1000",
    )
    assert not (await client.post("/v1/definitions/validate", json=asked)).json()["valid"]
    text = document_text(read_document(asked, name="f"))
    await served.runtime.definitions.stored.put("f", digest_of(text), text.encode())
    assert (await client.get("/v1/definitions/f")).json() == asked
    assert await said(client) == ("one", 1)


async def test_a_stored_text_that_is_damaged(served: Served, client: httpx2.AsyncClient) -> None:
    await served.runtime.definitions.stored.put("f", "0" * 64, b"{}")
    for path in ("f", "f/graph", "f/schema"):
        answer = await client.get(f"/v1/definitions/{path}")
        assert (answer.status_code, answer.json()["code"]) == (422, "definition-invalid")
    start = await client.post("/v1/runs", json={"workflow": "f"})
    assert (start.status_code, start.json()["code"]) == (422, "definition-invalid")
    assert (await client.get("/v1/definitions/f/versions")).status_code == 200
    await served.runtime.store.put_entry("definition", "g", b"[]")
    odd = await client.get("/v1/definitions/g")
    assert (odd.status_code, odd.json()["code"]) == (422, "definition-invalid")
    listed = (await client.get("/v1/definitions")).json()["items"]
    assert [(each["name"], each["version"]) for each in listed] == [("asks", None), ("f", 1), ("g", None)]


async def test_the_client(served: Served) -> None:
    transport = httpx2.ASGITransport(app=served.app, client=("127.0.0.1", 1))
    async with Client("http://127.0.0.1", transport=transport) as client:
        made = await client.put_definition("f", document())
        assert (made.name, made.kind, made.version, made.warnings) == ("f", "flow", 1, [])
        with pytest.raises(loom.DefinitionError, match="1 error") as refused:
            await client.put_definition("f", {"actions": {"a": {"type": "hm", "inputs": "@nope("}}})
        assert {(each.path, each.severity) for each in refused.value.problems} == {
            ("/actions/a/inputs", "error"),
            ("/actions/a/type", "warning"),
        }
        second = await client.put_definition("f", json.dumps(document("two")), if_match=made.etag)
        assert second.version == 2
        assert [(each.version, each.current) for each in await client.versions("f")] == [(2, True), (1, False)]
        assert await client.definition("f", version=1) == document()
        assert [each.name for each in await client.definitions()] == ["asks", "f"]
        judged = await client.validate("actions:\n  a: {type: compose}\n  a: {type: compose, inputs: 1}\n")
        assert judged.diagnostics[0].line is not None
        assert (await client.graph("f"))["nodes"][0]["id"] == "say"
        assert (await client.mermaid("f")).startswith("flowchart")
        assert "parameters" in await client.schema("f")
        run = await client.start("f", None)
        assert (await client.wait(run.run_id)).version == 2
        await client.delete_definition("f")
        assert [each.name for each in await client.definitions()] == ["asks"]

"""The OpenAPI document: it is valid, it has every route and nothing else, and its types are those of the answers."""

from __future__ import annotations

import typing
from typing import Any

import httpx2
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from server_serving import Served, serving
from starlette.applications import Starlette
from starlette.routing import Mount

import loom
from loom.api.answers import promised
from loom.api.definitions import Definition, DefinitionVersion, Diagnostic, PutDefinition, Schedule, Validation
from loom.api.refusals import Place, Problem
from loom.api.runs import Delivery, HistoryItem, Replay, Run, RunError, StreamEvent, Waiter
from loom.api.state import Action, ActionUnderWay, Loop, State
from loom.flows.progress import ActionProgress, ActionState, LoopProgress
from loom.runtime.durable.schedules import ScheduleInfo
from loom.runtime.streams import Shown, entry
from loom.server.app import ROUTES
from loom.server.auth import SCOPES
from loom.server.openapi import document
from loom.server.problems import PROBLEMS

DOCUMENT = document(ROUTES)


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(route.method, route.path.replace(":path}", "}")) for route in ROUTES}


def test_it_is_valid() -> None:
    whole = {**DOCUMENT, "servers": [{"url": "/"}]}
    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(whole)] == []


def test_references_lead_somewhere() -> None:
    for reference in _references(DOCUMENT):
        found: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def _references(value: Any) -> typing.Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _references(each)


def test_names_of_operations_are_unique() -> None:
    names = [route.name for route in ROUTES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_an_operation_says_which_scope_it_needs(route: Any) -> None:
    path = route.path.replace(":path}", "}")
    described = DOCUMENT["paths"][path][route.method.lower()]
    if route.scope is None:
        assert described["security"] == []
    else:
        signed = [{"address": []}] if route.signed is not None else []
        assert described["security"] == [{"bearer": [route.scope]}, {"key": [route.scope]}, *signed]
        assert "401" in described["responses"]


def test_each_way_to_show_a_key_names_all_scopes() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert schemes.keys() == {"bearer", "key", "address"}
    assert all(f"`{scope}`" in schemes[name]["description"] for scope in SCOPES for name in ("bearer", "key"))


def test_only_these_are_open_to_everybody() -> None:
    health = {"/health", "/v1/health/live", "/v1/health/ready"}
    callbacks = {"/v1/callbacks/{token}"}  # their addresses are signed
    own = {"/openapi.json", "/v1/session"}
    assert {route.path for route in ROUTES if route.scope is None} == {*health, *callbacks, *own}


def test_problems_are_told_in_the_words_of_each_face() -> None:
    own = DOCUMENT["paths"]["/v1/runs/{run_id}"]["get"]["responses"]["404"]
    assert own["content"] == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert PROBLEMS["run-not-found"][1] in own["description"]
    compatible = DOCUMENT["paths"]["/handlers/{handler_id}"]["get"]["responses"]
    assert compatible["404"]["content"] == {"application/json": {"schema": {"$ref": "#/components/schemas/Detail"}}}
    either = compatible["500"]["content"]["application/json"]["schema"]["anyOf"]
    assert [each["$ref"].rpartition("/")[2] for each in either] == ["HandlerData", "Detail"]


def test_what_is_posted_or_fires_a_trigger_may_have_an_idempotency_key() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            names = {param["name"] for param in operation["parameters"] if param["in"] == "header"}
            assert "X-Request-ID" in names
            assert ("Idempotency-Key" in names) == (method == "post" or "/invoke" in path)


async def test_everybody_may_read_it(served: Served) -> None:
    await served.key("admin")
    async with served.client(address="203.0.113.7") as stranger:
        response = await stranger.get("/openapi.json")
    assert response.status_code == 200
    found = response.json()
    assert found == msgspec.json.decode(msgspec.json.encode({**DOCUMENT, "servers": [{"url": "/"}]}))
    assert found["info"]["version"] == loom.__version__
    assert found["openapi"].startswith("3.1")


async def test_it_says_where_it_is_mounted() -> None:
    async with serving() as served:
        app = Starlette(routes=[Mount("/loom", served.app)])
        transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            found = (await client.get("/loom/openapi.json")).json()
    assert found["servers"] == [{"url": "/loom"}]
    assert "/v1/runs" in found["paths"]


async def test_a_run_and_a_handler_have_the_keys_of_their_shapes(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post(
        "/v1/runs", json={"workflow": "asks", "input": {"topic": "now"}, "run_id": "r"}, params={"wait": 5}
    )
    assert (await client.get("/v1/runs/r")).json().keys() == set(Run.__struct_fields__)
    schemas = DOCUMENT["components"]["schemas"]
    assert (await client.get("/handlers/r")).json().keys() == schemas["HandlerData"]["properties"].keys()
    state = (await client.get("/v1/runs/r/state")).json()
    assert set(schemas["State"]["required"]) <= state.keys() <= set(State.__struct_fields__)
    assert (await client.get("/v1/runs/no")).json().keys() == set(Problem.__struct_fields__) - {"errors", "error"}


@pytest.mark.parametrize(
    ("shown", "answer"),
    [
        (LoopProgress, Loop),
        (ActionProgress, ActionUnderWay),
        (ActionState, Action),
        (ScheduleInfo, Schedule),
    ],
)
def test_what_is_shown_by_its_fields_has_those_of_its_answer(
    shown: type[msgspec.Struct], answer: type[msgspec.Struct]
) -> None:
    assert set(shown.__struct_fields__) == set(answer.__struct_fields__)


def test_an_entry_of_a_stream_has_the_keys_of_its_type() -> None:
    assert tuple(entry(Shown("E", [], "m.E", {}), 0, 0.0)) == StreamEvent.__struct_fields__


READ = [Run, RunError, Waiter, Delivery, StreamEvent, HistoryItem, Replay, Loop, Action, Schedule, Definition,
        PutDefinition, DefinitionVersion, Validation, Diagnostic, Place, Problem]  # fmt: skip
"""What the client reads answers as."""


@pytest.mark.parametrize("answer", READ, ids=lambda answer: answer.__name__)
def test_the_client_reads_what_the_server_promises(answer: type[msgspec.Struct]) -> None:
    """Promises are about fields that are there, and an answer that keeps them, least and full, can be read."""
    assert promised(answer).keys() <= set(answer.__struct_fields__)
    schema = DOCUMENT["components"]["schemas"][{StreamEvent: "StreamEntry"}.get(answer, answer.__name__)]
    assert set(schema["properties"]) == set(answer.__struct_fields__)
    for whole in (True, False):
        read = msgspec.convert(_made(schema, whole), answer)
        assert isinstance(read, answer)


def _made(schema: dict[str, Any], whole: bool) -> Any:
    """Make an answer that fits a schema: with all that it may have, or with as little as it can."""
    components = DOCUMENT["components"]["schemas"]
    if "$ref" in schema:
        return _made(components[schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        return _made(schema["anyOf"][0 if whole else -1], whole)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    match schema.get("type"):
        case "object":
            names = schema.get("properties", {}) if whole else schema.get("required", ())
            return {name: _made(schema["properties"][name], whole) for name in names}
        case "array":
            return [_made(schema["items"], whole)] if whole and "items" in schema else []
        case kind:
            return {"integer": 1, "number": 1.5, "boolean": True, "string": "text"}.get(str(kind))

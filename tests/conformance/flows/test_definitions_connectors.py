"""Calls of connections in published definitions, against documents that have just the operations that they call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_definitions_load import PUBLISHED

import loom
from loom.effects.actions.connectors.openapi import path_shape
from loom.effects.actions.connectors.requests import method_of
from loom.flows.compiler import load_program
from loom.flows.connections import ConnectionUse
from loom.testing import isolated_handlers

CALLED = ("apiconnection", "apiconnectionwebhook", "openapiconnection", "openapiconnectionwebhook")


def uses_in(path: Path) -> list[ConnectionUse]:
    program = load_program(path.read_text("utf-8-sig"))
    found = [part.connection for part in (*program.triggers, *program.nodes)]
    return [use for use in found if use is not None and use.type in CALLED]


def template(use: ConnectionUse) -> str | None:
    """The path of an operation that a call means: a parameter for each segment with an expression."""
    shape = path_shape(use.inputs["path"])
    if shape is None:
        return None
    cut = [f"{{p{place}}}" if "\0" in segment else segment for place, segment in enumerate(shape.segments)]
    return "/" + "/".join(cut)


def described(uses: list[ConnectionUse]) -> dict[str, dict[str, Any]]:
    """A document for each connection."""
    found: dict[str, dict[str, Any]] = {}
    for use in uses:
        host = {"swagger": "2.0", "host": "x.example.com", "paths": {}}
        paths = found.setdefault(use.names[0], host)["paths"]
        if use.type.startswith("open"):
            names = {key.partition("/")[0] for key in use.inputs["parameters"]}
            whole = {key for key in use.inputs["parameters"] if "/" not in key and key not in ("body", "item")}
            body = [{"name": name, "in": "body", "required": True} for name in sorted(names - whole)]
            given = [{"name": name, "in": "query", "required": True} for name in sorted(whole)] + body[:1]
            name = use.inputs["host"]["operationId"]
            paths.setdefault(f"/{name}", {"post": {"operationId": name, "parameters": given}})
        elif (path := template(use)) is not None:
            given = [{"name": name, "in": "query"} for name in use.inputs.get("queries") or {}]
            operation = paths.setdefault(path, {}).setdefault(method_of(use.type, use.inputs), {"parameters": []})
            operation["parameters"] += given
    return found


WITH_CALLS: list[Path] = [path for path in PUBLISHED if isinstance(path, Path) and uses_in(path)]


@pytest.mark.skipif(not WITH_CALLS, reason="no published definitions are there")
def test_there_are_calls_to_check() -> None:
    assert sum(len(uses_in(path)) for path in WITH_CALLS) >= 120


@pytest.mark.parametrize("path", WITH_CALLS, ids=lambda path: path.stem[:20])
def test_every_call_finds_its_connector_and_its_operation(path: Path) -> None:
    uses = uses_in(path)
    assert all(use.names for use in uses)
    documents = described(uses)
    with isolated_handlers(empty=True):
        for name, document in documents.items():
            loom.connector(name, openapi=document)
        plain = loom.load(path, handlers=loom.ActionHandlers())
        checked = loom.load(path)
        assert checked.warnings == plain.warnings
        assert checked.digest == plain.digest
        for name, document in documents.items():
            without = {**document, "paths": {"/nothing/else/at/all/is/here": {"get": {"operationId": "Nothing"}}}}
            loom.connector(name, openapi=json.loads(json.dumps(without)))
        seen = {use.path for use in uses if use.type.startswith("open") or template(use) is not None}
        try:
            said = loom.load(path).warnings
        except loom.DefinitionError as error:
            said = [*error.problems, *_warnings(path)]
        found = {problem.path for problem in said if "no operation" in problem.message or "has no " in problem.message}
        assert {use for use in seen if not any(place.startswith(use) for place in found)} == set()


def _warnings(path: Path) -> list[Any]:
    """What is only warned of: a path with expressions that do not encode their value may become another one."""
    from loom.runtime.flow import connection_problems

    return connection_problems(load_program(path.read_text("utf-8-sig")))

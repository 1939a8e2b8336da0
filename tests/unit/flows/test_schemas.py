"""The JSON Schema of definitions."""

from __future__ import annotations

import jsonschema_rs
import pytest

from loom.flows.action_types import ACTION_TYPES
from loom.flows.compiler import compile_flow
from loom.flows.schemas import flow_schema

COMPOSE = {"type": "Compose", "inputs": 1}
DIALECTS = [None, "loom", "logicapps"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_valid(dialect):
    jsonschema_rs.meta.validate(flow_schema(dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "document",
    [
        {"actions": {"A": COMPOSE}},
        {"definition": {"actions": {"A": COMPOSE}}, "kind": "Stateful"},
        {"properties": {"definition": {"actions": {"A": COMPOSE}}}},
        {"resources": [{"type": "Microsoft.Logic/workflows", "properties": {"definition": {"actions": {}}}}]},
        {"type": "until", "condition": "@true", "actions": {"A": COMPOSE}},
        {"A": COMPOSE},
        {"actions": {"A": {"type": "SomethingElse", "inputs": [1], "own": True}}},
        {"actions": {"A": {"type": "RESPONSE", "inputs": {"statusCode": "@add(1, 2)", "headers": "@body('x')"}}}},
    ],
)
def test_what_it_accepts(dialect, document):
    jsonschema_rs.validator_for(flow_schema(dialect)).validate(document)
    assert compile_flow(document)[0] is not None


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "action",
    [
        {},
        {"type": 3},
        {"type": "Compose", "runAfter": ["A"]},
        {"type": "UNTIL", "expression": "@true", "condition": "@true"},
        {"type": "Scope", "actions": {"B": {"inputs": 1}}},
        {"type": "If", "expression": 3},
        {"type": "wait", "inputs": {"interval": {"count": 1}}},
        {"type": "InitializeVariable", "inputs": {"variables": [{"name": "x"}]}},
        {"type": "until", "expression": "@true", "limit": {"count": 0}},
    ],
)
def test_what_it_refuses(dialect, action):
    assert not jsonschema_rs.validator_for(flow_schema(dialect)).is_valid({"actions": {"A": action}})


def names(dialect):
    return set(flow_schema(dialect)["$defs"]["action"]["properties"]["type"]["anyOf"][0]["enum"])


def test_each_dialect_has_its_own_names():
    assert {"doUntil", "setVariable", "activity"} <= names("loom")
    assert "SetVariable" not in names("loom")
    assert {"SetVariable", "ApiConnection"} <= names("logicapps")
    assert not {"DoUntil", "doUntil", "Activity"} & names("logicapps")
    assert names(None) == names("loom") | names("logicapps")


def test_every_type_with_fields_is_described():
    described = flow_schema()["$defs"]
    for known in ACTION_TYPES.values():
        if known.fields:
            assert described[f"action{known.name}"]["description"] == known.about

"""Firing of a trigger: schema, conditions and the split."""

from __future__ import annotations

from typing import Any

import pytest

import loom
from loom.flows.compiler import load_program
from loom.flows.triggers import FiringRefused, fired, request_trigger, variable_problems

AT = 1_700_000_000.0


def program(trigger: dict[str, Any] | None = None, **more: Any) -> Any:
    triggers = {"manual": {"type": "Request", **trigger}} if trigger is not None else {}
    actions = {"A": {"type": "Compose", "inputs": 1}}
    return loom.load({"definition": {"triggers": triggers, "actions": actions, **more}}).program


def bodies(found: Any, body: Any, **outputs: Any) -> list[Any] | None:
    return fired(found, request_trigger(found), {"body": body, **outputs}, AT)


def test_without_more_a_firing_is_one_run() -> None:
    assert bodies(program({}), {"a": 1}) == [{"a": 1}]
    assert bodies(program(), 7) == [7]


def test_a_split_gives_the_elements() -> None:
    assert bodies(program({"splitOn": "@triggerBody()?['rows']"}), {"rows": [1, None, {"b": 2}]}) == [1, None, {"b": 2}]
    assert bodies(program({"splitOn": "@triggerOutputs()['queries']['of']"}), None, queries={"of": []}) == []


@pytest.mark.parametrize(("body", "kind"), [({"rows": "text"}, "String"), ({}, "Null"), ({"rows": {}}, "Object")])
def test_what_is_no_array_cannot_be_split(body: Any, kind: str) -> None:
    with pytest.raises(FiringRefused, match=f"'manual' gives (?i:{kind}), not an array"):
        bodies(program({"splitOn": "@triggerBody()?['rows']"}), body)


def test_all_conditions_must_hold() -> None:
    asked = [{"expression": "@greater(triggerBody()['n'], 1)"}, {"expression": "@less(utcNow(), '2024')"}]
    found = program({"conditions": asked})
    assert bodies(found, {"n": 2}) == [{"n": 2}]
    assert bodies(found, {"n": 1}) is None


def test_conditions_see_the_defaults_of_parameters() -> None:
    found = program(
        {"conditions": [{"expression": "@equals(triggerBody(), parameters('least'))"}]},
        parameters={"least": {"type": "Int", "defaultValue": 3}},
    )
    assert bodies(found, 3) == [3]
    assert bodies(found, 4) is None


def test_what_goes_wrong_is_told_unless_it_may_be_a_secret() -> None:
    asked = {"conditions": [{"expression": "@equals(int(triggerBody()), 1)"}]}
    with pytest.raises(FiringRefused, match=r"cannot fire: .*int"):
        bodies(program(asked), "x")
    secure = {"token": {"type": "SecureString", "defaultValue": "hush"}}
    asked = {"conditions": [{"expression": "@equals(int(parameters('token')), 1)"}]}
    with pytest.raises(FiringRefused) as caught:
        bodies(program(asked, parameters=secure), None)
    assert str(caught.value) == "The trigger 'manual' cannot fire."


def test_the_schema_is_about_the_whole_and_asked_for() -> None:
    trigger = {"splitOn": "@triggerBody()['rows']", "inputs": {"schema": {"type": "object", "required": ["rows"]}}}
    strict = program({**trigger, "operationOptions": "EnableSchemaValidation"})
    assert bodies(strict, {"rows": [1]}) == [1]
    with pytest.raises(FiringRefused, match="does not fit the schema"):
        bodies(strict, {"row": [1]})


def test_a_request_fires_the_trigger_that_is_made_for_it() -> None:
    actions = {"A": {"type": "Compose", "inputs": 1}}
    every = {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}}
    both = loom.load({"definition": {"triggers": {"t": every, "r": {"type": "Request"}}, "actions": actions}}).program
    only = loom.load({"definition": {"triggers": {"t": every}, "actions": actions}}).program
    assert [request_trigger(each).name for each in (both, only)] == ["r", "t"]  # type: ignore[union-attr]
    assert request_trigger(program()) is None


def test_variables_of_loops_cannot_be_given_at_the_start():
    compiled = load_program({"actions": {"a": {"type": "compose", "inputs": 1}}})
    told = "The variable '{}' is set by the loops themselves, so a start cannot give it."
    assert variable_problems(compiled, {"v": 1, "LoopIndex": 3, "a_loopResult": 1}) == [
        told.format("LoopIndex"),
        told.format("a_loopResult"),
    ]


def test_a_variable_that_the_flow_declares_may_have_any_name():
    init = {"type": "InitializeVariable", "inputs": {"variables": [{"name": "loopCount", "type": "integer"}]}}
    compiled = load_program({"triggers": {"manual": {"type": "Request"}}, "actions": {"init": init}})
    assert variable_problems(compiled, {"loopCount": 3}) == []

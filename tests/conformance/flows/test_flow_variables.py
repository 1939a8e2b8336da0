"""Variables: types and defaults, what fits into them, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import after, azure, compose, initialized, loom, play


def declared(kind: str, **value: Any) -> dict[str, Any]:
    return {"type": "InitializeVariable", "inputs": {"variables": [{"name": "v", "type": kind, **value}]}}


def changed(kind: str, start: dict[str, Any], inputs: dict[str, Any]) -> Any:
    """The value of a variable after one action, or the code of the action's error."""
    action = {"type": kind, "inputs": {"name": "v", **inputs}, "runAfter": after("V")}
    played = play(azure({"V": start, "A": action}))
    assert played.statuses["V"] == "Succeeded"
    if played.statuses["A"] == "Failed":
        return played.result.actions["A"].code
    return played.result.variables["v"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("Boolean", False), ("Integer", 0), ("Float", 0.0), ("String", ""), ("Array", []), ("Object", None)],
)
def test_defaults(kind: str, value: Any) -> None:
    for spelt in (kind, kind.lower(), kind.upper()):
        found = play(azure({"V": declared(spelt)})).result.variables["v"]
        assert (found, type(found)) == (value, type(value))


WRONG = "InvalidVariableOperation"


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("Boolean", "@true", True), ("Boolean", "true", WRONG), ("Boolean", 1, WRONG), ("Boolean", None, WRONG),
        ("Integer", 3, 3), ("Integer", "3", WRONG), ("Integer", 3.5, WRONG), ("Integer", True, WRONG),
        ("Integer", None, WRONG), ("Float", 3, 3.0), ("Float", 3.5, 3.5), ("Float", "3", WRONG), ("Float", None, WRONG),
        ("String", "x", "x"), ("String", None, None), ("String", 1, WRONG), ("String", ["x"], WRONG),
        ("Array", [1], [1]), ("Array", None, None), ("Array", "x", WRONG), ("Array", {"a": 1}, WRONG),
        ("Object", {"a": 1}, {"a": 1}), ("Object", None, None), ("Object", [1], WRONG), ("Object", "x", WRONG),
    ],
)  # fmt: skip
def test_what_fits_into_a_variable(kind: str, value: Any, result: Any) -> None:
    found = changed("SetVariable", declared(kind), {"value": value})
    assert (found, type(found)) == (result, type(result))


@pytest.mark.parametrize("kind", ["Boolean", "Integer", "Float", "String", "Array", "Object"])
def test_a_variable_of_any_type_may_begin_with_null(kind: str) -> None:
    assert play(azure({"V": declared(kind, value="@null")})).result.variables == {"v": None}


@pytest.mark.parametrize(("kind", "value"), [("Integer", "x"), ("Array", {}), ("Boolean", "yes"), ("Float", "1")])
def test_a_first_value_of_another_kind_fails(kind: str, value: Any) -> None:
    played = play(azure({"V": declared(kind, value=value)}))
    assert played.result.actions["V"].code == WRONG
    assert played.result.variables == {}


@pytest.mark.parametrize(
    ("action", "kind", "start", "inputs", "result"),
    [
        ("IncrementVariable", "Integer", 1, {}, 2),
        ("IncrementVariable", "Integer", 1, {"value": "@add(2, 2)"}, 5),
        ("DecrementVariable", "Integer", 1, {}, 0),
        ("DecrementVariable", "Float", 1, {"value": 0.5}, 0.5),
        ("IncrementVariable", "Integer", 1, {"value": 0.5}, WRONG),
        ("IncrementVariable", "Integer", 1, {"value": "x"}, WRONG),
        ("IncrementVariable", "String", "1", {}, WRONG),
        ("IncrementVariable", "Integer", 9223372036854775807, {}, WRONG),
        ("AppendToStringVariable", "String", "a", {"value": "b"}, "ab"),
        ("AppendToStringVariable", "String", "a", {"value": 1}, "a1"),
        ("AppendToStringVariable", "String", "a", {"value": "@null"}, "a"),
        ("AppendToStringVariable", "Integer", 1, {"value": "b"}, WRONG),
        ("AppendToArrayVariable", "Array", [1], {"value": 2}, [1, 2]),
        ("AppendToArrayVariable", "Array", [1], {"value": {"a": 1}}, [1, {"a": 1}]),
        ("AppendToArrayVariable", "Array", [1], {"value": None}, WRONG),
        ("AppendToArrayVariable", "Array", [1], {"value": [2]}, WRONG),
        ("AppendToArrayVariable", "String", "a", {"value": "b"}, WRONG),
    ],
)  # fmt: skip
def test_changes(action: str, kind: str, start: Any, inputs: dict[str, Any], result: Any) -> None:
    assert changed(action, declared(kind, value=start), inputs) == result


def test_a_variable_that_nobody_declared() -> None:
    played = play(azure({"A": {"type": "SetVariable", "inputs": {"name": "nope", "value": 1}}, "B": compose(
        "@variables('nope')"
    )}))  # fmt: skip
    assert played.statuses == {"A": "Failed", "B": "Failed"}
    assert "nope" in played.error("A")
    assert "nope" in played.error("B")


def test_a_near_miss_gets_a_hint() -> None:
    played = play(azure({"V": initialized("counter", "Integer", 1), "B": compose("@variables('countr')", "V")}))
    assert "counter" in played.error("B")


def test_names_ignore_case() -> None:
    played = play(azure({"V": initialized("Total", "Integer", 1), "B": compose("@variables('TOTAL')", "V")}))
    assert played.outputs("B") == 1


def test_several_variables_in_one_action() -> None:
    variables = [{"name": "a", "type": "Integer", "value": 1}, {"name": "b", "type": "String", "value": "@{1}"}]
    played = play(azure({"V": {"type": "InitializeVariable", "inputs": {"variables": variables}}}))
    assert played.result.variables == {"a": 1, "b": "1"}


def test_a_variable_is_initialised_once() -> None:
    played = play(azure({"V": initialized("n", "Integer", 1), "W": initialized("N", "Integer", 2, "V")}))
    assert played.statuses == {"V": "Succeeded", "W": "Failed"}


def test_a_nested_initialisation_starts_anew_in_each_iteration() -> None:
    add = {"type": "IncrementVariable", "inputs": {"name": "n"}, "runAfter": after("V")}
    loop = {"type": "Foreach", "foreach": [1, 2], "operationOptions": "Sequential", "actions": {
        "V": initialized("n", "Integer", 5), "Add": add
    }}  # fmt: skip
    assert play(azure({"E": loop})).result.variables == {"n": 6}


def test_set_variable_may_read_itself() -> None:
    own = {"type": "SetVariable", "inputs": {"name": "v", "value": "@add(variables('v'), 1)"}, "runAfter": after("V")}
    assert play(azure({"V": declared("Integer", value=1), "A": own})).result.variables == {"v": 2}


def test_variables_given_at_the_start_win_over_first_values() -> None:
    played = play(azure({"V": declared("Integer", value=1)}), variables={"v": 7})
    assert played.result.variables == {"v": 7}


def test_a_given_variable_must_fit_its_declaration() -> None:
    assert play(azure({"V": declared("Integer", value=1)}), variables={"v": "x"}).statuses["V"] == "Failed"


def test_looms_set_variable_at_the_top_level_of_the_action() -> None:
    flow = loom({"s": {"type": "setVariable", "name": "v", "value": "@add(1, 1)"}})
    assert play(flow, variables={"v": 0}).result.variables == {"v": 2}


def test_looms_set_variable_begins_a_variable_that_nobody_declared() -> None:
    flow = {
        "s": {"type": "setVariable", "name": "v", "value": 1},
        "t": {"type": "setVariable", "name": "V", "value": "x"},
    }
    assert play(loom(flow)).result.variables == {"v": "x"}


def test_a_variable_that_was_read_is_not_changed_by_later_appends() -> None:
    add = {"type": "AppendToArrayVariable", "inputs": {"name": "v", "value": 2}, "runAfter": after("Before")}
    played = play(azure({"V": declared("Array", value=[1]), "Before": compose("@variables('v')", "V"), "Add": add}))
    assert (played.outputs("Before"), played.result.variables["v"]) == ([1], [1, 2])

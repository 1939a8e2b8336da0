"""If and Switch: conditions as text and as trees, typed cases, and both dialects' ways to write them."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import azure, compose, failing, loom, play


def decided(expression: Any, body: Any = None) -> str:
    """Which branch an If takes, or how it fails."""
    condition = {"type": "If", "expression": expression, "actions": {"Yes": compose(1)}}
    played = play(azure({"If": {**condition, "else": {"actions": {"No": compose(1)}}}}), body)
    statuses = played.statuses
    if statuses["If"] == "Failed":
        assert statuses["Yes"] != "Succeeded" != statuses["No"]
        return played.error("If")
    assert {statuses["Yes"], statuses["No"]} == {"Succeeded", "Skipped"}
    assert played.result.actions["If"].inputs == {"expressionResult": statuses["Yes"] == "Succeeded"}
    return "yes" if statuses["Yes"] == "Succeeded" else "no"


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("@equals(1, 1)", "yes"),
        ("@equals(1, 2)", "no"),
        ({"equals": ["@triggerBody()?['n']", 3]}, "yes"),
        ({"Equals": ["@triggerBody()?['n']", 4]}, "no"),
        ({"and": []}, "no arguments"),
        ({"and": [{"equals": [1, 1]}, {"greater": ["@triggerBody()?['n']", 2]}]}, "yes"),
        ({"AND": [{"equals": [1, 1]}, {"not": {"equals": [1, 1]}}]}, "no"),
        ({"or": [{"equals": [1, 2]}, {"lessOrEquals": [3, 3]}]}, "yes"),
        ({"not": {"equals": ["@triggerBody()?['s']", ""]}}, "yes"),
        ({"not": [{"equals": [1, 1]}]}, "no"),
        ({"not": {"or": [{"equals": [1, 1]}]}}, "no"),
        ({"and": [{"or": [{"and": [{"equals": ["a", "a"]}]}]}]}, "yes"),
        ({"equals": ["@triggerBody()?['missing']", "@null"]}, "yes"),
        ({"equals": ["@triggerBody()?['missing']", None]}, "yes"),
        ({"equals": ["@triggerBody()?['t']", "@true"]}, "yes"),
        ({"equals": ["@triggerBody()?['t']", True]}, "yes"),
        ({"contains": ["@triggerBody()?['list']", "b"]}, "yes"),
        ({"contains": ["@triggerBody()?['s']", "ex"]}, "yes"),
        ({"startsWith": ["@{triggerBody()?['s']}!", "TEXT"]}, "yes"),
        ({"endsWith": ["text", "xt"]}, "yes"),
        ({"greaterOrEquals": ["@length(triggerBody()?['list'])", 2]}, "yes"),
        ({"less": ["a", "b"]}, "yes"),
        ({"empty": "@triggerBody()?['list']"}, "no"),
        ({"not": "@equals(1, 2)"}, "yes"),
        ({"and": ["@equals(1, 1)", "@not(false)"]}, "yes"),
    ],
)
def test_conditions(expression: Any, answer: str) -> None:
    found = decided(expression, {"n": 3, "s": "text", "t": True, "list": ["a", "b"]})
    assert found == answer or (answer == "no arguments" and "InvalidTemplate" in found)


@pytest.mark.parametrize("expression", ["@1", "@'true'", "@null", "@{'plain text'}", {"equals": ["@int('x')", 1]}])
def test_a_condition_must_be_a_boolean(expression: Any) -> None:
    assert "InvalidTemplate" in decided(expression) or "ExpressionEvaluationFailed" in decided(expression)


def test_and_and_or_in_trees_are_lazy() -> None:
    assert decided({"and": [{"equals": [1, 2]}, {"equals": ["@int('x')", 1]}]}) == "no"
    assert decided({"or": [{"equals": [1, 1]}, {"equals": ["@int('x')", 1]}]}) == "yes"


@pytest.mark.parametrize("holds", [True, False])
def test_branches_may_be_missing_or_empty(holds: bool) -> None:
    test = f"@{str(holds).lower()}"
    for more in ({}, {"actions": {}}, {"actions": {}, "else": {}}, {"else": {"actions": {}}}):
        assert play(azure({"If": {"type": "If", "expression": test, **more}})).statuses == {"If": "Succeeded"}


def test_an_if_has_the_status_of_the_branch_that_ran() -> None:
    branches = {"actions": {"A": failing()}, "else": {"actions": {"B": compose(1)}}}
    assert play(azure({"If": {"type": "If", "expression": "@true", **branches}})).statuses["If"] == "Failed"
    assert play(azure({"If": {"type": "If", "expression": "@false", **branches}})).statuses["If"] == "Succeeded"


@pytest.mark.parametrize("condition", ["true", "True", " true ", "@true", "@not(@empty(variables('q')))"])
def test_looms_if_reads_more(condition: str) -> None:
    """Bare text `true`, a nested `@`, `condition`, an `else` that holds its actions itself, fields under `inputs`."""
    fields = {"condition": condition, "actions": {"yes": {"type": "compose", "inputs": 1}}}
    otherwise = {"else": {"no": {"type": "compose", "inputs": 1}}}
    for action in ({"type": "if", **fields, **otherwise}, {"type": "if", "inputs": {**fields, **otherwise}}):
        played = play(loom({"if": action}), variables={"q": [1]})
        assert played.statuses == {"if": "Succeeded", "yes": "Succeeded", "no": "Skipped"}


def test_looms_condition_reads_what_is_not_there_as_null() -> None:
    condition = "@equals(body('later').status, null)"
    flow = {
        "if": {"type": "if", "condition": condition, "actions": {"yes": {"type": "compose", "inputs": 1}}},
        "later": {"type": "compose", "inputs": {"status": "done"}},
    }
    assert play(loom(flow)).statuses["yes"] == "Succeeded"


# -- Switch ------------------------------------------------------------------------------------------------------------


def chosen(value: Any, *cases: Any, default: bool = True) -> str:
    """The case that is taken."""
    branches = {f"C{n}": {"case": case, "actions": {f"A{n}": compose(n)}} for n, case in enumerate(cases)}
    switch: dict[str, Any] = {"type": "Switch", "expression": "@triggerBody()", "cases": branches}
    if default:
        switch["default"] = {"actions": {"D": compose("d")}}
    played = play(azure({"S": switch}), value)
    assert played.statuses["S"] == "Succeeded"
    taken = [name for name, status in played.statuses.items() if status == "Succeeded" and name != "S"]
    assert len(taken) <= 1
    return taken[0] if taken else ""


@pytest.mark.parametrize(
    ("value", "cases", "taken"),
    [
        ("b", ("a", "b"), "A1"),
        ("B", ("a", "b"), "D"),
        (2, (1, 2), "A1"),
        ("2", (1, 2), "D"),
        (2, ("1", "2"), "D"),
        (True, (1, True), "A1"),
        (1, (True, 1), "A1"),
        (None, ("", 0), "D"),
        ("a", ("a", "a"), "A0"),
        ("x", (), "D"),
    ],
)
def test_cases_match_exactly_and_typed(value: Any, cases: tuple[Any, ...], taken: str) -> None:
    assert chosen(value, *cases) == taken


def test_no_match_and_no_default_is_a_success() -> None:
    assert chosen("x", "a", default=False) == ""


def test_a_switch_has_the_status_of_its_branch() -> None:
    switch = {"type": "Switch", "expression": "x", "cases": {"X": {"case": "x", "actions": {"A": failing()}}}}
    assert play(azure({"S": switch})).statuses["S"] == "Failed"


def test_a_switch_whose_expression_fails_takes_no_branch() -> None:
    switch = {"type": "Switch", "expression": "@int('x')", "cases": {"X": {"case": 1, "actions": {"A": compose(1)}}}}
    assert play(azure({"S": switch})).status == "Failed"


@pytest.mark.parametrize(("value", "output"), [("one", 1), ("two", {"n": 2}), ("three", None)])
def test_looms_case_may_be_one_action_whose_output_is_the_switchs(value: str, output: Any) -> None:
    cases = {"one": {"type": "compose", "inputs": 1}, "two": {"type": "compose", "inputs": {"n": 2}}}
    for fields in ({"on": "@triggerBody()", "cases": cases}, {"inputs": {"on": "@triggerBody()", "cases": cases}}):
        played = play(
            loom({"s": {"type": "switch", **fields}, "r": {"type": "compose", "inputs": "@body('s')"}}), value
        )
        assert played.outputs("s") == played.outputs("r") == output

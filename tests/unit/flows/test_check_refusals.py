"""What loading refuses: each with the exact path."""

from __future__ import annotations

import pytest

from loom.flows.limits import Limits
from loom.flows.lower import compile_flow

COMPOSE = {"type": "Compose", "inputs": 1}
REQUEST = {"triggers": {"manual": {"type": "Request"}}}


def errors(source, **kwargs):
    program, problems = compile_flow(source, **kwargs)
    found = [(problem.path, problem.message) for problem in problems if problem.severity == "error"]
    assert (program is None) == bool(found)
    return found


def paths(source, **kwargs):
    return [path for path, _ in errors(source, **kwargs)]


def loop(**fields):
    return {"actions": {"L": {"type": "until", "condition": "@true", "actions": {}, **fields}}}


def test_actions_that_are_no_object():
    assert paths({"actions": []}) == ["actions"]
    assert paths({"actions": {"S": {"type": "Scope", "actions": "x"}}}) == ["actions.S.actions"]


def test_an_action_that_is_no_object():
    assert paths({"actions": {"A": 3}}) == ["actions.A"]


@pytest.mark.parametrize("action", [{}, {"type": ""}, {"type": 3}, {"inputs": {}}])
def test_an_action_without_a_type(action):
    assert errors({"actions": {"A": action}}) == [("actions.A", "an action needs a 'type'")]


@pytest.mark.parametrize(
    ("action", "path"),
    [
        ({"type": "Compose", "inputs": {"a": ["@concat("]}}, "inputs.a[0]"),
        ({"type": "Compose", "inputs": {"@{x": 1}}, "inputs['@{x']"),
        ({"type": "If", "expression": {"and": [{"equals": ["@a b", 1]}]}}, "expression.and[0].equals[0]"),
        ({"type": "Foreach", "foreach": "@items(", "actions": {}}, "foreach"),
        ({"type": "Until", "expression": "@)", "actions": {}}, "expression"),
        ({"type": "Until", "expression": "@true", "limit": {"count": "@)"}, "actions": {}}, "limit.count"),
        ({"type": "Http", "inputs": {"uri": "x@{y"}}, "inputs.uri"),
        ({"type": "Compose", "inputs": 1, "trackedProperties": {"a": "@("}}, "trackedProperties.a"),
        ({"type": "Switch", "expression": "@(", "cases": {}}, "expression"),
    ],
)
def test_an_expression_that_does_not_parse(action, path):
    assert paths({**REQUEST, "actions": {"A": action}}) == [f"actions.A.{path}"]


def test_expressions_outside_of_actions():
    source = {
        "triggers": {"t": {"type": "Request", "conditions": [{"expression": "@("}], "splitOn": "@("}},
        "actions": {},
        "outputs": {"o": {"type": "string", "value": "@("}},
    }
    assert paths(source) == ["triggers.t.conditions[0].expression", "triggers.t.splitOn", "outputs.o.value"]


def test_run_after_of_a_stranger():
    source = {**REQUEST, "actions": {"Get_it": COMPOSE, "B": {**COMPOSE, "runAfter": {"Get_if": ["Succeeded"]}}}}
    _, problems = compile_flow(source)
    (problem,) = problems
    assert problem.path == "actions.B.runAfter.Get_if"
    assert problem.hint == "did you mean 'Get_it'?"


def test_run_after_of_an_action_in_another_container():
    inner = {"type": "Scope", "actions": {"In": COMPOSE}}
    source = {**REQUEST, "actions": {"S": inner, "B": {**COMPOSE, "runAfter": {"In": ["Succeeded"]}}}}
    assert paths(source) == ["actions.B.runAfter.In"]


def test_run_after_that_is_no_object():
    assert paths({**REQUEST, "actions": {"B": {**COMPOSE, "runAfter": ["A"]}}}) == ["actions.B.runAfter"]


def test_statuses_none_of_which_exists():
    source = {**REQUEST, "actions": {"A": COMPOSE, "B": {**COMPOSE, "runAfter": {"A": ["Done"]}}}}
    assert paths(source) == ["actions.B.runAfter.A"]


def test_a_cycle():
    source = {
        **REQUEST,
        "actions": {
            "A": COMPOSE,
            "B": {**COMPOSE, "runAfter": {"A": ["Succeeded"], "D": ["Succeeded"]}},
            "C": {**COMPOSE, "runAfter": {"B": ["Succeeded"]}},
            "D": {**COMPOSE, "runAfter": {"C": ["Succeeded"]}},
        },
    }
    assert errors(source) == [("actions.B.runAfter", "these actions wait for each other: B after D after C after B")]


def test_an_action_after_itself():
    source = {
        **REQUEST,
        "actions": {"S": {"type": "Scope", "actions": {"A": {**COMPOSE, "runAfter": {"a": ["Failed"]}}}}},
    }
    assert errors(source) == [("actions.S.actions.A.runAfter", "these actions wait for each other: A after A")]


@pytest.mark.parametrize("kind", ["until", "Until", "while", "doUntil", "if"])
def test_condition_and_expression_together(kind):
    source = {"actions": {"L": {"type": kind, "condition": "@true", "expression": "@true", "actions": {}}}}
    assert errors(source) == [("actions.L", "'condition' and 'expression' exclude each other")]


def test_condition_and_expression_together_under_inputs():
    source = {"actions": {"L": {"type": "until", "expression": "@true", "inputs": {"condition": "@true"}}}}
    assert paths(source) == ["actions.L"]


def test_sequential_and_repetitions_together():
    each = {"type": "Foreach", "foreach": [], "operationOptions": "Sequential, X", "actions": {}}
    settings = {"runtimeConfiguration": {"concurrency": {"repetitions": 3}}}
    assert paths({**REQUEST, "actions": {"F": {**each, **settings}}}) == ["actions.F.operationOptions"]
    assert paths({**REQUEST, "actions": {"F": each}}) == []


@pytest.mark.parametrize("count", [1001, 0, -1, 2.5, 3.0, True, "3", "three", "a@b", [], {}, "[parameters('n')]"])
def test_a_count_of_a_loom_loop(count):
    assert paths(loop(limit={"count": count})) == ["actions.L.limit.count"]


@pytest.mark.parametrize("count", [1, 1000, "@variables('n')", None])
def test_a_count_that_is_fine(count):
    assert paths(loop(limit={"count": count})) == []


@pytest.mark.parametrize("timeout", ["PT24H1S", "P2D", "1h", "", 60, "-PT5S", [], "[parameters('t')]"])
def test_a_timeout_of_a_loom_loop(timeout):
    assert paths(loop(limit={"timeout": timeout})) == ["actions.L.limit.timeout"]


@pytest.mark.parametrize("timeout", ["PT24H", "P1D", "PT0.5S", "@variables('t')", None])
def test_a_timeout_that_is_fine(timeout):
    assert paths(loop(limit={"timeout": timeout})) == []


def test_the_operator_raises_the_limits():
    source = loop(limit={"count": 1_000_000, "timeout": "P30D"})
    assert paths(source) == ["actions.L.limit.count", "actions.L.limit.timeout"]
    assert paths(source, limits=Limits(max_iterations=1_000_000, max_duration_s=30 * 86_400)) == []


def test_the_system_limits_are_named():
    (count, timeout) = errors(loop(limit={"count": 2000, "timeout": "P2D"}))
    assert count[1] == "Loop count exceeds system limit: 1000"
    assert timeout[1] == "Loop timeout exceeds system limit: 86400 seconds"


def test_two_actions_of_one_name_anywhere():
    source = {"actions": {"A": COMPOSE, "S": {"type": "Scope", "actions": {"a": COMPOSE}}}}
    assert errors(source) == [("actions.S.actions.a", "there are two actions named 'a': the other one is actions.A")]


def test_two_actions_of_one_name_in_the_text():
    text = '{"actions": {"S": {"type": "scope", "actions": {"A": {"type": "compose"}, "A": {"type": "compose"}}}}}'
    assert errors(text) == [("actions.S.actions.A", "there are two actions named 'A'")]
    assert paths("actions:\n  A: {type: compose}\n  A: {type: compose}\n") == ["actions.A"]


def test_the_names_of_loop_variables_are_reserved():
    init = {"type": "initializeVariable", "inputs": {"variables": [{"name": "LoopIndex", "type": "integer"}]}}
    assert paths({"actions": {"i": init}}) == ["actions.i.inputs.variables[0].name"]
    assert paths({**REQUEST, "actions": {"i": init}}) == []


@pytest.mark.parametrize(
    ("action", "path"),
    [
        ({"type": "until", "actions": {}}, ""),
        ({"type": "If", "actions": {}}, ""),
        ({"type": "Switch", "cases": {}}, ""),
        ({"type": "Foreach", "actions": {}}, ""),
        ({"type": "retry"}, ""),
        ({"type": "until", "condition": "@true", "limit": 5}, ".limit"),
        ({"type": "Wait", "inputs": {}}, ""),
        ({"type": "ParseJson", "inputs": {}}, ""),
        ({"type": "SetVariable", "inputs": {"value": 1}}, ""),
        ({"type": "If", "expression": {"and": [], "or": []}}, ".expression"),
        ({"type": "If", "expression": 3}, ".expression"),
        ({"type": "Wait", "inputs": {"interval": {"count": 1}}}, ".inputs.interval"),
        ({"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "fortnight"}}}, ".inputs.interval.unit"),
        ({"type": "Wait", "inputs": {"until": {"timestamp": "soon"}}}, ".inputs.until.timestamp"),
        ({"type": "InitializeVariable", "inputs": {"variables": [{"name": "x"}]}}, ".inputs.variables[0]"),
        (
            {"type": "InitializeVariable", "inputs": {"variables": [{"name": "x", "type": "int"}]}},
            ".inputs.variables[0].type",
        ),
        ({"type": "http", "retry": {"type": "often"}}, ".retry.type"),
        ({"type": "http", "retry": {"count": -1}}, ".retry.count"),
        ({"type": "http", "retry": {"interval": "5s"}}, ".retry.interval"),
        ({"type": "Switch", "on": 1, "cases": {"x": 3}}, ".cases.x"),
        ({"type": "Table", "inputs": {"from": [], "format": "CSV", "columns": ["a"]}}, ".inputs.columns"),
    ],
)
def test_what_could_never_run(action, path):
    assert paths({"actions": {"A": action}}) == [f"actions.A{path}"]


def test_five_mistakes_are_five_problems():
    source = {
        **REQUEST,
        "actions": {
            "Get": {"type": "Http", "inputs": {"uri": "@concat('a'"}},
            "Next": {"type": "Compose", "inputs": 1, "runAfter": {"Gett": ["Succeeded"]}},
            "Loop": {"type": "Until", "condition": "@true", "expression": "@true", "actions": {}},
            "Long": {"type": "while", "condition": "@true", "actions": {}, "limit": {"count": 5000}},
            "None": {"inputs": 1},
        },
    }
    assert paths(source) == [
        "actions.None",
        "actions.Get.inputs.uri",
        "actions.Loop",
        "actions.Long.limit.count",
        "actions.Next.runAfter.Gett",
    ]


def test_a_nested_document_does_not_exhaust_the_stack():
    action = COMPOSE
    for depth in range(45):
        action = {"type": "Scope", "actions": {f"A{depth}": action}}
    assert paths({**REQUEST, "actions": {"Top": action}}) == []


def test_warnings_are_told_beside_errors():
    source = {
        **REQUEST,
        "actions": {"A": {"inputs": 1}, "B": {"type": "Compose", "inputs": ["@body('A')", "@body('C')"]}},
    }
    _, problems = compile_flow(source)
    assert [(problem.path, problem.severity) for problem in problems] == [
        ("actions.A", "error"),
        ("actions.B.inputs[1]", "warning"),
    ]

"""Compiling: what loading refuses, what it warns of, each with the exact path, and documents that are made up."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.flows.compiler import compile_flow, program_of
from loom.flows.document import document_text, read_document
from loom.flows.limits import Limits

COMPOSE = {"type": "Compose", "inputs": 1}
REQUEST = {"triggers": {"manual": {"type": "Request"}}}


def errors(source, **kwargs):
    program, problems = compile_flow(source, **kwargs)
    found = [(problem.path, problem.message) for problem in problems if problem.severity == "error"]
    assert (program is None) == bool(found)
    return found


def error_paths(source, **kwargs):
    return [path for path, _ in errors(source, **kwargs)]


def loop(**fields):
    return {"actions": {"L": {"type": "until", "condition": "@true", "actions": {}, **fields}}}


def test_actions_that_are_no_object():
    assert error_paths({"actions": []}) == ["actions"]
    assert error_paths({"actions": {"S": {"type": "Scope", "actions": "x"}}}) == ["actions.S.actions"]


def test_an_action_that_is_no_object():
    assert error_paths({"actions": {"A": 3}}) == ["actions.A"]


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
    assert error_paths({**REQUEST, "actions": {"A": action}}) == [f"actions.A.{path}"]


def test_expressions_outside_of_actions():
    source = {
        "triggers": {"t": {"type": "Request", "conditions": [{"expression": "@("}], "splitOn": "@("}},
        "actions": {},
        "outputs": {"o": {"type": "string", "value": "@("}},
    }
    assert error_paths(source) == ["triggers.t.conditions[0].expression", "triggers.t.splitOn", "outputs.o.value"]


def test_run_after_of_a_stranger():
    source = {**REQUEST, "actions": {"Get_it": COMPOSE, "B": {**COMPOSE, "runAfter": {"Get_if": ["Succeeded"]}}}}
    _, problems = compile_flow(source)
    (problem,) = problems
    assert problem.path == "actions.B.runAfter.Get_if"
    assert problem.hint == "did you mean 'Get_it'?"


def test_run_after_of_an_action_in_another_container():
    inner = {"type": "Scope", "actions": {"In": COMPOSE}}
    source = {**REQUEST, "actions": {"S": inner, "B": {**COMPOSE, "runAfter": {"In": ["Succeeded"]}}}}
    assert error_paths(source) == ["actions.B.runAfter.In"]


def test_run_after_that_is_no_object():
    assert error_paths({**REQUEST, "actions": {"B": {**COMPOSE, "runAfter": ["A"]}}}) == ["actions.B.runAfter"]


def test_statuses_none_of_which_exists():
    source = {**REQUEST, "actions": {"A": COMPOSE, "B": {**COMPOSE, "runAfter": {"A": ["Done"]}}}}
    assert error_paths(source) == ["actions.B.runAfter.A"]


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
    assert error_paths(source) == ["actions.L"]


def test_sequential_and_repetitions_together():
    each = {"type": "Foreach", "foreach": [], "operationOptions": "Sequential, X", "actions": {}}
    settings = {"runtimeConfiguration": {"concurrency": {"repetitions": 3}}}
    assert error_paths({**REQUEST, "actions": {"F": {**each, **settings}}}) == ["actions.F.operationOptions"]
    assert error_paths({**REQUEST, "actions": {"F": each}}) == []


@pytest.mark.parametrize("count", [1001, 0, -1, 2.5, 3.0, True, "3", "three", "a@b", [], {}, "[parameters('n')]"])
def test_a_count_of_a_loom_loop(count):
    assert error_paths(loop(limit={"count": count})) == ["actions.L.limit.count"]


@pytest.mark.parametrize("count", [1, 1000, "@variables('n')", None])
def test_a_count_that_is_fine(count):
    assert error_paths(loop(limit={"count": count})) == []


@pytest.mark.parametrize("timeout", ["PT24H1S", "P2D", "1h", "", 60, "-PT5S", [], "[parameters('t')]"])
def test_a_timeout_of_a_loom_loop(timeout):
    assert error_paths(loop(limit={"timeout": timeout})) == ["actions.L.limit.timeout"]


@pytest.mark.parametrize("timeout", ["PT24H", "P1D", "PT0.5S", "@variables('t')", None])
def test_a_timeout_that_is_fine(timeout):
    assert error_paths(loop(limit={"timeout": timeout})) == []


def test_the_operator_raises_the_limits():
    source = loop(limit={"count": 1_000_000, "timeout": "P30D"})
    assert error_paths(source) == ["actions.L.limit.count", "actions.L.limit.timeout"]
    assert error_paths(source, limits=Limits(max_iterations=1_000_000, max_duration_s=30 * 86_400)) == []


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
    assert error_paths("actions:\n  A: {type: compose}\n  A: {type: compose}\n") == ["actions.A"]


def test_the_names_of_loop_variables_are_reserved():
    init = {"type": "initializeVariable", "inputs": {"variables": [{"name": "LoopIndex", "type": "integer"}]}}
    assert error_paths({"actions": {"i": init}}) == ["actions.i.inputs.variables[0].name"]
    assert error_paths({**REQUEST, "actions": {"i": init}}) == []


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
    assert error_paths({"actions": {"A": action}}) == [f"actions.A{path}"]


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
    assert error_paths(source) == [
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
    assert error_paths({**REQUEST, "actions": {"Top": action}}) == []


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


def warnings(source):
    program, problems = compile_flow(source)
    assert program is not None, problems
    assert all(problem.severity == "warning" for problem in problems)
    return problems


def warned_paths(source):
    return [problem.path for problem in warnings(source)]


def only(action):
    (problem,) = warnings({**REQUEST, "actions": {"A": action}})
    return problem


def test_an_unknown_function():
    problem = only({"type": "Compose", "inputs": {"x": "@lenght('abc')"}})
    assert problem.path == "actions.A.inputs.x"
    assert "'lenght'" in problem.message
    assert problem.hint == "did you mean 'length'?"


def test_an_unknown_function_in_a_tree():
    problem = only({"type": "If", "expression": {"and": [{"equal": [1, 1]}]}, "actions": {}})
    assert (problem.path, problem.hint) == ("actions.A.expression.and[0].equal", "did you mean 'equals'?")


def test_a_wrong_number_of_arguments():
    problem = only({"type": "Compose", "inputs": "@length('a', 'b')"})
    assert "exactly one argument" in problem.message


def test_an_unknown_action_type():
    problem = only({"type": "Compos", "inputs": 1})
    assert (problem.path, problem.hint) == ("actions.A.type", "did you mean 'Compose'?")


def test_connectors_are_known():
    types = ("ApiConnection", "OPENAPICONNECTION", "serviceProvider", "Function", "Liquid", "Xslt")
    actions = {kind: {"type": kind, "inputs": {}} for kind in types}
    assert warned_paths({**REQUEST, "actions": actions}) == []


@pytest.mark.parametrize("function", ["body", "outputs", "actions", "result", "items"])
def test_an_unknown_action(function):
    source = {**REQUEST, "actions": {"Get_it": COMPOSE, "B": {"type": "Compose", "inputs": f"@{function}('Get_if')"}}}
    (problem,) = warnings(source)
    assert (problem.path, problem.hint) == ("actions.B.inputs", "did you mean 'Get_it'?")


def test_an_unknown_parameter():
    source = {**REQUEST, "parameters": {"limit": {"type": "Int"}}, "actions": {"A": {"type": "Compose", "inputs": ""}}}
    source["actions"]["A"]["inputs"] = "@{parameters('limits')}"
    (problem,) = warnings(source)
    assert (problem.path, problem.hint) == ("actions.A.inputs", "did you mean 'limit'?")


def test_an_unknown_variable():
    init = {"type": "InitializeVariable", "inputs": {"variables": [{"name": "count", "type": "integer"}]}}
    read = {"type": "Compose", "inputs": "@variables('cont')"}
    write = {"type": "SetVariable", "inputs": {"name": "cnt", "value": 1}}
    found = warnings({**REQUEST, "actions": {"i": init, "r": read, "w": write}})
    assert [(problem.path, problem.hint) for problem in found] == [
        ("actions.r.inputs", "did you mean 'count'?"),
        ("actions.w.inputs.name", "did you mean 'count'?"),
    ]


def test_names_without_case_are_known():
    actions = {
        "i": {"type": "InitializeVariable", "inputs": {"variables": [{"name": "Count", "type": "integer"}]}},
        "A": {"type": "Compose", "inputs": ["@variables('COUNT')", "@outputs('I')", "@PARAMETERS('P')"]},
    }
    assert warned_paths({**REQUEST, "parameters": {"p": {"type": "string"}}, "actions": actions}) == []


def test_variables_of_loops_are_known_inside_them():
    inner = {
        "type": "while",
        "condition": "@less(variables('loopIndex'), variables('outer_loopCount'))",
        "actions": {"c": {"type": "compose", "inputs": "@variables('loopResult')"}},
    }
    each = {"type": "foreach", "items": [1], "actions": {"d": {"type": "compose", "inputs": "@variables('item')"}}}
    test = "@equals(variables('loopIndex'), 3)"
    outer = {"type": "until", "condition": test, "actions": {"inner": inner, "each": each}}
    after = {"type": "compose", "inputs": ["@variables('loopIndex')", "@variables('inner_loopIndex')"]}
    assert warned_paths({"actions": {"outer": outer}}) == []
    assert warned_paths({"actions": {"outer": outer, "after": after}}) == [
        "actions.after.inputs[0]",
        "actions.after.inputs[1]",
    ]


def test_no_trigger_in_a_definition_of_logic_apps():
    assert warned_paths({"$schema": "https://x/Microsoft.Logic/schemas/y#", "actions": {}}) == ["triggers"]
    assert warned_paths({"$schema": "./loom-flow.schema.json", "actions": {}}) == []
    assert warned_paths({"triggers": {}, "actions": {}}) == ["triggers"]
    assert warned_paths({"definition": {"contentVersion": "1.0.0.0", "actions": {}}}) == ["definition.triggers"]


def test_no_trigger_in_a_flow_of_loom():
    assert warned_paths({"actions": {"a": {"type": "compose", "inputs": 1}}}) == []


@pytest.mark.parametrize(
    "action",
    [{"type": "Terminate", "inputs": {"runStatus": "Failed"}}, {"type": "Response", "inputs": {"statusCode": 200}}],
)
def test_ends_in_a_loop(action):
    loop = {"type": "Foreach", "foreach": [], "actions": {"S": {"type": "Scope", "actions": {"E": action}}}}
    assert warned_paths({**REQUEST, "actions": {"F": loop}}) == ["actions.F.actions.S.actions.E"]
    assert warned_paths({**REQUEST, "actions": {"E": action}}) == []


def test_a_nested_initialize_variable():
    init = {"type": "InitializeVariable", "inputs": {"variables": [{"name": "x", "type": "string"}]}}
    assert warned_paths({**REQUEST, "actions": {"S": {"type": "Scope", "actions": {"i": init}}}}) == [
        "actions.S.actions.i"
    ]


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "http://example.com/s"}, {"pattern": "(?=a)"}, [], 3])
def test_an_unusable_schema(schema):
    problem = only({"type": "ParseJson", "inputs": {"content": "{}", "schema": schema}})
    assert problem.path == "actions.A.inputs.schema"


def test_an_unusable_schema_of_a_trigger():
    source = {"triggers": {"t": {"type": "Request", "inputs": {"schema": {"type": 3}}}}, "actions": {}}
    assert warned_paths(source) == ["triggers.t.inputs.schema"]


def test_platform_limits():
    deep = COMPOSE
    for depth in range(8):
        deep = {"type": "Scope", "actions": {f"D{depth}": deep}}
    (problem,) = warnings({**REQUEST, "actions": {"Top": deep}})
    assert problem.message == "actions are nested deeper than 8 levels"
    assert problem.path.endswith(".D0")
    long_name = "n" * 81
    assert warned_paths({**REQUEST, "actions": {long_name: COMPOSE}}) == [f"actions.{long_name}"]
    assert warned_paths({**REQUEST, "actions": {f"a{n}": COMPOSE for n in range(501)}}) == ["actions"]
    cases = {f"c{n}": {"case": n, "actions": {}} for n in range(26)}
    assert only({"type": "Switch", "expression": 1, "cases": cases}).path == "actions.A.cases"
    parameters = {f"p{n}": {"type": "string"} for n in range(51)}
    assert warned_paths({**REQUEST, "parameters": parameters, "actions": {}}) == ["parameters"]
    assert warned_paths({**REQUEST, "actions": {}, "outputs": {f"o{n}": {"value": 1} for n in range(11)}}) == [
        "outputs"
    ]
    variables = [{"name": f"v{n}", "type": "string"} for n in range(251)]
    init = {"type": "InitializeVariable", "inputs": {"variables": variables}}
    assert warned_paths({**REQUEST, "actions": {"i": init}}) == ["actions"]
    wide = {"type": "Foreach", "foreach": [], "runtimeConfiguration": {"concurrency": {"repetitions": 51}}}
    assert only(wide).path == "actions.A.runtimeConfiguration.concurrency.repetitions"
    until = {"type": "Until", "expression": "@equals(rand(0, 2), 1)", "limit": {"count": 5001}}
    assert only(until).path == "actions.A.limit.count"
    policy = {"type": "fixed", "count": 91, "interval": "PT1S"}
    retries = {"type": "Http", "inputs": {"uri": "https://a.example", "retryPolicy": policy}}
    assert warned_paths({**REQUEST, "actions": {"A": retries}}) == [
        "actions.A.inputs.retryPolicy.count",
        "actions.A.inputs.retryPolicy.interval",
    ]


def test_limits_of_logic_apps_that_cannot_be_read():
    limit = {"count": "[parameters('n')]", "timeout": "1 hour"}
    until = {"type": "Until", "expression": "@equals(rand(0, 2), 1)", "limit": limit}
    assert warned_paths({**REQUEST, "actions": {"A": until}}) == ["actions.A.limit.count", "actions.A.limit.timeout"]


def test_a_status_that_nobody_has():
    source = {**REQUEST, "actions": {"A": COMPOSE, "B": {**COMPOSE, "runAfter": {"A": ["Succeeded", "Fialed"]}}}}
    (problem,) = warnings(source)
    assert (problem.path, problem.hint) == ("actions.B.runAfter.A", "did you mean 'Failed'?")


def test_a_condition_that_is_text():
    source = {**REQUEST, "actions": {"A": {"type": "If", "expression": "equals(1, 1)", "actions": {}}}}
    for stored, severity in ((False, "error"), (True, "warning")):
        program, (problem,) = compile_flow(source, stored=stored)
        assert (problem.path, problem.hint) == ("actions.A.expression", "an expression begins with @")
        assert (problem.severity, program is not None) == (severity, stored)


RANDOM = "@equals(rand(0, 2), 1)"
LOOP = {"condition": "@equals(variables('loopIndex'), 1)", "actions": {}}
RETRY = {"type": "fixed", "count": 2, "interval": "PT5S"}


def test_another_name_inside_an_action_of_a_map():
    for kind, value in (("compose", "B"), ("http", "B"), ("someConnector", "B"), ("until", 3)):
        source = {"actions": {"A": {"type": kind, "name": value, "inputs": {"uri": "https://a.example"}, **LOOP}}}
        refused, problems = compile_flow(source)
        assert refused is None
        assert ("actions.A.name", "the action is named 'A' already") in [(each.path, each.message) for each in problems]
        assert compile_flow(source, stored=True)[0] is not None
    assert warned_paths({"actions": {"A": {"type": "compose", "name": "A", "inputs": 1}}}) == []


def test_the_name_of_a_variable_or_of_a_child_is_not_the_actions():
    actions = {
        "init": {"type": "initializeVariable", "inputs": {"variables": [{"name": "v", "type": "integer", "value": 1}]}},
        "set": {"type": "setVariable", "name": "v", "value": 2},
        "retry": {"type": "retry", "action": {"type": "compose", "name": "inner", "inputs": 1}, "retryPolicy": RETRY},
    }
    assert warned_paths({"actions": actions}) == []


@pytest.mark.parametrize(
    ("kind", "test"),
    [("until", "@true"), ("while", "true"), ("doUntil", "@equals(1, add(1, 1))"), ("until", {"equals": [1, 2]})],
)
def test_a_loop_whose_condition_is_constant_is_warned_of(kind, test):
    (problem,) = warnings({"actions": {"a": {"type": kind, "condition": test, "actions": {}}}})
    assert (problem.path, problem.message) == ("actions.a.condition", "the condition is constant")


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("@equals(variables('v'), 3)", "variables('v')"),
        ("@equals(body('before'), 3)", "body('before')"),
        ("@equals(parameters('p'), triggerBody())", "parameters('p'), triggerbody()"),
        ("@greater(utcNow(), '2030')", ""),
        ("@equals(variables('w'), 3)", ""),
        ("@equals(variables('loopIndex'), 3)", ""),
        ("@equals(body('inside'), 3)", ""),
        ("@equals(variables(body('before')), 3)", ""),
        ("@equals(iterationIndexes('loop'), 3)", ""),
    ],
)
def test_a_loop_in_which_nothing_changes_what_its_condition_reads_is_warned_of(test, told):
    variables = [{"name": name, "type": "integer", "value": 1} for name in "vw"]
    inside = {
        "inside": {"type": "compose", "inputs": 1},
        "change": {"type": "incrementVariable", "name": "w"},
    }
    actions = {
        "init": {"type": "initializeVariable", "inputs": {"variables": variables}},
        "before": {"type": "compose", "inputs": 1},
        "loop": {"type": "until", "condition": test, "actions": inside},
        "after": {"type": "setVariable", "name": "v", "value": 2},
    }
    found = warnings({"parameters": {"p": {"type": "int"}}, "actions": actions})
    expected = [f"nothing in the loop changes what its condition reads: {told}"] if told else []
    assert [problem.message for problem in found if problem.path == "actions.loop.condition"] == expected


def test_a_run_status_that_does_not_exist():
    problem = only({"type": "Terminate", "inputs": {"runStatus": "Canceled"}})
    assert (problem.path, problem.hint) == ("actions.A.inputs.runStatus", "did you mean 'Cancelled'?")


def test_a_static_result_that_does_not_exist():
    settings = {"staticResult": {"name": "HTTP1", "staticResultOptions": "Enabled"}}
    action = {"type": "Http", "inputs": {"uri": "x"}, "runtimeConfiguration": settings}
    source = {**REQUEST, "actions": {"A": action}, "staticResults": {"HTTP0": {"status": "Succeeded"}}}
    (problem,) = warnings(source)
    assert (problem.path, problem.hint) == ("actions.A.runtimeConfiguration.staticResult.name", "did you mean 'HTTP0'?")


def test_what_is_always_fine():
    actions = {
        "No runAfter #1 (ä)": {"type": "COMPOSE", "inputs": 1},
        "If": {"type": "if", "expression": {"AND": [{"Equals": [1, 1]}, {"not": {"equals": [1, 2]}}]}},
        "Switch": {"type": "Switch", "expression": "x", "cases": {}},
        "Scope": {"type": "Scope"},
        "After_trigger": {"type": "Compose", "inputs": 1, "runAfter": {"manual": ["Succeeded"]}},
        "Join": {
            "type": "Compose",
            "inputs": 1,
            "runAfter": {"if": ["SUCCEEDED", "skipped"], "Scope": ["timedOut", "FAILED"]},
        },
        "Preview": {"type": "Compose", "inputs": 1, "conditions": [{"dependsOn": "Scope"}]},
        "Loop": {"type": "Until", "expression": RANDOM, "limit": {"count": "@add(1, 2)", "timeout": "PT@{1}H"}},
        "Vars": {
            "type": "InitializeVariable",
            "inputs": {"variables": [{"name": "a", "type": "STRING"}, {"name": "b", "type": "Object", "value": {}}]},
        },
        "Wait": {"type": "Wait", "inputs": {"interval": {"count": "@add(1, 2)", "unit": "Minute"}}},
        "Answer": {"type": "Response", "inputs": {"statusCode": "@add(100, 100)"}},
        "Arm": {"type": "Compose", "inputs": "[concat('@{', parameters('x'), ')')]"},
    }
    assert warned_paths({**REQUEST, "actions": actions, "unknown": {"kept": True}}) == []


def test_a_great_many_problems_cost_little():
    actions = {f"name_{n}": {"type": "Compose", "inputs": f"@body('nome_{n}')"} for n in range(3000)}
    found = warnings({**REQUEST, "actions": actions})
    assert len(found) == 3001
    assert found[0].hint
    assert not found[-2].hint


FOLDER = Path(__file__).parents[2] / "conformance" / "flows" / "definitions"
DOCUMENTS = [json.loads(path.read_text(encoding="utf-8-sig")) for path in sorted(FOLDER.glob("*.json"))]
DOCUMENTS.append(read_document((FOLDER / "loom_flow.yaml").read_text(encoding="utf-8")).definition)

WORDS = [
    *("@", "@{", "@@x", "@body('x')", "@{variables('n')}", "@item()", "PT5S", "Succeeded", "until", "Foreach", "If"),
    *(
        "Switch",
        "retry",
        "parallel",
        "",
        "[parameters('x')]",
        "true",
        "@nope(",
        "@equals(1)",
        "name",
        "actions",
        "type",
    ),
]
SCALARS = st.none() | st.booleans() | st.integers(-5, 10_000) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
KEYS = st.sampled_from(
    ["type", "actions", "inputs", "condition", "expression", "runAfter", "limit", "cases", "else", "x"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every container in the data with each of its keys."""
    found = []
    stack = [data]
    while stack:
        value = stack.pop()
        keys = value.keys() if isinstance(value, dict) else range(len(value))
        found.extend((value, key) for key in keys)
        stack.extend(value[key] for key in keys if isinstance(value[key], dict | list))
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_document_is_compiled_or_refused(data):
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    for _ in range(data.draw(st.integers(1, 3))):
        around = places(document)
        if not around:
            break
        container, key = around[data.draw(st.integers(0, len(around) - 1))]
        if isinstance(container, dict) and data.draw(st.booleans()):
            container[data.draw(KEYS | st.sampled_from(WORDS))] = data.draw(VALUES)
        else:
            container[key] = data.draw(VALUES)
    program, problems = compile_flow(document)
    assert (program is None) == any(problem.severity == "error" for problem in problems)
    assert all(isinstance(str(problem), str) for problem in problems)
    if program is not None:
        again = program_of(document_text(read_document(document)))
        assert [node.name for node in again.nodes] == [node.name for node in program.nodes]
        assert again.digest == program.digest


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from('{}[]:,"\n -&*!|>#@%x1'), max_size=60))
def test_any_text_is_read_or_refused(text):
    compile_flow(text)

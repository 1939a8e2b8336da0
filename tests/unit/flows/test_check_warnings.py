"""What loading only warns of, each with the exact path, and what is always fine."""

from __future__ import annotations

import pytest

from loom.flows.lower import compile_flow

COMPOSE = {"type": "Compose", "inputs": 1}
REQUEST = {"triggers": {"manual": {"type": "Request"}}}


def warnings(source):
    program, problems = compile_flow(source)
    assert program is not None, problems
    assert all(problem.severity == "warning" for problem in problems)
    return problems


def paths(source):
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
    assert paths({**REQUEST, "actions": actions}) == []


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
    assert paths({**REQUEST, "parameters": {"p": {"type": "string"}}, "actions": actions}) == []


def test_variables_of_loops_are_known_inside_them():
    inner = {
        "type": "while",
        "condition": "@less(variables('loopIndex'), variables('outer_loopCount'))",
        "actions": {"c": {"type": "compose", "inputs": "@variables('loopResult')"}},
    }
    each = {"type": "foreach", "items": [1], "actions": {"d": {"type": "compose", "inputs": "@variables('item')"}}}
    outer = {"type": "until", "condition": "@true", "actions": {"inner": inner, "each": each}}
    after = {"type": "compose", "inputs": ["@variables('loopIndex')", "@variables('inner_loopIndex')"]}
    assert paths({"actions": {"outer": outer}}) == []
    assert paths({"actions": {"outer": outer, "after": after}}) == [
        "actions.after.inputs[0]",
        "actions.after.inputs[1]",
    ]


def test_no_trigger_in_a_definition_of_logic_apps():
    assert paths({"$schema": "https://x/Microsoft.Logic/schemas/y#", "actions": {}}) == ["triggers"]
    assert paths({"$schema": "./loom-flow.schema.json", "actions": {}}) == []
    assert paths({"triggers": {}, "actions": {}}) == ["triggers"]
    assert paths({"definition": {"contentVersion": "1.0.0.0", "actions": {}}}) == ["definition.triggers"]


def test_no_trigger_in_a_flow_of_loom():
    assert paths({"actions": {"a": {"type": "compose", "inputs": 1}}}) == []


@pytest.mark.parametrize(
    "action",
    [{"type": "Terminate", "inputs": {"runStatus": "Failed"}}, {"type": "Response", "inputs": {"statusCode": 200}}],
)
def test_ends_in_a_loop(action):
    loop = {"type": "Foreach", "foreach": [], "actions": {"S": {"type": "Scope", "actions": {"E": action}}}}
    assert paths({**REQUEST, "actions": {"F": loop}}) == ["actions.F.actions.S.actions.E"]
    assert paths({**REQUEST, "actions": {"E": action}}) == []


def test_a_nested_initialize_variable():
    init = {"type": "InitializeVariable", "inputs": {"variables": [{"name": "x", "type": "string"}]}}
    assert paths({**REQUEST, "actions": {"S": {"type": "Scope", "actions": {"i": init}}}}) == ["actions.S.actions.i"]


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"$ref": "http://example.com/s"}, {"pattern": "(?=a)"}, [], 3])
def test_an_unusable_schema(schema):
    problem = only({"type": "ParseJson", "inputs": {"content": "{}", "schema": schema}})
    assert problem.path == "actions.A.inputs.schema"


def test_an_unusable_schema_of_a_trigger():
    source = {"triggers": {"t": {"type": "Request", "inputs": {"schema": {"type": 3}}}}, "actions": {}}
    assert paths(source) == ["triggers.t.inputs.schema"]


def test_platform_limits():
    deep = COMPOSE
    for depth in range(8):
        deep = {"type": "Scope", "actions": {f"D{depth}": deep}}
    (problem,) = warnings({**REQUEST, "actions": {"Top": deep}})
    assert problem.message == "actions are nested deeper than 8 levels"
    assert problem.path.endswith(".D0")
    long_name = "n" * 81
    assert paths({**REQUEST, "actions": {long_name: COMPOSE}}) == [f"actions.{long_name}"]
    assert paths({**REQUEST, "actions": {f"a{n}": COMPOSE for n in range(501)}}) == ["actions"]
    cases = {f"c{n}": {"case": n, "actions": {}} for n in range(26)}
    assert only({"type": "Switch", "expression": 1, "cases": cases}).path == "actions.A.cases"
    parameters = {f"p{n}": {"type": "string"} for n in range(51)}
    assert paths({**REQUEST, "parameters": parameters, "actions": {}}) == ["parameters"]
    assert paths({**REQUEST, "actions": {}, "outputs": {f"o{n}": {"value": 1} for n in range(11)}}) == ["outputs"]
    variables = [{"name": f"v{n}", "type": "string"} for n in range(251)]
    init = {"type": "InitializeVariable", "inputs": {"variables": variables}}
    assert paths({**REQUEST, "actions": {"i": init}}) == ["actions"]
    wide = {"type": "Foreach", "foreach": [], "runtimeConfiguration": {"concurrency": {"repetitions": 51}}}
    assert only(wide).path == "actions.A.runtimeConfiguration.concurrency.repetitions"
    until = {"type": "Until", "expression": "@true", "limit": {"count": 5001}}
    assert only(until).path == "actions.A.limit.count"
    policy = {"type": "fixed", "count": 91, "interval": "PT1S"}
    retries = {"type": "Http", "inputs": {"uri": "https://a.example", "retryPolicy": policy}}
    assert paths({**REQUEST, "actions": {"A": retries}}) == [
        "actions.A.inputs.retryPolicy.count",
        "actions.A.inputs.retryPolicy.interval",
    ]


def test_limits_of_logic_apps_that_cannot_be_read():
    until = {"type": "Until", "expression": "@true", "limit": {"count": "[parameters('n')]", "timeout": "1 hour"}}
    assert paths({**REQUEST, "actions": {"A": until}}) == ["actions.A.limit.count", "actions.A.limit.timeout"]


def test_a_status_that_nobody_has():
    source = {**REQUEST, "actions": {"A": COMPOSE, "B": {**COMPOSE, "runAfter": {"A": ["Succeeded", "Fialed"]}}}}
    (problem,) = warnings(source)
    assert (problem.path, problem.hint) == ("actions.B.runAfter.A", "did you mean 'Failed'?")


def test_a_condition_that_is_text():
    problem = only({"type": "If", "expression": "equals(1, 1)", "actions": {}})
    assert (problem.path, problem.hint) == ("actions.A.expression", "an expression begins with @")


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
        "Loop": {"type": "Until", "expression": "@true", "limit": {"count": "@add(1, 2)", "timeout": "PT@{1}H"}},
        "Vars": {
            "type": "InitializeVariable",
            "inputs": {"variables": [{"name": "a", "type": "STRING"}, {"name": "b", "type": "Object", "value": {}}]},
        },
        "Wait": {"type": "Wait", "inputs": {"interval": {"count": "@add(1, 2)", "unit": "Minute"}}},
        "Answer": {"type": "Response", "inputs": {"statusCode": "@add(100, 100)"}},
        "Arm": {"type": "Compose", "inputs": "[concat('@{', parameters('x'), ')')]"},
    }
    assert paths({**REQUEST, "actions": actions, "unknown": {"kept": True}}) == []


def test_a_great_many_problems_cost_little():
    actions = {f"name_{n}": {"type": "Compose", "inputs": f"@body('nome_{n}')"} for n in range(3000)}
    found = warnings({**REQUEST, "actions": actions})
    assert len(found) == 3001
    assert found[0].hint
    assert not found[-2].hint

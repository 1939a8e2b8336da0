"""Operations: what becomes of the fields of actions, in both dialects."""

from __future__ import annotations

import pytest

from loom.expressions import ContextEnvironment, ExpressionError
from loom.flows.compiler import compile_flow, load_program
from loom.flows.document import read_document
from loom.flows.program import ActionRetryPolicy

COMPOSE = {"type": "Compose", "inputs": 1}
REQUEST = {"triggers": {"manual": {"type": "Request"}}}
ENV = ContextEnvironment({"variables": {"n": 3, "t": "PT2M", "word": "x", "big": 5000}})


def azure(action, name="A", **more):
    return load_program({**REQUEST, "actions": {name: action}, **more}).find(name)


def loom(action, name="A", **more):
    return load_program({"actions": {name: action}, **more}).find(name)


def test_the_test_of_a_loop_follows_its_key_and_type():
    found = []
    for kind, key in (
        ("until", "condition"),
        ("Until", "expression"),
        ("while", "condition"),
        ("doUntil", "condition"),
    ):
        operation = loom({"type": kind, key: "@equals(1, 1)", "actions": {}}).operation
        found.append(
            (operation.kind, operation.test_first, operation.negated, operation.loom, operation.fails_at_limit)
        )
    assert found == [
        ("until", True, False, True, True),
        ("until", False, False, False, False),
        ("while", True, True, True, True),
        ("doUntil", False, False, True, True),
    ]


def test_a_condition_is_kept_as_it_was_written():
    assert loom({"type": "until", "condition": "@equals(1, 1)"}).operation.text == "@equals(1, 1)"
    tree = {"and": [{"equals": ["@variables('n')", 1]}, {"not": {"empty": ["x"]}}]}
    text = "@and(equals(variables('n'), 1), not(empty('x')))"
    assert loom({"type": "until", "condition": tree}).operation.text == text


def test_limits_of_loops():
    plain = loom({"type": "until", "condition": "@true"}).operation
    assert (plain.count(ENV), plain.timeout_s(ENV), plain.delay_s) == (60, 3600.0, None)
    limit = {"count": "@variables('n')", "timeout": "@variables('t')"}
    own = loom({"type": "until", "condition": "@true", "limit": limit}).operation
    assert (own.count(ENV), own.timeout_s(ENV)) == (3, 120.0)


def test_an_evaluated_limit_is_checked():
    limit = {"count": "@variables('big')", "timeout": "@variables('word')"}
    loop = loom({"type": "until", "condition": "@true", "limit": limit}).operation
    with pytest.raises(ExpressionError, match="exceeds system limit: 1000") as raised:
        loop.count(ENV)
    assert raised.value.path == "limit.count"
    with pytest.raises(ExpressionError, match="no ISO 8601 duration"):
        loop.timeout_s(ENV)


def test_limits_of_logic_apps_are_lowered():
    for count, meant in ((9_999, 5_000), ("7", 7), (7.0, 7), ("@variables('big')", 5_000), ("[parameters('x')]", 60)):
        loop = azure({"type": "Until", "expression": "@true", "limit": {"count": count}}).operation
        assert loop.count(ENV) == meant
    loop = azure({"type": "Until", "expression": "@true", "operationOptions": "FailWhenLimitsReached"}).operation
    assert loop.fails_at_limit
    assert not loop.loom


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        ({"interval": {"count": 5, "unit": "second"}}, 5.0),
        ({"interval": {"count": "@variables('n')", "unit": "Minutes"}}, 180.0),
        ({"count": 1, "unit": "hour"}, 3600.0),
        ("PT5S", 5.0),
    ],
)
def test_the_delay_of_a_loop(delay, seconds):
    assert loom({"type": "until", "condition": "@true", "delay": delay}).operation.delay_s(ENV) == seconds


def test_fields_under_inputs():
    inputs = {"condition": "@false", "limit": {"count": 2}, "actions": {"B": COMPOSE}}
    program = load_program({**REQUEST, "actions": {"A": {"type": "until", "inputs": inputs}}})
    assert program.find("A").operation.count(ENV) == 2
    assert program.find("B").path == "actions.A.inputs.actions.B"


@pytest.mark.parametrize("condition", ["true", " TRUE ", True, "@true", "@equals(variables('n'), 3)"])
def test_conditions_of_loom(condition):
    assert loom({"type": "if", "condition": condition}).operation.condition(ENV) is True


def test_conditions_of_loom_read_what_is_not_there_as_null():
    asked = loom({"type": "until", "condition": "@equals(body('c').status, 'x')", "actions": {"c": COMPOSE}}).operation
    assert asked.condition(ENV) is False
    tree = {"equals": ["@body('c').status", "@null"]}
    assert loom({"type": "if", "condition": tree, "actions": {"c": COMPOSE}}).operation.condition(ENV) is True


def test_a_nested_at_is_ignored_in_loom_only():
    assert loom({"type": "if", "condition": "@not(@empty(variables('word')))"}).operation.condition(ENV) is True
    assert loom({"type": "compose", "inputs": "@concat(@string(1), '2')"}).operation.value(ENV) == "12"
    with pytest.raises(Exception, match=r"actions\.A\.inputs"):
        azure({"type": "compose", "inputs": "@concat(@string(1), '2')"})


@pytest.mark.parametrize(
    ("tree", "result"),
    [
        ({"and": [{"equals": ["@variables('n')", 3]}, {"greater": [2, 1]}]}, True),
        ({"OR": [{"Equals": [1, 2]}, {"not": {"equals": [1, 1]}}]}, False),
        ({"not": [{"equals": [1, 2]}]}, True),
        ({"or": [True, {"nope": []}]}, True),
        ({"and": [{"equals": [{"length": "abc"}, 3]}]}, True),
        ({"equals": [["@variables('n')"], [3]]}, True),
        ({"equals": [{"a": 1, "b": "@variables('n')"}, {"b": 3, "a": 1}]}, True),
        ({"contains": ["@createArray(1, 2)", 2]}, True),
        ({"and": ["@equals(1, 1)"]}, True),
        ({"equals": ["@variables('word')", "x"]}, True),
        ({"empty": ""}, True),
    ],
)
def test_trees(tree, result):
    assert azure({"type": "If", "expression": tree}).operation.condition(ENV) is result


@pytest.mark.parametrize(
    "expression",
    [
        {"and": ["true", True]},
        {"and": []},
        {"not": {"length": ["x"]}},
        {"nope": [1]},
        {"length": ["abc"]},
        {"equals": [1]},
        "@variables('n')",
        "true",
    ],
)
def test_conditions_that_are_no_booleans_fail(expression):
    condition = azure({"type": "If", "expression": expression}).operation.condition
    with pytest.raises(ExpressionError) as raised:
        condition(ENV)
    assert raised.value.path.startswith("expression")


@pytest.mark.parametrize(
    ("more", "width"),
    [
        ({}, 20),
        ({"operationOptions": "Sequential"}, 1),
        ({"operationOptions": "x, sequential"}, 1),
        ({"runtimeConfiguration": {"concurrency": {"repetitions": 7}}}, 7),
        ({"runtimeConfiguration": {"concurrency": {"repetitions": "@variables('n')"}}}, 3),
        ({"runtimeConfiguration": {"concurrency": {"repetitions": "[parameters('n')]"}}}, 20),
        ({"runtimeConfiguration": {"concurrency": {}}}, 20),
    ],
)
def test_the_width_of_a_foreach(more, width):
    assert azure({"type": "Foreach", "foreach": [1], "actions": {}, **more}).operation.width(ENV) == width


def test_a_nested_foreach_goes_one_by_one_unless_it_says_so():
    inner = {"type": "Foreach", "foreach": [1], "actions": {}}
    wide = {**inner, "runtimeConfiguration": {"concurrency": {"repetitions": 5}}}
    until = {"type": "Until", "expression": "@true", "actions": {"deep": inner}}
    outer = {**inner, "actions": {"inner": inner, "wide": wide, "until": until}}
    program = load_program({**REQUEST, "actions": {"outer": outer, "until2": {**until, "actions": {"alone": inner}}}})
    widths = {name: program.find(name).operation.width(ENV) for name in ("outer", "inner", "wide", "deep", "alone")}
    assert widths == {"outer": 20, "inner": 1, "wide": 5, "deep": 1, "alone": 20}


def test_a_foreach_of_loom_goes_one_by_one():
    each = loom({"type": "foreach", "items": "@createArray(1, 2)", "actions": {}}).operation
    assert (each.width(ENV), each.items(ENV), each.loom) == (1, [1, 2], True)
    wide = {"runtimeConfiguration": {"concurrency": {"repetitions": 4}}}
    assert loom({"type": "foreach", "foreach": [], "actions": {}, **wide}).operation.width(ENV) == 4


def test_branches_of_if():
    bare = {"type": "if", "condition": "@true", "actions": {"y": COMPOSE}, "else": {"n": COMPOSE}}
    program = load_program({"actions": {"A": bare}})
    assert [program.nodes[index].name for index in program.blocks[2].nodes] == ["n"]
    assert program.find("n").path == "actions.A.else.n"
    named = {"type": "if", "condition": "@true", "else": {"actions": COMPOSE}}
    assert load_program({"actions": {"A": named}}).find("actions").type == "compose"


def test_switch_of_logic_apps():
    cases = {"one": {"case": 1, "actions": {"b": COMPOSE}}, "text": {"case": "1"}, "at": {"case": "@@x", "actions": {}}}
    node = azure(
        {"type": "Switch", "expression": "@variables('n')", "cases": cases, "default": {"actions": {"d": COMPOSE}}}
    )
    assert node.operation.cases == (1, "1", "@x")
    assert node.operation.has_default
    assert node.operation.single == (False, False, False, False)
    assert node.operation.on(ENV) == 3
    assert len(node.blocks) == 4


def test_switch_of_loom():
    cases = {"A": COMPOSE, "B": {**COMPOSE, "name": "Bee"}, "C": {"actions": {"c": COMPOSE}}}
    program = load_program({"actions": {"s": {"type": "switch", "on": "A", "cases": cases, "default": COMPOSE}}})
    operation = program.find("s").operation
    assert operation.cases == ("A", "B", "C")
    assert operation.single == (True, True, False, True)
    assert [node.name for node in program.nodes] == ["s", "s_A", "Bee", "c", "s_default"]
    assert program.find("s_A").path == "actions.s.cases.A"


def test_retry_of_logic_apps():
    default = ActionRetryPolicy("exponential", 4, 7.0, 5.0, 3600.0, azure=True)
    assert azure({"type": "Http", "inputs": {"uri": "x"}}).retry == default
    assert azure({"type": "ApiConnection", "inputs": {}}).retry == default
    assert azure({"type": "Http", "inputs": {"retryPolicy": {"type": "Default"}}}).retry == default
    assert azure({"type": "Compose", "inputs": 1}).retry is None
    assert azure({"type": "Workflow", "inputs": {}}).retry is None
    assert azure({"type": "Http", "inputs": {"retryPolicy": {"type": "none"}}}).retry is None
    fixed = azure({"type": "Http", "inputs": {"retryPolicy": {"type": "Fixed", "count": 2, "interval": "PT20S"}}})
    assert fixed.retry == ActionRetryPolicy("fixed", 2, 20.0, 5.0, 3600.0, azure=True)
    assert fixed.operation.inputs(ENV) == {}


def test_retry_of_loom():
    assert loom({"type": "http", "inputs": {"uri": "x"}}).retry is None
    policy = {"type": "exponential", "count": 5, "maxInterval": "PT2M", "on": ["Timeout", 500]}
    expected = ActionRetryPolicy("exponential", 5, 5.0, 1.0, 120.0, azure=False, on=("timeout", "500"))
    assert loom({"type": "http", "inputs": {"uri": "x"}, "retry": policy}).retry == expected
    assert loom({"type": "compose", "inputs": 1, "retryPolicy": policy}).retry == expected
    assert loom({"type": "http", "retry": {}}).retry == ActionRetryPolicy("exponential", 3, 5.0, 1.0, 60.0, azure=False)


def test_the_retry_action():
    policy = {"type": "fixed", "count": 1, "interval": "PT1S", "minimumInterval": "PT1S"}
    program = load_program({**REQUEST, "actions": {"r": {"type": "retry", "action": COMPOSE, "retryPolicy": policy}}})
    outer, inner = program.nodes
    assert (outer.retry, outer.type, outer.blocks) == (None, "retry", (1,))
    assert inner.retry == ActionRetryPolicy("fixed", 1, 1.0, 1.0, 60.0, azure=False)
    assert (inner.name, inner.path) == ("r_action", "actions.r.action")
    default = load_program({"actions": {"r": {"type": "retry", "action": {**COMPOSE, "name": "inner"}}}}).find("inner")
    assert default.retry is not None
    assert default.retry.count == 3


def test_static_results():
    settings = {"runtimeConfiguration": {"staticResult": {"name": "R", "staticResultOptions": "Enabled"}}}
    results = {"staticResults": {"R": {"status": "failed", "outputs": {"statusCode": 500}, "code": "Oops"}}}
    found = azure({"type": "Http", "inputs": {}, **settings}, **results).static_result
    assert (found.status, found.outputs(ENV), found.code) == ("Failed", {"statusCode": 500}, "Oops")
    settings["runtimeConfiguration"]["staticResult"]["staticResultOptions"] = "Disabled"
    assert azure({"type": "Http", "inputs": {}, **settings}, **results).static_result is None


def test_set_variable_in_both_spellings():
    for action in ({"inputs": {"name": "x", "value": "@variables('n')"}}, {"name": "x", "value": "@variables('n')"}):
        operation = loom({"type": "setVariable", **action}).operation
        assert (operation.name(ENV), operation.value(ENV)) == ("x", 3)


def test_inputs_of_calls():
    node = azure({"type": "Http", "kind": "X", "inputs": {"uri": "@{variables('word')}"}, "operationOptions": "A, b"})
    assert (node.operation.inputs(ENV), node.operation.options, node.operation.kind) == ({"uri": "x"}, ("a", "b"), "x")
    bare = loom({"type": "http", "uri": "u", "method": "GET", "retry": {}, "runAfter": {}, "description": "d"})
    assert bare.operation.inputs(ENV) == {"uri": "u", "method": "GET"}


def test_timeouts_of_actions():
    assert azure({"type": "Http", "inputs": {}, "limit": {"timeout": "PT5S"}}).timeout_s(ENV) == 5.0
    assert azure({"type": "Http", "inputs": {}, "limit": {"timeout": "@variables('t')"}}).timeout_s(ENV) == 120.0
    assert azure({"type": "Until", "expression": "@true", "limit": {"timeout": "PT5S"}}).timeout_s is None


def test_waits():
    interval = azure({"type": "Wait", "inputs": {"interval": {"count": 2, "unit": "Day"}}}).operation
    assert interval.delay_s(ENV) == 172_800.0
    until = azure({"type": "Wait", "inputs": {"until": {"timestamp": "1970-01-02T00:00:00Z"}}}).operation
    assert until.until(ENV) == 86_400.0


def test_parse_json_checks_its_schema():
    schema = {"type": "object", "required": ["a"], "properties": {"@@odata.type": {"type": "string"}}}
    check = azure({"type": "ParseJson", "inputs": {"content": "x", "schema": schema}}).operation.check
    assert check({"a": 1}) is None
    assert "required" in check({})
    assert check({"a": 1, "@odata.type": 3}).startswith("@odata.type: ")
    assert azure({"type": "ParseJson", "inputs": {"content": "x", "schema": {}}}).operation.check is None


def test_an_unusable_schema_fails_the_action():
    inputs = {"content": "x", "schema": {"type": "nothing"}}
    check = azure({"type": "ParseJson", "inputs": inputs}).operation.check
    assert check(1).startswith("the JSON Schema cannot be used: ")


def test_loops_keep_their_iterations_if_somebody_asks_for_them():
    each = {"type": "Foreach", "foreach": [], "actions": {}}
    actions = {"E": each, "F": each, "C": {"type": "Compose", "inputs": "@length(result('e'))"}}
    program = load_program({**REQUEST, "actions": actions})
    assert [node.keeps_iterations for node in program.nodes] == [True, False, False]


def test_errors_name_the_place_in_the_action():
    value = azure({"type": "Compose", "inputs": {"a": ["@int('x')"]}}).operation.value
    with pytest.raises(ExpressionError) as raised:
        value(ENV)
    assert raised.value.path == "inputs.a[0]"


@pytest.mark.parametrize(
    ("method", "unknown"),
    [("OPTIONS", "OPTIONS"), (["get", "fetch"], "FETCH"), ("get, x", "X"), ("put", ""), (None, ""), ("", "")],
)
def test_a_method_that_no_request_comes_with_is_warned_of(method: object, unknown: str):
    trigger = {"type": "Request", "inputs": {"method": method}}
    _, problems = compile_flow(read_document({"triggers": {"t": trigger}, "actions": {}}))
    told = [(each.path, each.message) for each in problems]
    wanted = ("triggers.t.inputs.method", f"no request fires a trigger by the method {unknown}")
    assert told == ([wanted] if unknown else [])


def test_parameters_triggers_and_outputs():
    trigger = {
        "type": "Request",
        "inputs": {"schema": {"type": "object"}},
        "operationOptions": "EnableSchemaValidation",
        "conditions": [{"expression": "@equals(triggerBody()?['a'], 1)"}],
        "splitOn": "@triggerBody()?['items']",
    }
    program = load_program(
        {
            "parameters": {
                "Key": {"type": "SecureString"},
                "n": {"type": "Int", "defaultValue": 2, "allowedValues": [2]},
            },
            "triggers": {"t": trigger, "r": {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}}},
            "actions": {},
            "outputs": {"o": {"type": "int", "value": "@add(1, 1)"}},
        }
    )
    key, n = program.parameters["key"], program.parameters["n"]
    assert (key.name, key.is_secure, key.has_default) == ("Key", True, False)
    assert (n.type, n.default, n.allowed) == ("int", 2, (2,))
    first, second = program.triggers
    assert (first.type, first.schema, first.validates) == ("request", {"type": "object"}, True)
    env = ContextEnvironment({"trigger": {"outputs": {"body": {"a": 1, "items": [1]}}}})
    assert [condition(env) for condition in first.conditions] == [True]
    assert first.split_on(env) == [1]
    assert (second.recurrence, second.validates) == ({"frequency": "Day", "interval": 1}, False)
    assert program.outputs["o"](ENV) == 2


def test_a_value_named_retry_policy_is_only_a_value():
    for action in (
        azure({"type": "Compose", "inputs": {"retryPolicy": "x"}}),
        loom({"type": "compose", "inputs": {"retryPolicy": 1}}),
    ):
        assert action.retry is None
        assert action.operation.value(ENV).keys() == {"retryPolicy"}


def test_a_case_may_be_called_default():
    cases = {"default": {"case": 1}, "other": {"case": 2, "actions": {"o": COMPOSE}}}
    node = azure({"type": "Switch", "expression": 1, "cases": cases})
    assert (node.operation.cases, node.operation.has_default, len(node.blocks)) == ((1, 2), False, 2)

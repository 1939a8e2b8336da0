"""What expressions can read: records, results, parameters, the trigger, the workflow."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import after, azure, compose, failing, initialized, loom, play

import loom as loom_package
from loom.flows.calls import ActionOutcome


def test_the_record_of_an_action() -> None:
    call = {"type": "Http", "inputs": {"uri": "https://x.example"}}
    played = play(
        azure({"A": call, "R": compose("@actions('A')", "A")}),
        answer=lambda _call: ActionOutcome(outputs={"statusCode": 200, "body": 1}, code="OK"),
        lasting=lambda _call: 2.0,
    )
    record = played.outputs("R")
    assert {
        "name",
        "inputs",
        "outputs",
        "status",
        "code",
        "startTime",
        "endTime",
        "trackingId",
        "clientTrackingId",
    } <= set(record)
    assert record["startTime"] == "2023-11-14T22:13:20.0000000Z"
    assert record["endTime"] == "2023-11-14T22:13:22.0000000Z"
    assert (record["name"], record["status"], record["code"]) == ("A", "Succeeded", "OK")
    assert record["inputs"] == {"uri": "https://x.example"}


def test_the_record_of_a_failed_action_has_its_error() -> None:
    played = play(azure({"A": failing(), "R": compose("@actions('A').error.code", A=["Failed"])}))
    assert played.outputs("R") == "InvalidTemplate"


@pytest.mark.parametrize("function", ["body", "outputs", "actionBody", "actionOutputs"])
def test_what_a_skipped_action_gives_is_null(function: str) -> None:
    skipped = {"type": "ParseJson", "inputs": {"content": "{}", "schema": {}}, "runAfter": after("F")}
    played = play(azure({"F": failing(), "S": skipped, "R": compose(f"@{function}('S')", S=["Skipped"])}))
    assert (played.statuses["R"], played.outputs("R")) == ("Succeeded", None)


def test_names_are_exact_then_without_case() -> None:
    played = play(azure({"My action": compose(1), "R": compose("@outputs('MY ACTION')", "My action")}))
    assert played.outputs("R") == 1


def test_reading_what_has_not_run_or_does_not_exist_fails() -> None:
    wait = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Hour"}}}
    played = play(azure({"W": wait, "A": compose("@outputs('W')"), "B": compose("@outputs('Nope')")}))
    assert "has not run yet" in played.error("A")
    assert "There is no action 'Nope'" in played.error("B")


def test_references_reach_into_containers_from_outside() -> None:
    deep = {
        "type": "Scope",
        "actions": {"If": {"type": "If", "expression": "@true", "actions": {"In": compose("deep")}}},
    }
    played = play(azure({"S": deep, "R": compose("@outputs('In')", "S")}))
    assert played.outputs("R") == "deep"


NEVER: dict[str, dict[str, Any]] = {
    "a foreach over nothing": {"type": "Foreach", "foreach": [], "actions": {"In": compose(1)}},
    "a foreach over null": {"type": "Foreach", "foreach": "@null", "actions": {"In": compose(1)}},
    "a loop that is done": {"type": "until", "condition": "true", "actions": {"In": compose(1)}},
    "a condition that fails": {"type": "If", "expression": "@int('x')", "actions": {"In": compose(1)}},
    "a switch without the case": {
        "type": "Switch",
        "expression": 1,
        "cases": {"C": {"case": 2, "actions": {"In": compose(1)}}},
    },
    "a scope in a branch": {
        "type": "If",
        "expression": "@false",
        "actions": {"S": {"type": "Scope", "actions": {"In": compose(1)}}},
    },
}


@pytest.mark.parametrize("how", NEVER)
def test_what_never_ran_in_a_container_that_is_over_was_skipped(how: str) -> None:
    read = compose(["@outputs('In')", "@actions('In')?['status']"], C=["Succeeded", "Failed"])
    played = play(azure({"C": NEVER[how], "R": read}))
    assert played.outputs("R") == [None, "Skipped"]


def test_the_last_iteration_counts_even_if_an_inner_loop_had_nothing_to_do() -> None:
    inner = {"type": "Foreach", "foreach": "@items('O')", "actions": {"In": compose("@item()")}}
    outer = {"type": "Foreach", "foreach": [[1, 2], []], "actions": {"I": inner}, "operationOptions": "Sequential"}
    played = play(azure({"O": outer, "R": compose(["@outputs('In')"], "O")}))
    assert played.outputs("R") == [None]
    assert played.statuses["In"] == "Skipped"


# -- result() ----------------------------------------------------------------------------------------------------------


def test_result_of_a_scope_lists_its_own_actions_skipped_ones_too() -> None:
    inner = {"type": "Scope", "actions": {"Deep": compose(1)}}
    scope = {"type": "Scope", "actions": {"A": compose(1), "B": failing("A"), "C": compose(1, "B"), "D": inner}}
    names = compose("@result('S')", S=["Failed"])
    played = play(azure({"S": scope, "R": names}))
    found = [(record["name"], record["status"]) for record in played.outputs("R")]
    assert found == [("A", "Succeeded"), ("B", "Failed"), ("C", "Skipped"), ("D", "Succeeded")]
    assert played.outputs("R")[0]["outputs"] == 1


@pytest.mark.parametrize("kind", ["Foreach", "Until"])
def test_result_of_a_loop_lists_each_action_with_all_its_iterations(kind: str) -> None:
    test = {"foreach": [0, 1]} if kind == "Foreach" else {"expression": "@equals(iterationIndexes('L'), 1)"}
    loop = {"type": kind, **test, "actions": {"A": compose("@iterationIndexes('L')"), "B": compose("x", "A")}}
    played = play(azure({"L": loop, "R": compose("@result('L')", "L")}))
    found = {entry["name"]: [record["outputs"] for record in entry["outputs"]] for entry in played.outputs("R")}
    assert found == {"A": [0, 1], "B": ["x", "x"]}


def test_result_of_a_loop_in_a_loop_is_that_of_the_same_iteration() -> None:
    inner = {"type": "Foreach", "foreach": [1, 2], "actions": {"A": compose("@concat(items('O'), items('I'))")}}
    first = compose("@result('I')[0]['outputs'][0]['outputs']", "I")
    outer = {"type": "Foreach", "foreach": ["x", "y"], "actions": {"I": inner, "R": first}}
    played = play(azure({"O": outer, "N": compose("@length(result('O'))", "O")}))
    assert [one["R"] for one in played.outputs("O")] == ["x1", "y1"]
    assert played.outputs("N") == 2


def test_result_can_be_filtered_for_failures() -> None:
    query = {"type": "Query", "inputs": {"from": "@result('S')", "where": "@equals(item()['status'], 'Failed')"}}
    scope = {"type": "Scope", "actions": {"A": compose(1), "B": failing()}}
    played = play(azure({"S": scope, "Q": {**query, "runAfter": {"S": ["Failed"]}}}))
    assert [record["name"] for record in played.outputs("Q")["body"]] == ["B"]


# -- parameters --------------------------------------------------------------------------------------------------------

PARAMETERS = {
    "text": {"type": "String", "defaultValue": "default"},
    "number": {"type": "INT"},
    "choice": {"type": "string", "defaultValue": "a", "allowedValues": ["a", "b"]},
    "secret": {"type": "securestring", "defaultValue": "s"},
    "thing": {"type": "object", "defaultValue": {"a": 1}},
}


def with_parameters(expression: str, **given: Any) -> Any:
    played = play(azure({"A": compose(expression)}, parameters=PARAMETERS), parameters=given)
    return played.outputs("A") if played.status == "Succeeded" else played.error("A")


def test_a_given_value_wins_over_the_default() -> None:
    assert with_parameters("@parameters('text')") == "default"
    assert with_parameters("@parameters('TEXT')", text="given") == "given"
    assert with_parameters("@parameters('thing')?['a']") == 1


def test_a_parameter_without_a_value_fails_when_it_is_read() -> None:
    assert "'number' was not given" in with_parameters("@parameters('number')")
    assert with_parameters("unread") == "unread"


def test_an_unknown_parameter_fails_when_it_is_read() -> None:
    assert "There is no parameter 'txet'" in with_parameters("@parameters('txet')")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"number": "3"}, "number"),
        ({"number": True}, "number"),
        ({"choice": "c"}, "one of"),
        ({"nope": 1}, "no parameter 'nope'"),
        ({"thing": []}, "thing"),
    ],
)
async def test_a_run_cannot_begin_with_wrong_parameters(given: dict[str, Any], complaint: str) -> None:
    flow = loom_package.load(azure({"A": compose(1)}, parameters=PARAMETERS))
    with pytest.raises(Exception, match=complaint):
        flow.run(parameters=given)


# -- the trigger and the workflow --------------------------------------------------------------------------------------


async def test_the_triggers_outputs() -> None:
    expressions = [
        "@triggerBody()",
        "@triggerOutputs()",
        "@trigger()?['name']",
        "@triggerBody()?['x']",
        "@triggers()?['name']",
    ]
    flow = loom_package.load(azure({"A": compose(expressions)}))
    result = await flow.run({"x": 1}, headers={"H": "h"})
    assert result.actions["A"].outputs == [
        {"x": 1}, {"headers": {"H": "h"}, "body": {"x": 1}}, "manual", 1, "manual",
    ]  # fmt: skip


@pytest.mark.parametrize("body", [None, "text", 3, [1], {}, False])
def test_a_body_may_be_any_value(body: Any) -> None:
    assert play(azure({"A": compose(["@triggerBody()"])}), body).outputs("A") == [body]


def test_the_workflow_and_its_run() -> None:
    played = play(azure({"A": compose("@workflow()")}))
    found = played.outputs("A")
    assert set(found) == {"id", "name", "type", "location", "tags", "run"}
    assert (found["name"], found["run"]["name"]) == ("flow", "run-1")
    group = play(azure({"A": compose("@split(workflow()?['id'], '/')[4]")}))
    assert group.outputs("A") == "loom"


def test_app_settings_are_null_and_agent_parameters_an_error() -> None:
    played = play(azure({"A": compose(["@appsetting('x')"]), "B": compose("@agentParameters('x')")}))
    assert played.outputs("A") == [None]
    assert played.statuses["B"] == "Failed"


def test_time_stands_still_within_a_tick_and_goes_on_with_waits() -> None:
    wait = {"type": "Wait", "inputs": {"interval": {"count": 90, "unit": "Second"}}}
    played = play(azure({"A": compose("@utcNow('s')"), "W": wait, "B": compose("@utcNow('s')", "W")}))
    assert (played.outputs("A"), played.outputs("B")) == ("2023-11-14T22:13:20", "2023-11-14T22:14:50")


def test_chance_follows_from_the_seed() -> None:
    flow = azure({"A": compose(["@guid()", "@rand(0, 1000000)"]), "B": compose("@guid()", "A")})
    first, again, other = play(flow, seed=1), play(flow, seed=1), play(flow, seed=2)
    assert first.outputs("A") == again.outputs("A") != other.outputs("A")
    assert first.outputs("A")[0] != first.outputs("B")


def test_unknown_functions_fail_only_when_they_are_evaluated() -> None:
    played = play(azure({"A": compose("@and(false, nope())"), "B": compose("@nope()")}))
    assert played.statuses == {"A": "Succeeded", "B": "Failed"}
    assert "nope" in played.error("B")


def test_an_object_key_may_be_a_path_of_power_automate() -> None:
    played = play(
        azure(
            {
                "A": compose({"body": {"value": [1]}, "a/b": 2}),
                "R": compose(["@outputs('A')?['body/value']", "@outputs('A')['a/b']"], "A"),
            }
        )
    )
    assert played.outputs("R") == [[1], 2]


def test_loom_reads_bodies_of_what_has_none() -> None:
    flow = loom(
        {"x": {"type": "activity", "inputs": {}}, "r": {"type": "compose", "inputs": ["@body('x')", "@body('x').n"]}}
    )
    played = play(flow, answer=lambda _call: ActionOutcome(outputs={"n": 3}))
    assert played.outputs("r") == [{"n": 3}, 3]


def test_variables_belong_to_the_run_and_not_to_a_scope() -> None:
    scope = {
        "type": "Scope",
        "actions": {"S": {"type": "SetVariable", "inputs": {"name": "v", "value": 2}}},
        "runAfter": after("V"),
    }
    played = play(azure({"V": initialized("v", "Integer", 1), "Sc": scope, "R": compose("@variables('v')", "Sc")}))
    assert played.outputs("R") == 2

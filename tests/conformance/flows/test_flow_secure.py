"""Static results, secure data and tracked properties."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import Played, after, azure, compose, play

from loom.flows.calls import MASK, ActionCall, ActionOutcome

SECRET = "s3cret-value"


def secure(action: dict[str, Any], *what: str) -> dict[str, Any]:
    return {**action, "runtimeConfiguration": {"secureData": {"properties": list(what)}}}


def shown(played: Played) -> str:
    """All that people can see of a run: its result and its stream."""
    return f"{played.result} {played.published}"


def call(*names: str) -> dict[str, Any]:
    return {"type": "Http", "inputs": {"uri": f"https://x.example/{SECRET}"}, "runAfter": after(*names)}


def telling(_call: ActionCall) -> ActionOutcome:
    return ActionOutcome(outputs={"statusCode": 200, "body": {"token": SECRET}}, code="OK")


@pytest.mark.parametrize("what", [("inputs",), ("outputs",), ("inputs", "outputs"), ("Inputs", "Outputs")])
def test_secure_properties_are_hidden(what: tuple[str, ...]) -> None:
    played = play(azure({"A": secure(call(), *what)}), answer=telling)
    action = played.result.actions["A"]
    asked = {one.lower() for one in what}
    assert (action.inputs == MASK) == ("inputs" in asked)
    assert (action.outputs == MASK) == ("outputs" in asked)


PASSED_ON: dict[str, dict[str, Any]] = {
    "compose": compose("@body('A')?['token']", "A"),
    "a part of a text": compose("Bearer @{body('A')?['token']}", "A"),
    "a key": compose({"@{body('A')?['token']}": 1}, "A"),
    "the whole record": compose("@actions('A')", "A"),
    "parse json": {"type": "ParseJson", "inputs": {"content": "@body('A')", "schema": {}}, "runAfter": after("A")},
    "select": {"type": "Select", "inputs": {"from": [1], "select": "@body('A')"}, "runAfter": after("A")},
    "join": {"type": "Join", "inputs": {"from": ["@body('A')['token']"], "joinWith": ","}, "runAfter": after("A")},
    "table": {"type": "Table", "inputs": {"from": ["@body('A')"], "format": "CSV"}, "runAfter": after("A")},
    "response": {"type": "Response", "inputs": {"headers": {"X": "@body('A')['token']"}}, "runAfter": after("A")},
    "a scope": {"type": "Scope", "actions": {"In": compose("@body('A')")}, "runAfter": after("A")},
    "a loop": {
        "type": "Foreach",
        "foreach": "@createArray(body('A'))",
        "actions": {"In": compose("@item()")},
        "runAfter": after("A"),
    },
    "an until": {
        "type": "Until",
        "expression": "@true",
        "actions": {"In": compose("@body('A')")},
        "runAfter": after("A"),
    },
    "a switch": {"type": "Switch", "expression": "@body('A')['token']", "cases": {}, "runAfter": after("A")},
    "a variable": {
        "type": "InitializeVariable",
        "inputs": {"variables": [{"name": "v", "type": "String", "value": "@body('A')['token']"}]},
        "runAfter": after("A"),
    },
}


@pytest.mark.parametrize("how", PASSED_ON)
def test_what_passes_secure_data_on_is_hidden_too(how: str) -> None:
    again = compose("@actions('B')", "B")
    flow = azure({"A": secure({**call(), "inputs": {"uri": "x"}}, "outputs"), "B": PASSED_ON[how], "C": again})
    played = play(flow, answer=telling)
    assert played.status == "Succeeded"
    if how == "response":
        assert played.result.response is not None
        assert played.result.response["headers"] == {"X": SECRET}  # the caller is who it is for
        played.result.response["headers"].clear()
        answers = ("FlowResponse", "FlowEnd")
        played.published = [body for body in played.published if type(body).__name__ not in answers]
    assert SECRET not in shown(played)


def test_the_values_still_flow() -> None:
    seen: list[Any] = []

    def answer(asked: ActionCall) -> ActionOutcome:
        seen.append(asked.inputs)
        return telling(asked)

    second = {"type": "Http", "inputs": {"uri": "y", "headers": {"X": "@variables('v')"}}, "runAfter": after("V")}
    flow = {"A": secure({"type": "Http", "inputs": {"uri": "x"}}, "outputs"), "V": PASSED_ON["a variable"], "B": second}
    played = play(azure(flow), answer=answer)
    assert seen[1]["headers"] == {"X": SECRET}
    assert played.result.variables == {"v": MASK}
    assert played.result.actions["B"].inputs == MASK


@pytest.mark.parametrize("kind", ["securestring", "SecureObject"])
def test_secure_parameters_are_hidden_where_they_are_used(kind: str) -> None:
    value: Any = SECRET if kind == "securestring" else {"token": SECRET}
    flow = azure(
        {"A": compose("@parameters('p')"), "B": compose("@length(string(outputs('A')))", "A")},
        parameters={"p": {"type": kind}},
    )
    played = play(flow, parameters={"p": value})
    assert played.result.actions["A"].outputs == MASK
    assert SECRET not in shown(played)


FAILING: dict[str, dict[str, Any]] = {
    "a template": compose("@int(parameters('p'))"),
    "a schema": {"type": "ParseJson", "inputs": {"content": "@parameters('p')", "schema": {"type": "integer"}}},
    "a variable": {
        "type": "InitializeVariable",
        "inputs": {"variables": [{"name": "v", "type": "Integer", "value": "@parameters('p')"}]},
    },
    "a condition": {"type": "If", "expression": "@greater(parameters('p'), 1)"},
    "a loop": {"type": "Foreach", "foreach": "@int(parameters('p'))", "actions": {}},
    "an until": {"type": "Until", "expression": "@int(parameters('p'))", "actions": {}},
    "a wait": {"type": "Wait", "inputs": {"until": {"timestamp": "@parameters('p')"}}},
    "a terminate": {
        "type": "Terminate",
        "inputs": {"runStatus": "Failed", "runError": {"code": "1", "message": "@parameters('p')"}},
    },
    "a status of a terminate": {"type": "Terminate", "inputs": {"runStatus": "@parameters('p')"}},
    "a call": {"type": "Http", "inputs": {"uri": "@parameters('p')", "retryPolicy": {"type": "fixed", "count": 1}}},
    "tracked properties": {**compose(1), "trackedProperties": {"x": "@parameters('p')"}},
}
CONTAINERS: dict[str, Any] = {
    "nothing": lambda inner: {"A": inner},
    "a scope": lambda inner: {"S": {"type": "Scope", "actions": {"A": inner}}},
    "two scopes": lambda inner: {"S": {"type": "Scope", "actions": {"T": {"type": "Scope", "actions": {"A": inner}}}}},
    "a loop": lambda inner: {"S": {"type": "Foreach", "foreach": [1], "actions": {"A": inner}}},
    "an until": lambda inner: {"S": {"type": "Until", "expression": "@true", "actions": {"A": inner}}},
    "a doUntil": lambda inner: {"S": {"type": "doUntil", "condition": "true", "actions": {"A": inner}}},
    "a retry": lambda inner: {"S": {"type": "retry", "action": inner, "retryPolicy": {"type": "fixed", "count": 1}}},
    "a parallel": lambda inner: {"S": {"type": "parallel", "actions": {"A": inner}}},
    "a condition": lambda inner: {"S": {"type": "If", "expression": "@true", "actions": {"A": inner}}},
}


@pytest.mark.parametrize("around", CONTAINERS)
@pytest.mark.parametrize("what", FAILING)
def test_errors_do_not_tell_secrets(what: str, around: str) -> None:
    def answer(asked: ActionCall) -> ActionOutcome:
        return ActionOutcome("Failed", code="500", message=f"no {asked.inputs}")

    flow = azure(CONTAINERS[around](FAILING[what]), parameters={"p": {"type": "SecureString"}})
    played = play(flow, parameters={"p": SECRET}, answer=answer)
    assert played.status == "Failed" or what == "tracked properties"
    assert SECRET not in shown(played)


def test_an_error_that_tells_nothing_is_told() -> None:
    flow = azure({"A": {"type": "Strange", "inputs": "@parameters('p')"}}, parameters={"p": {"type": "SecureString"}})
    unsupported = ActionOutcome("Failed", code="ActionTypeNotSupported", message="Nothing here can do the action 'A'.")
    played = play(flow, parameters={"p": SECRET}, answer=lambda _call: unsupported)
    assert played.error("A") == "ActionTypeNotSupported: Nothing here can do the action 'A'."


# -- static results ----------------------------------------------------------------------------------------------------


def mocked(name: str, option: str | None = "Enabled", **result: Any) -> dict[str, Any]:
    setting = {"name": name, **({"staticResultOptions": option} if option else {})}
    action = {
        "type": "Http",
        "inputs": {"uri": "@int('not even looked at')"},
        "runtimeConfiguration": {"staticResult": setting},
    }
    return azure(
        {"A": action, "B": compose("@outputs('A')", A=["Succeeded", "Failed", "Skipped", "TimedOut"])},
        staticResults={"R": result},
    )


@pytest.mark.parametrize("status", ["Succeeded", "Failed", "TimedOut", "Skipped", "failed"])
def test_an_action_gets_its_static_result(status: str) -> None:
    played = play(mocked("R", status=status, outputs={"statusCode": 201, "body": "@{add(1, 1)}"}))
    expected = {"timedout": "TimedOut"}.get(status.lower(), status.capitalize())
    assert played.statuses["A"] == expected
    assert played.outputs("B") == {"statusCode": 201, "body": "2"}


def test_a_static_result_needs_no_option_and_ignores_retries() -> None:
    played = play(mocked("R", None, status="Failed", outputs={"statusCode": 503}))
    assert (played.at, played.statuses["A"]) == (0, "Failed")


def test_a_disabled_or_unknown_static_result_is_none() -> None:
    for name, option in (("R", "Disabled"), ("Other", "Enabled")):
        assert play(mocked(name, option, status="Succeeded")).result.actions["A"].code == "InvalidTemplate"


def test_containers_and_data_actions_can_be_mocked_too() -> None:
    setting = {"runtimeConfiguration": {"staticResult": {"name": "R", "staticResultOptions": "Enabled"}}}
    loop = {"type": "Foreach", "foreach": "@null", "actions": {"In": compose(1)}, **setting}
    played = play(azure({"E": loop}, staticResults={"R": {"status": "Succeeded", "outputs": [1]}}))
    assert played.outputs("E") == [1]
    assert played.statuses == {"E": "Succeeded", "In": "Skipped"}


# -- tracked properties ------------------------------------------------------------------------------------------------


def tracked(action: dict[str, Any], properties: dict[str, Any], **more: Any) -> Any:
    flow = azure({"First": compose("x"), "A": {**action, "trackedProperties": properties}}, **more)
    return play(flow, answer=telling, parameters=dict.fromkeys(more.get("parameters", {}), "given")).result.actions["A"]


def test_tracked_properties_see_the_actions_own_record() -> None:
    properties = {
        "status": "@action()['outputs']['statusCode']",
        "uri": "@{action()?['inputs']?['uri']}",
        "p": "@parameters('p')",
    }
    found = tracked({"type": "Http", "inputs": {"uri": "u"}}, properties, parameters={"p": {"type": "String"}})
    assert found.tracked_properties == {"status": 200, "uri": "u", "p": "given"}


def test_tracked_properties_are_evaluated_on_failure_and_not_when_skipped() -> None:
    assert tracked(compose("@int('x')"), {"code": "@action()['code']"}).tracked_properties == {
        "code": "InvalidTemplate"
    }
    assert tracked(compose(1, First=["Failed"]), {"x": "y"}).tracked_properties is None


def test_tracked_properties_that_fail_do_not_fail_the_action() -> None:
    found = tracked(compose(1), {"x": "@int('x')"})
    assert found.status == "Succeeded"
    assert "error" in found.tracked_properties


def test_tracked_properties_are_not_kept_with_secure_data() -> None:
    assert tracked(secure(compose(1), "inputs"), {"x": "y"}).tracked_properties is None


def test_tracked_properties_have_a_size() -> None:
    assert tracked(compose(1), {"x": "y" * 7_000}).tracked_properties == {"x": "y" * 7_000}
    assert "y" * 9_000 not in str(tracked(compose(1), {"x": "y" * 9_000}).tracked_properties)

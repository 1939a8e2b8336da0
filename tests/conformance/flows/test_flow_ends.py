"""Terminate, Response, Wait, and what a run leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import azure, compose, failing, loom, play

from loom.flows.calls import ActionOutcome, FlowResponse

HOUR = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Hour"}}}


def terminate(status: str, *names: str, **error: Any) -> dict[str, Any]:
    inputs = {"runStatus": status, **({"runError": error} if error else {})}
    return {"type": "Terminate", "inputs": inputs, "runAfter": {name: ["Succeeded"] for name in names}}


@pytest.mark.parametrize("status", ["Succeeded", "Failed", "Cancelled", "failed", "@concat('Can', 'celled')"])
def test_terminate_ends_the_run_with_that_status(status: str) -> None:
    played = play(azure({"T": terminate(status), "After": compose(1, "T")}))
    expected = "Cancelled" if "@" in status else status.capitalize()
    assert played.status == expected
    assert played.statuses == {"T": "Succeeded", "After": "Skipped"}


def test_terminates_error_is_the_runs() -> None:
    played = play(azure({"T": terminate("Failed", code="@concat('4', '0', '4')", message="no @{add(1, 1)}")}))
    assert played.result.error == {"code": "404", "message": "no 2"}


def test_terminate_succeeded_has_no_error_and_hides_earlier_failures() -> None:
    played = play(azure({"A": failing(), "T": {**terminate("Succeeded"), "runAfter": {"A": ["Failed"]}}}))
    assert (played.status, played.result.error) == ("Succeeded", None)


def test_a_status_that_does_not_exist_fails_the_action() -> None:
    played = play(azure({"T": terminate("Finished")}))
    assert (played.status, played.statuses["T"]) == ("Failed", "Failed")


def test_what_runs_is_cancelled_and_the_rest_is_skipped() -> None:
    minute = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Minute"}}}
    call = {"type": "Http", "inputs": {"uri": "x"}}
    scope = {"type": "Scope", "actions": {"Inner": HOUR, "Later": compose(1, "Inner")}}
    played = play(
        azure({"W": HOUR, "M": minute, "T": terminate("Failed", "M"), "S": scope, "C": call, "Next": compose(1, "W")}),
        answer=lambda _call: ActionOutcome(),
        lasting=lambda _call: 7_200.0,
    )
    assert played.at == 60
    assert played.statuses == {
        "W": "Cancelled", "M": "Succeeded", "T": "Succeeded", "S": "Cancelled", "Inner": "Cancelled",
        "Later": "Skipped", "C": "Cancelled", "Next": "Skipped",
    }  # fmt: skip


def test_what_waits_for_another_try_or_between_iterations_is_cancelled() -> None:
    call = {"type": "Http", "inputs": {"uri": "x"}}
    body = {"c": {"type": "compose", "inputs": 1}}
    loop = {"type": "until", "condition": "false", "actions": body, "delay": {"interval": {"count": 1, "unit": "hour"}}}
    second = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Second"}}}
    played = play(
        azure({"A": call, "L": loop, "W": second, "T": terminate("Failed", "W")}),
        answer=lambda _call: ActionOutcome("Failed", {"statusCode": 503}),
    )
    assert played.at == 1
    assert played.statuses == {"A": "Cancelled", "L": "Cancelled", "c": "Succeeded", "W": "Succeeded", "T": "Succeeded"}


def test_terminate_in_a_loop_ends_the_run() -> None:
    inside = {"If": {"type": "If", "expression": "@equals(item(), 2)", "actions": {"T": terminate("Cancelled")}}}
    loop = {"type": "Foreach", "foreach": [1, 2, 3], "actions": inside, "operationOptions": "Sequential"}
    played = play(azure({"E": loop, "After": compose(1, "E")}))
    assert played.status == "Cancelled"
    assert played.statuses["After"] == "Skipped"
    assert played.statuses["E"] == "Cancelled"


# -- Response ----------------------------------------------------------------------------------------------------------


def respond(**inputs: Any) -> dict[str, Any]:
    return {"type": "Response", "kind": "Http", "inputs": inputs, "runAfter": {}}


def test_a_response_is_what_the_caller_gets() -> None:
    played = play(azure({"R": respond(statusCode="@add(200, 1)", headers={"X": "@{1}"}, body={"n": "@add(1, 1)"})}))
    assert played.result.response == {"statusCode": 201, "headers": {"X": "1"}, "body": {"n": 2}}
    assert [body for body in played.published if isinstance(body, FlowResponse)] == [
        FlowResponse(201, {"X": "1"}, {"n": 2})
    ]


def test_a_response_without_fields_is_200() -> None:
    assert play(azure({"R": respond()})).result.response == {"statusCode": 200, "headers": {}, "body": None}


def test_a_run_answers_once() -> None:
    second = {**respond(body="second"), "runAfter": {"R": ["Succeeded"]}}
    played = play(azure({"R": respond(body="first"), "S": second}))
    assert played.statuses == {"R": "Succeeded", "S": "Failed"}
    assert played.result.response is not None
    assert played.result.response["body"] == "first"
    assert played.status == "Failed"


def test_the_run_goes_on_after_its_response() -> None:
    played = play(azure({"R": respond(body=1), "W": {**HOUR, "runAfter": {"R": ["Succeeded"]}}, "C": compose(1, "W")}))
    assert played.at == 3600
    assert played.statuses["C"] == "Succeeded"


# -- Wait --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "seconds"),
    [
        ({"interval": {"count": 5, "unit": "Second"}}, 5),
        ({"interval": {"count": 5, "unit": "minute"}}, 300),
        ({"interval": {"count": "@add(1, 1)", "unit": "Day"}}, 172_800),
        ({"interval": {"count": 1, "unit": "@concat('We', 'ek')"}}, 604_800),
        ({"interval": {"count": 0, "unit": "Second"}}, 0),
        ({"until": {"timestamp": "2023-11-14T22:14:20Z"}}, 60),
        ({"until": {"timestamp": "2023-11-14T23:14:20+01:00"}}, 60),
        ({"until": {"timestamp": "@addMinutes(utcNow(), 3)"}}, 180),
        ({"until": {"timestamp": "2001-01-01"}}, 0),
    ],
)
def test_waits(inputs: dict[str, Any], seconds: int) -> None:
    played = play(azure({"W": {"type": "Wait", "inputs": inputs}}))
    assert (played.status, played.at) == ("Succeeded", seconds)


@pytest.mark.parametrize(
    "inputs", [{"interval": {"count": "@'x'", "unit": "Second"}}, {"until": {"timestamp": "@'never'"}}]
)
def test_a_wait_that_cannot_be_read_fails(inputs: dict[str, Any]) -> None:
    assert play(azure({"W": {"type": "Wait", "inputs": inputs}})).statuses["W"] == "Failed"


def test_waits_side_by_side_pass_together() -> None:
    played = play(azure({"A": HOUR, "B": HOUR, "C": compose(1, "A", "B")}))
    assert played.at == 3600


# -- outputs -----------------------------------------------------------------------------------------------------------


def test_outputs_are_evaluated_at_the_end() -> None:
    outputs = {"n": {"type": "Int", "value": "@outputs('A')"}, "t": {"type": "String", "value": "@{triggerBody()}!"}}
    played = play(azure({"A": compose("@add(1, 2)")}, outputs=outputs), "x")
    assert played.result.outputs == {"n": 3, "t": "x!"}


def test_outputs_that_cannot_be_read_fail_the_run() -> None:
    played = play(azure({"A": compose(1)}, outputs={"n": {"type": "Int", "value": "@int('x')"}}))
    assert played.status == "Failed"
    assert played.result.error is not None
    assert "outputs.n" in played.result.error["message"]


def test_a_failed_run_has_no_outputs() -> None:
    assert play(azure({"A": failing()}, outputs={"n": {"type": "Int", "value": 1}})).result.outputs == {}


def test_looms_flow_without_actions_ends() -> None:
    assert play(loom({})).status == "Succeeded"

"""Logic Apps' Until: the body first, limits that are no failures, failures that are forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import after, azure, compose, failing, initialized, play

COUNT = {"type": "IncrementVariable", "inputs": {"name": "n"}}
MINUTE = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Minute"}}}


def until(expression: Any, actions: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    body = actions or {"Count": COUNT}
    return {"type": "Until", "expression": expression, "actions": body, "runAfter": after("V"), **more}


def flow(loop: dict[str, Any], **actions: Any) -> dict[str, Any]:
    return azure({"V": initialized("n", "Integer", 0), "U": loop, **actions})


def test_the_body_runs_before_the_first_test() -> None:
    played = play(flow(until("@true")))
    assert (played.status, played.result.variables) == ("Succeeded", {"n": 1})


def test_the_expression_may_be_a_tree() -> None:
    played = play(flow(until({"and": [{"greater": ["@variables('n')", 2]}, {"not": {"equals": [1, 2]}}]})))
    assert played.result.variables == {"n": 3}


def test_the_test_sees_the_iteration_that_has_just_run() -> None:
    loop = until("@greaterOrEquals(add(outputs('See'), iterationIndexes('U')), 6)", {"Count": COUNT, "See": compose(
        "@variables('n')", "Count"
    )})  # fmt: skip
    assert play(flow(loop)).result.variables == {"n": 4}


def test_the_default_count_is_60_and_reaching_it_is_a_success() -> None:
    played = play(flow(until("@false")))
    assert (played.status, played.result.variables) == ("Succeeded", {"n": 60})


@pytest.mark.parametrize("count", [3, "@add(1, 2)", "3", "@triggerBody()"])
def test_the_count_may_be_an_expression(count: Any) -> None:
    assert play(flow(until("@false", limit={"count": count})), 3).result.variables == {"n": 3}


@pytest.mark.parametrize("limit", [{}, {"count": None}, {"timeout": "PT1H"}])
def test_a_limit_may_be_half_empty(limit: dict[str, Any]) -> None:
    assert play(flow(until("@false", limit=limit))).result.variables == {"n": 60}


def test_a_count_beyond_the_platforms_is_lowered() -> None:
    assert play(flow(until("@false", limit={"count": 9_999}))).result.variables == {"n": 5_000}


def test_the_default_timeout_is_an_hour_looked_at_between_iterations() -> None:
    loop = until("@false", {"Count": COUNT, "Wait": {"type": "Wait", "inputs": {"interval": {
        "count": 25, "unit": "Minute"
    }}}})  # fmt: skip
    played = play(flow(loop))
    assert (played.status, played.result.variables) == ("Succeeded", {"n": 3})
    assert played.at == 75 * 60


@pytest.mark.parametrize("timeout", ["PT90S", "@concat('PT', '90', 'S')"])
def test_the_timeout_may_be_an_expression(timeout: str) -> None:
    played = play(flow(until("@false", {"Count": COUNT, "Wait": MINUTE}, limit={"timeout": timeout})))
    assert played.result.variables == {"n": 2}


def test_full_iso_durations() -> None:
    hours = {"type": "Wait", "inputs": {"interval": {"count": 10, "unit": "Hour"}}}
    for timeout, iterations in (("PT1440M", 3), ("P1DT2H", 3), ("P14D", 34), ("PT900M", 2)):
        played = play(flow(until("@false", {"Count": COUNT, "Wait": hours}, limit={"timeout": timeout})))
        assert played.result.variables == {"n": iterations}, timeout


@pytest.mark.parametrize("limit", [{"count": 2}, {"timeout": "PT30S"}])
def test_fail_when_limits_reached(limit: dict[str, Any]) -> None:
    loop = until("@false", {"Count": COUNT, "Wait": MINUTE}, limit=limit, operationOptions="FailWhenLimitsReached")
    played = play(flow(loop, Caught=compose("@actions('U')?['error']?['code']", U=["TimedOut"])))
    assert played.statuses["U"] == "TimedOut"
    assert played.result.actions["U"].code == "ActionTimedOut"
    assert played.outputs("Caught") == "ActionTimedOut"
    assert played.status == "Succeeded"


def test_a_loop_that_ends_by_its_test_in_the_last_iteration_has_not_reached_its_limit() -> None:
    loop = until("@equals(variables('n'), 2)", limit={"count": 2}, operationOptions="FailWhenLimitsReached")
    assert play(flow(loop)).statuses["U"] == "Succeeded"


def test_a_failure_in_an_earlier_iteration_is_forgotten() -> None:
    loop = until(
        "@equals(variables('n'), 3)", {"Count": COUNT, "Work": compose("@div(1, sub(variables('n'), 1))", "Count")}
    )
    played = play(flow(loop))
    assert [report.status for report in played.reports if report.name == "Work"] == ["Failed", "Succeeded", "Succeeded"]
    assert played.statuses["U"] == "Succeeded"


def test_a_failure_in_the_last_iteration_is_the_loops() -> None:
    played = play(flow(until("@equals(variables('n'), 3)", {"Count": COUNT, "Bad": failing("Count")})))
    assert (played.statuses["U"], played.result.variables) == ("Failed", {"n": 3})
    assert played.error("U") == played.error("Bad")


def test_at_the_limit_too_the_last_iteration_counts() -> None:
    played = play(flow(until("@false", {"Count": COUNT, "Bad": failing("Count")}, limit={"count": 2})))
    assert (played.statuses["U"], played.result.variables) == ("Failed", {"n": 2})


def test_a_test_that_fails_fails_the_loop() -> None:
    played = play(flow(until("@equals(variables('nope'), 1)")))
    assert played.statuses["U"] == "Failed"
    assert played.result.actions["U"].code == "InvalidTemplate"
    assert "actions.U.expression" in played.error("U")
    assert played.result.variables == {"n": 1}


@pytest.mark.parametrize("expression", ["@1", "@'true'", "@null"])
def test_a_test_must_be_a_boolean(expression: str) -> None:
    assert play(flow(until(expression))).statuses["U"] == "Failed"


def test_all_actions_of_the_body_start_at_once() -> None:
    actions = {"B": {"type": "Compose", "inputs": "@int('x')"}, "A": {"type": "Compose", "inputs": 1}}
    played = play(flow(until("@true", actions)))
    assert played.statuses["A"] == "Succeeded"


def test_an_until_in_a_foreach_has_a_count_of_its_own_in_each() -> None:
    inner = {"type": "Until", "expression": "@greaterOrEquals(iterationIndexes('U'), items('E'))", "actions": {
        "A": compose("@concat(items('E'), iterationIndexes('U'))")
    }}  # fmt: skip
    played = play(azure({"E": {"type": "Foreach", "foreach": [0, 1, 2], "actions": {"U": inner}}}))
    assert played.outputs("E") == [{"U": {"A": "00"}}, {"U": {"A": "11"}}, {"U": {"A": "22"}}]


def test_each_iteration_is_told() -> None:
    played = play(flow(until("@equals(variables('n'), 3)", {"Count": COUNT, "Wait": MINUTE}, limit={"count": 9})))
    told = [(one.iteration, one.condition_result, one.duration, one.max_iterations) for one in played.iterations]
    assert told == [(0, False, 60.0, 9), (1, False, 60.0, 9), (2, True, 60.0, 9)]
    first = played.iterations[0]
    assert (first.workflow_id, first.action_name, first.loop_type, first.path) == ("run-1", "U", "until", "U[0]")


def test_the_number_of_iterations_and_the_outputs_of_the_last() -> None:
    played = play(
        flow(until("@equals(variables('n'), 3)", {"Count": COUNT, "See": compose("@variables('n')", "Count")}))
    )
    assert played.result.actions["U"].iterations == 3
    assert played.outputs("U")["See"] == 3


@pytest.mark.parametrize("body", [{}, {"Count": COUNT}])
def test_an_empty_body_is_a_body(body: dict[str, Any]) -> None:
    loop = {"type": "Until", "expression": "@false", "actions": body, "limit": {"count": 4}, "runAfter": after("V")}
    assert play(flow(loop)).result.actions["U"].iterations == 4

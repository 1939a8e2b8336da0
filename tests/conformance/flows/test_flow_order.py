"""Order and status: `runAfter`, joins, what is skipped, and the rule of the leaves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from flow_player import after, azure, compose, failing, loom, play

ALL = ["Succeeded", "Failed", "Skipped", "TimedOut"]


def timed_out(name: str = "T") -> dict[str, Any]:
    """An action that times out, by a static result, and the results that it needs."""
    return {
        "type": "Http",
        "inputs": {"method": "GET", "uri": "https://x.example"},
        "runtimeConfiguration": {"staticResult": {"name": name, "staticResultOptions": "Enabled"}},
    }


STATIC = {"staticResults": {"T": {"status": "TimedOut", "outputs": {}}, "S": {"status": "Skipped"}}}


def test_no_run_after_and_an_empty_one_start_with_the_scope() -> None:
    played = play(azure({"A": compose(1), "B": {"type": "Compose", "inputs": 2}, "C": compose(3)}))
    assert played.ends() == ["A", "B", "C"]
    assert played.status == "Succeeded"


def test_a_missing_predecessor_status_list_asks_for_success() -> None:
    played = play(azure({"A": failing(), "B": {"type": "Compose", "inputs": 1, "runAfter": {"A": []}}}))
    assert played.statuses == {"A": "Failed", "B": "Skipped"}


def test_statuses_are_read_in_any_case() -> None:
    played = play(azure({"A": failing(), "B": compose(1, A=["FAILED", "timedout"])}))
    assert played.statuses["B"] == "Succeeded"


@pytest.mark.parametrize("wanted", ALL)
def test_an_action_runs_after_the_status_that_it_asks_for_and_no_other(wanted: str) -> None:
    before = {"Ok": compose(1), "Bad": failing(), "Slow": timed_out("T"), "Not": compose(1, "Bad")}
    ends = {"Ok": "Succeeded", "Bad": "Failed", "Slow": "TimedOut", "Not": "Skipped"}
    actions = {**before, **{f"After_{name}": compose(1, **{name: [wanted]}) for name in before}}
    played = play(azure(actions, **STATIC))
    assert {name: played.statuses[name] for name in before} == ends
    for name, status in ends.items():
        assert played.statuses[f"After_{name}"] == ("Succeeded" if status == wanted else "Skipped")


def test_a_skipped_action_says_why() -> None:
    played = play(azure({"A": failing(), "B": compose(1, "A")}))
    skipped = played.result.actions["B"]
    assert skipped.code == "ActionSkipped"
    assert skipped.error is not None
    assert skipped.error["code"] == "ActionDependencyFailed"


def test_skipping_goes_on_down_and_can_be_caught() -> None:
    played = play(azure({"A": failing(), "B": compose(1, "A"), "C": compose(1, "B"), "D": compose(1, C=["Skipped"])}))
    assert played.statuses == {"A": "Failed", "B": "Skipped", "C": "Skipped", "D": "Succeeded"}


def test_a_join_waits_for_all_and_each_must_match_its_own_list() -> None:
    join = {"type": "Compose", "inputs": 1, "runAfter": {"A": ["Succeeded"], "B": ["Failed"]}}
    assert play(azure({"A": compose(1), "B": failing(), "J": join})).statuses["J"] == "Succeeded"
    assert play(azure({"A": compose(1), "B": compose(1), "J": join})).statuses["J"] == "Skipped"
    assert play(azure({"A": failing(), "B": failing(), "J": join})).statuses["J"] == "Skipped"


def test_a_join_runs_once_and_after_the_slowest() -> None:
    wait = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Hour"}}}
    played = play(azure({"A": wait, "B": compose(1), "J": compose("@utcNow()", "A", "B")}))
    assert played.executions("J") == 1
    assert played.outputs("J") == "2023-11-14T23:13:20.0000000Z"


def test_a_failing_action_stops_nothing_but_its_successors() -> None:
    wait = {"type": "Wait", "inputs": {"interval": {"count": 1, "unit": "Minute"}}}
    played = play(azure({"Bad": failing(), "Wait": wait, "Later": compose("late", "Wait")}))
    assert played.statuses == {"Bad": "Failed", "Wait": "Succeeded", "Later": "Succeeded"}
    assert played.status == "Failed"


def test_run_after_may_name_a_trigger() -> None:
    assert play(azure({"A": compose(1, "manual")})).statuses == {"A": "Succeeded"}


def test_the_preview_of_2015_reads_as_run_after() -> None:
    second = {"type": "Compose", "inputs": 2, "conditions": [{"dependsOn": "A"}]}
    assert play(azure({"B": second, "A": compose(1)})).ends() == ["A", "B"]
    assert play(azure({"B": second, "A": failing()})).statuses["B"] == "Skipped"


# -- the rule of the leaves --------------------------------------------------------------------------------------------


def run_status(actions: dict[str, Any]) -> str:
    """The status of a run, which is also that of a scope, a branch and an iteration with the same actions."""
    status = play(azure(actions, **STATIC)).status
    scope = {"S": {"type": "Scope", "actions": actions}}
    branch = {"S": {"type": "If", "expression": "@true", "actions": actions}}
    other = {"S": {"type": "If", "expression": "@false", "actions": {}, "else": {"actions": actions}}}
    case = {"S": {"type": "Switch", "expression": "x", "cases": {"X": {"case": "x", "actions": actions}}}}
    default = {"S": {"type": "Switch", "expression": "x", "cases": {}, "default": {"actions": actions}}}
    last = {"S": {"type": "Until", "expression": "@true", "actions": actions}}
    for inside in (scope, branch, other, case, default, last):
        assert play(azure(inside, **STATIC)).statuses["S"] == status, inside["S"]["type"]
    each = {"S": {"type": "Foreach", "foreach": "@createArray(1)", "actions": actions}}
    expected = "Succeeded" if status == "Succeeded" else "Failed"
    assert play(azure(each, **STATIC)).statuses["S"] == expected
    return status


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        ({}, "Succeeded"),
        ({"A": compose(1)}, "Succeeded"),
        ({"A": failing()}, "Failed"),
        ({"A": timed_out()}, "TimedOut"),
        ({"A": timed_out(), "B": failing()}, "Failed"),
        ({"A": compose(1), "B": failing("A")}, "Failed"),
        ({"A": failing(), "B": compose(1, "A")}, "Failed"),
        ({"A": failing(), "B": compose(1, "A"), "C": compose(1, "B")}, "Failed"),
        ({"A": timed_out(), "B": compose(1, "A")}, "TimedOut"),
        ({"A": failing(), "Handled": compose(1, A=["Failed"])}, "Succeeded"),
        ({"A": failing(), "Finally": compose(1, A=ALL)}, "Succeeded"),
        ({"A": compose(1), "Error": compose(1, A=["Failed"])}, "Succeeded"),
        ({"A": failing(), "Ok": compose(1, "A"), "Error": compose(1, A=["Failed"])}, "Failed"),
        ({"A": compose(1), "Ok": compose(1, "A"), "Error": compose(1, A=["Failed"])}, "Succeeded"),
        ({"A": failing(), "B": compose(1, "A"), "C": compose(1, B=["Skipped"])}, "Succeeded"),
        ({"A": failing(), "B": compose(1, A=["Failed"]), "C": failing("B")}, "Failed"),
        ({"A": failing(), "B": compose(1), "J": compose(1, "A", "B")}, "Failed"),
        ({"A": failing(), "B": compose(1), "J": compose(1, "B", A=["Failed"])}, "Succeeded"),
    ],
)
def test_the_rule_of_the_leaves(actions: dict[str, Any], status: str) -> None:
    assert run_status(actions) == status


def test_a_wide_net_of_skipped_actions_is_looked_through_once() -> None:
    """From its last row to the failure in its first lead eight to the power of fifteen ways."""
    rows = [[f"R{row}_{place}" for place in range(8)] for row in range(16)]
    actions = {name: compose(1) for name in rows[0]} | {rows[0][3]: failing()}
    for above, row in pairwise(rows):
        actions |= {name: compose(1, *above) for name in row}
    assert play(azure(actions)).status == "Failed"


def test_a_scope_that_fails_says_what_failed_in_it() -> None:
    played = play(azure({"S": {"type": "Scope", "actions": {"A": failing()}}}))
    assert played.result.actions["S"].code == "ActionFailed"
    assert "the function 'int'" in played.error("S")


def test_a_failed_run_names_the_error() -> None:
    played = play(azure({"A": failing()}))
    assert played.result.error is not None
    assert played.result.error["code"] == "InvalidTemplate"
    for part in ("Action 'A'", "actions.A.inputs", "'int'", "position"):
        assert part in played.result.error["message"]


def test_a_branch_not_taken_is_skipped_to_its_last_action() -> None:
    inner = {"Deep": {"type": "Scope", "actions": {"Deeper": compose(1)}}}
    played = play(azure({"If": {"type": "If", "expression": "@false", "actions": inner}}))
    assert played.statuses == {"If": "Succeeded", "Deep": "Skipped", "Deeper": "Skipped"}
    error = played.result.actions["Deeper"].error
    assert error is not None
    assert error["code"] == "ActionBranchingConditionNotSatisfied"


def test_a_skipped_scope_skips_what_is_in_it_and_its_outputs_are_null() -> None:
    inside = {"type": "Scope", "actions": {"In": compose(1)}, "runAfter": after("A")}
    played = play(azure({"A": failing(), "S": inside, "R": compose("@outputs('In')", S=["Skipped"])}))
    assert played.statuses == {"A": "Failed", "S": "Skipped", "In": "Skipped", "R": "Succeeded"}
    assert played.outputs("R") is None


# -- Loom's order ------------------------------------------------------------------------------------------------------


def test_loom_runs_in_the_order_of_the_document() -> None:
    wait = {"type": "wait", "inputs": {"interval": {"count": 5, "unit": "second"}}}
    played = play(loom({"b": wait, "a": {"type": "compose", "inputs": "@utcNow()"}}))
    assert played.ends() == ["b", "a"]
    assert played.outputs("a") == "2023-11-14T22:13:25.0000000Z"


def test_in_looms_order_a_failure_skips_the_rest() -> None:
    played = play(loom({"a": {"type": "compose", "inputs": "@int('x')"}, "b": {"type": "compose", "inputs": 1}}))
    assert played.statuses == {"a": "Failed", "b": "Skipped"}
    assert played.status == "Failed"


def test_one_run_after_makes_looms_container_a_graph() -> None:
    bad = {"type": "compose", "inputs": "@int('x')"}
    free = {"type": "compose", "inputs": 1}
    played = play(loom({"a": bad, "b": free, "c": {**free, "runAfter": {"a": ["Failed"]}}}))
    assert played.statuses == {"a": "Failed", "b": "Succeeded", "c": "Succeeded"}


def test_parallel_starts_all_at_once_and_gives_an_object() -> None:
    wait = {"type": "wait", "inputs": {"interval": {"count": 5, "unit": "second"}}}
    inner = {"w": wait, "x": {"type": "compose", "inputs": "@utcNow()"}, "y": {"type": "compose", "inputs": 2}}
    played = play(loom({"p": {"type": "parallel", "actions": inner}}))
    assert played.ends() == ["x", "y", "w", "p"]
    assert played.outputs("p") == {"w": None, "x": "2023-11-14T22:13:20.0000000Z", "y": 2}


def test_what_lies_in_a_loom_container_is_looms() -> None:
    """Here an azure flow has a `while`, and in it JSON order holds; beside it all start at once."""
    loop = {
        "type": "while",
        "condition": "@less(variables('loopIndex'), 1)",
        "actions": {"one": {"type": "Compose", "inputs": "@int('x')"}, "two": {"type": "Compose", "inputs": 2}},
    }
    played = play(azure({"A": failing(), "B": {"type": "Compose", "inputs": 1}, "L": loop}))
    assert played.statuses == {"A": "Failed", "B": "Succeeded", "L": "Failed", "one": "Failed", "two": "Skipped"}


@pytest.mark.parametrize("kind", ["manual", "schedule", "event"])
def test_looms_own_triggers_make_the_top_level_looms(kind: str) -> None:
    flow = {"triggers": {"t": {"type": kind}}, "actions": {"a": failing(), "b": {"type": "Compose", "inputs": 1}}}
    del flow["actions"]["a"]["runAfter"]  # type: ignore[attr-defined]
    assert play(flow).statuses == {"a": "Failed", "b": "Skipped"}

"""Foreach in both dialects: what it goes over, how many at a time, in which order, and what becomes of failures."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import after, azure, compose, initialized, loom, play

from loom.flows.calls import ActionCall, ActionOutcome


def each(items: Any, actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "Foreach", "foreach": items, "actions": actions, **more}


def width(repetitions: Any) -> dict[str, Any]:
    return {"runtimeConfiguration": {"concurrency": {"repetitions": repetitions}}}


CALL = {"type": "Http", "inputs": {"uri": "@items('E')"}}


def at_a_time(loop: dict[str, Any], items: int = 60, name: str = "E") -> int:
    """How many iterations of a loop whose every call takes a second run at the same time."""
    flow = azure({name: loop}) if loop["type"] == "Foreach" else loom({name: loop})
    played = play(flow, list(range(items)), answer=lambda _call: ActionOutcome(), lasting=lambda _call: 1.0)
    assert played.status == "Succeeded"
    return sum(at == 0 for at, _ in played.calls)


@pytest.mark.parametrize(
    ("value", "kind"), [(None, "Null"), ("text", "String"), (3, "Integer"), ({"a": 1}, "Object"), (True, "Boolean")]
)
def test_only_an_array_will_do(value: Any, kind: str) -> None:
    for items in ("@triggerBody()['v']", "@triggerBody()?['v']"):
        played = play(azure({"E": each(items, {"A": compose(1)})}), {"v": value})
        assert played.statuses == {"E": "Failed", "A": "Skipped"}
        assert played.result.actions["E"].code == "ExpressionEvaluationFailed"
        assert f"is of type '{kind}'. The result must be a valid array." in played.error("E")


def test_what_cannot_be_read_fails_too() -> None:
    played = play(azure({"E": each("@triggerBody()['missing']", {"A": compose(1)})}), {})
    assert played.result.actions["E"].code == "ExpressionEvaluationFailed"


def test_no_elements_are_a_success() -> None:
    played = play(azure({"E": each("@triggerBody()", {"A": compose(1)}), "R": compose("@outputs('E')", "E")}), [])
    assert played.statuses == {"E": "Succeeded", "A": "Skipped", "R": "Succeeded"}
    assert played.outputs("R") == []
    assert played.result.actions["E"].iterations == 0


def test_a_literal_array_may_hold_expressions() -> None:
    played = play(azure({"E": each(["@add(1, 1)", "x"], {"A": compose("@item()")})}))
    assert played.outputs("E") == [{"A": 2}, {"A": "x"}]


def test_outputs_are_those_of_all_iterations_in_their_order() -> None:
    def lasting(call: ActionCall) -> float:
        return 10.0 - call.inputs["uri"]

    played = play(
        azure({"E": each("@triggerBody()", {"C": CALL})}),
        [1, 2, 3],
        answer=lambda call: ActionOutcome(outputs=call.inputs["uri"]),
        lasting=lasting,
    )
    assert played.outputs("E") == [{"C": 1}, {"C": 2}, {"C": 3}]
    assert [report.repetition for report in played.reports if report.name == "C" and report.status == "Succeeded"] == [
        (2,), (1,), (0,),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "parallel"),
    [
        ({}, 20),
        (width(1), 1),
        (width(7), 7),
        (width(50), 50),
        (width("@add(2, 3)"), 5),
        ({"operationOptions": "Sequential"}, 1),
        ({"operationOptions": "sequential, Other"}, 1),
    ],
)
def test_how_many_run_at_a_time(more: dict[str, Any], parallel: int) -> None:
    assert at_a_time(each("@triggerBody()", {"C": CALL}, **more)) == parallel


def test_a_nested_foreach_goes_one_by_one_unless_it_says_otherwise() -> None:
    call = {"type": "Http", "inputs": {"uri": "@items('I')"}}
    for more, expected in (({}, 1), (width(3), 3)):
        inner = each("@createArray(1, 2, 3)", {"C": call}, **more)
        assert at_a_time(each("@triggerBody()", {"I": inner}, **width(1)), items=2) == expected


def test_a_nested_foreach_is_nested_through_other_containers() -> None:
    inner = each("@createArray(1, 2, 3)", {"C": {"type": "Http", "inputs": {}}})
    scope = {"type": "Scope", "actions": {"I": inner}}
    assert at_a_time(each("@triggerBody()", {"S": scope}, **width(1)), items=2) == 1


@pytest.mark.parametrize("key", ["foreach", "items"])
def test_looms_foreach_goes_one_by_one(key: str) -> None:
    fields = {key: "@triggerBody()", "actions": {"c": {"type": "http", "inputs": {"uri": "@variables('item')"}}}}
    for loop in ({"type": "foreach", **fields}, {"type": "foreach", "inputs": fields}):
        assert at_a_time(loop, items=3, name="e") == 1


def test_looms_foreach_may_ask_for_more_at_a_time() -> None:
    fields = {"items": "@triggerBody()", "actions": {"c": {"type": "http", "inputs": {}}}}
    assert at_a_time({"type": "foreach", **fields, **width(4)}, items=9) == 4


def test_iterations_start_in_order_and_a_variable_action_is_one_step() -> None:
    """Azure's parallel iterations race for a variable; these do not, and the interleaving is always the same."""
    flow = azure(
        {
            "V": initialized("n", "Integer", 0),
            "E": each(
                "@range(0, 100)",
                {
                    "Add": {"type": "IncrementVariable", "inputs": {"name": "n"}},
                    "See": compose("@variables('n')", "Add"),
                },
                runAfter=after("V"),
            ),
        }
    )
    first, second = play(flow), play(flow)
    assert first.result.variables == {"n": 100}
    assert first.outputs("E") == second.outputs("E")


def test_every_iteration_runs_and_one_failure_fails_the_loop() -> None:
    played = play(azure({"E": each("@triggerBody()", {"A": compose("@int(item())")})}), ["1", "x", "3", "y"])
    assert played.statuses["E"] == "Failed"
    assert played.outputs("E") == [{"A": 1}, {"A": None}, {"A": 3}, {"A": None}]
    assert played.result.actions["E"].iterations == 4
    assert played.result.actions["E"].code == "ActionFailed"


def test_a_failure_handled_in_its_iteration_does_not_fail_the_loop() -> None:
    inside = {"A": compose("@int(item())"), "H": compose("handled", A=["Failed", "Skipped"])}
    played = play(azure({"E": each("@triggerBody()", inside)}), ["x"])
    assert played.statuses["E"] == "Succeeded"


def test_looms_foreach_ends_at_the_first_failure_with_its_error() -> None:
    inside = {"a": {"type": "compose", "inputs": "@int(item())"}}
    played = play(loom({"e": {"type": "foreach", "items": "@triggerBody()", "actions": inside}}), ["1", "x", "3"])
    assert played.statuses["e"] == "Failed"
    assert played.result.actions["e"].iterations == 2
    assert played.error("e") == played.error("a")


def test_item_is_the_innermost_element_and_items_the_named_one() -> None:
    inner = each("@items('E')?['inner']", {"A": compose(["@item()", "@items('I')", "@items('E')?['name']"])})
    played = play(azure({"E": each("@triggerBody()", {"I": inner})}), [{"name": "o", "inner": [1, 2]}])
    assert played.outputs("E") == [{"I": [{"A": [1, 1, "o"]}, {"A": [2, 2, "o"]}]}]


def test_item_in_select_is_the_selects_element_and_outside_the_loops() -> None:
    select = {"type": "Select", "inputs": {"from": [1, 2], "select": "@concat(item(), items('E'))"}}
    played = play(azure({"E": each(["a"], {"S": select, "O": compose("@item()", "S")})}))
    assert played.outputs("E") == [{"S": {"body": ["1a", "2a"]}, "O": "a"}]


def test_references_inside_a_loop_mean_the_same_iteration() -> None:
    inside = {"A": compose("@item()"), "B": compose("@outputs('A')", "A")}
    played = play(azure({"E": each("@range(0, 30)", inside)}))
    assert played.outputs("E") == [{"A": n, "B": n} for n in range(30)]


def test_references_from_outside_mean_the_last_iteration() -> None:
    played = play(azure({"E": each([1, 2, 3], {"A": compose("@item()")}), "R": compose("@outputs('A')", "E")}))
    assert played.outputs("R") == 3


def test_the_index_of_any_loop_can_be_read() -> None:
    played = play(azure({"E": each(["a", "b"], {"A": compose("@iterationIndexes('E')")})}))
    assert played.outputs("E") == [{"A": 0}, {"A": 1}]


def test_a_thousand_elements_are_one_run_in_pieces() -> None:
    """More than one burst of fuel."""
    played = play(azure({"E": each("@range(0, 3000)", {"A": compose("@item()")})}))
    assert played.outputs("E") == [{"A": n} for n in range(3000)]


def test_a_loop_recovered_after_every_batch_goes_on_where_it_was() -> None:
    flow = azure({"E": each("@range(0, 30)", {"C": CALL, "D": compose("@outputs('C')", "C")})})

    def answer(call: ActionCall) -> ActionOutcome:
        return ActionOutcome(outputs=call.inputs["uri"] * 2)

    played = play(flow, answer=answer, recover_always=True)
    assert played.outputs("E") == [{"C": 2 * n, "D": 2 * n} for n in range(30)]
    assert played.executions("C") == 30

"""Loom's loops: until and while test first, doUntil last; limits fail; loop variables; delays; nesting."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import azure, loom, play

import loom as loom_package

COUNT = {"type": "incrementVariable", "inputs": {"name": "n"}}
N = {"n": 0}


def loop(kind: str, condition: Any, actions: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return loom({"l": {"type": kind, "condition": condition, "actions": actions or {"count": COUNT}, **more}})


def see(inputs: Any) -> dict[str, Any]:
    return {"see": {"type": "compose", "inputs": inputs}}


@pytest.mark.parametrize(
    ("kind", "condition", "start", "iterations"),
    [
        ("until", "@greaterOrEquals(variables('n'), 3)", 0, 3),
        ("until", "@greaterOrEquals(variables('n'), 3)", 3, 0),
        ("while", "@less(variables('n'), 3)", 0, 3),
        ("while", "@less(variables('n'), 3)", 3, 0),
        ("doUntil", "@greaterOrEquals(variables('n'), 3)", 0, 3),
        ("doUntil", "@greaterOrEquals(variables('n'), 3)", 3, 1),
        ("until", {"greater": ["@variables('n')", 1]}, 0, 2),
        ("while", {"and": [{"less": ["@variables('n')", 2]}]}, 0, 2),
        ("until", "true", 0, 0),
        ("while", "false", 0, 0),
        ("doUntil", "true", 0, 1),
    ],
)
def test_how_often_a_loop_runs(kind: str, condition: Any, start: int, iterations: int) -> None:
    for document in (loop(kind, condition), loop_under_inputs(kind, condition)):
        played = play(document, variables={"n": start})
        assert played.status == "Succeeded"
        assert played.result.variables == {"n": start + iterations}
        assert played.result.actions["l"].iterations == iterations


def loop_under_inputs(kind: str, condition: Any) -> dict[str, Any]:
    return loom({"l": {"type": kind, "inputs": {"condition": condition, "actions": {"count": COUNT}}}})


def test_a_while_negates_the_condition_and_not_its_text() -> None:
    """Text that begins with `@not(` or joins two calls must not become something else."""
    played = play(loop("while", "@and(less(variables('n'), 2), not(equals(variables('n'), 5)))"), variables=N)
    assert played.result.variables == {"n": 2}


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
@pytest.mark.parametrize(("limit", "count"), [({}, 60), ({"count": 7}, 7), ({"count": "@add(3, 4)"}, 7), (None, 60)])
def test_the_iteration_limit_fails_the_loop(kind: str, limit: Any, count: int) -> None:
    more = {"limit": limit} if limit is not None else {}
    played = play(loop(kind, "true" if kind == "while" else "false", **more), variables=N)
    assert played.status == "Failed"
    assert played.result.variables == {"n": count}
    assert played.error("l") == f"LoopLimitReached: Loop exceeded maximum iterations: {count}"


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
def test_the_time_limit_fails_the_loop(kind: str) -> None:
    wait = {"type": "wait", "inputs": {"interval": {"count": 40, "unit": "second"}}}
    condition = "true" if kind == "while" else "false"
    played = play(loop(kind, condition, {"count": COUNT, "wait": wait}, limit={"timeout": "PT1M30S"}), variables=N)
    assert played.error("l") == "LoopTimedOut: Loop timeout after 90000ms"
    assert played.result.variables == {"n": 3}


def test_the_default_time_limit_is_an_hour() -> None:
    delay = {"interval": {"count": 25, "unit": "minute"}}
    played = play(loop("until", "false", delay=delay), variables=N)
    assert played.error("l") == "LoopTimedOut: Loop timeout after 3600000ms"
    assert played.result.variables == {"n": 3}


def test_limits_beyond_the_systems_are_refused_and_can_be_raised() -> None:
    many = loop("until", "@equals(variables('n'), 1500)", limit={"count": 2000, "timeout": "P2D"})
    with pytest.raises(loom_package.DefinitionError) as refused:
        loom_package.load(many)
    assert len(refused.value.problems) == 2
    raised = {"max_iterations": 5_000, "max_duration_s": 7 * 86_400.0}
    assert play(many, variables=N, limits=raised).result.variables == {"n": 1500}


def test_a_count_that_an_expression_makes_too_high_fails_the_loop() -> None:
    played = play(loop("until", "false", limit={"count": "@mul(500, 3)"}), variables=N)
    assert played.statuses["l"] == "Failed"
    assert "system limit: 1000" in played.error("l")


def test_a_failed_iteration_fails_the_loop_at_once_with_its_error() -> None:
    actions = {"count": COUNT, "bad": {"type": "compose", "inputs": "@div(1, sub(2, variables('n')))"}}
    played = play(loop("until", "false", actions), variables=N)
    assert played.result.variables == {"n": 2}
    assert played.error("l") == played.error("bad")


def test_a_failure_handled_in_the_body_does_not() -> None:
    actions = {
        "count": COUNT,
        "bad": {"type": "compose", "inputs": "@int('x')", "runAfter": {"count": ["Succeeded"]}},
        "handled": {"type": "compose", "inputs": 1, "runAfter": {"bad": ["Failed"]}},
    }
    assert play(loop("until", "@equals(variables('n'), 2)", actions), variables=N).status == "Succeeded"


# -- loop variables ----------------------------------------------------------------------------------------------------


def test_loop_variables_in_the_body() -> None:
    seen = [
        "@variables('loopIndex')",
        "@variables('loopCount')",
        "@variables('loopResult')",
        "@variables('loopStartTime')",
    ]
    played = play(loop("until", "@equals(variables('loopIndex'), 2)", see(seen)))
    started = "2023-11-14T22:13:20.0000000Z"
    first = [0, 1, None, started]
    assert [one.result["see"] for one in played.iterations] == [first, [1, 2, {"see": first}, started]]


@pytest.mark.parametrize(
    ("kind", "condition", "iterations"),
    [
        ("until", "@equals(variables('loopIndex'), 2)", 2),
        ("until", "@equals(variables('loopCount'), 2)", 1),
        ("while", "@less(variables('loopCount'), 3)", 2),
        ("doUntil", "@equals(variables('loopIndex'), 2)", 2),
        ("doUntil", "@equals(variables('loopCount'), 2)", 1),
        ("until", "@equals(variables('loopResult')?['see'], 3)", 4),
        ("doUntil", "@equals(variables('loopResult')?['see'], 3)", 4),
    ],
)
def test_loop_variables_in_the_condition(kind: str, condition: str, iterations: int) -> None:
    """Before an iteration they are those of the iteration to come, and in doUntil's test, of the next one."""
    played = play(loop(kind, condition, see("@variables('loopIndex')")))
    assert played.status == "Succeeded"
    assert played.result.actions["l"].iterations == iterations


def test_an_outer_loops_variables_have_its_name() -> None:
    inner = {
        "type": "until",
        "condition": "@greater(variables('loopIndex'), variables('outer_loopIndex'))",
        "actions": see("@concat(variables('outer_loopIndex'), variables('loopIndex'), variables('inner_loopCount'))"),
    }
    outer = {"type": "until", "condition": "@equals(variables('loopIndex'), 2)", "actions": {"inner": inner}}
    played = play(loom({"outer": outer}))
    assert played.status == "Succeeded"
    told = [(one.path, one.result["see"]) for one in played.iterations if one.action_name == "inner"]
    assert told == [("outer[0]/inner[0]", "001"), ("outer[1]/inner[0]", "101"), ("outer[1]/inner[1]", "112")]


@pytest.mark.parametrize("name", ["loopIndex", "LOOPCOUNT", "loopResult", "outer_loopStartTime"])
def test_the_names_are_reserved(name: str) -> None:
    variable = {"name": name, "type": "integer", "value": 1}
    with pytest.raises(loom_package.DefinitionError, match="loops themselves"):
        loom_package.load(loom({"i": {"type": "initializeVariable", "inputs": {"variables": [variable]}}}))


def test_outside_of_loops_there_are_none() -> None:
    played = play(loom({"c": {"type": "compose", "inputs": "@variables('loopIndex')"}}))
    assert "no such loop around this place" in played.error("c")


# -- delays ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "seconds"), [("second", 1), ("minute", 60), ("hour", 3600), ("Second", 1)])
def test_a_delay_waits_between_iterations(unit: str, seconds: int) -> None:
    times = see("@utcNow('mm:ss')")
    played = play(
        loop("until", "@equals(variables('loopIndex'), 3)", times, delay={"interval": {"count": 2, "unit": unit}},
             limit={"timeout": "PT24H"})
    )  # fmt: skip
    assert [one.timestamp for one in played.iterations] == [1_700_000_000.0 + 2 * seconds * n for n in range(3)]


def test_a_do_until_that_is_done_waits_no_more() -> None:
    delay = {"interval": {"count": 10, "unit": "second"}}
    played = play(loop("doUntil", "@equals(variables('n'), 3)", delay=delay), variables=N)
    assert (played.result.variables, played.at) == ({"n": 3}, 20)


def test_a_delay_may_be_an_expression() -> None:
    delay = {"interval": {"count": "@add(variables('n'), 1)", "unit": "second"}}
    played = play(loop("doUntil", "@equals(variables('n'), 3)", delay=delay), variables=N)
    assert played.at == 2 + 3


# -- outputs and dialects ----------------------------------------------------------------------------------------------


def test_a_loops_outputs_are_the_last_iterations_by_name() -> None:
    actions = {**see("@variables('loopIndex')"), "text": {"type": "compose", "inputs": "x"}}
    played = play(loop("until", "@equals(variables('loopIndex'), 3)", actions))
    assert played.outputs("l") == {"see": 2, "text": "x"}


def test_a_loop_that_never_ran_has_no_outputs() -> None:
    assert play(loop("until", "true")).outputs("l") is None


def test_until_with_expression_in_looms_container_keeps_azures_rules() -> None:
    azures = {"type": "until", "expression": "@equals(variables('n'), 9)", "limit": {"count": 3}}
    played = play(loom({"l": {**azures, "actions": {"count": COUNT}}}), variables={"n": 9})
    assert (played.status, played.result.variables) == ("Succeeded", {"n": 12})


def test_until_with_condition_in_azures_container_keeps_looms_rules() -> None:
    flow = azure({"L": {"type": "Until", "condition": "@equals(variables('n'), 0)", "actions": {"C": COUNT}}})
    assert play(flow, variables=N).result.variables == {"n": 0}
    assert play(flow, variables={"n": 1}).error("L") == "LoopLimitReached: Loop exceeded maximum iterations: 60"


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
def test_a_loop_recovered_after_every_batch_goes_on_at_the_iteration_where_it_was(kind: str) -> None:
    condition = "@less(variables('n'), 9)" if kind == "while" else "@greaterOrEquals(variables('n'), 9)"
    delay = {"interval": {"count": 1, "unit": "minute"}}
    document = loop(kind, condition, {"count": COUNT, **see("@variables('loopIndex')")}, delay=delay)
    played = play(document, variables=N, recover_always=True)
    assert [one.result["see"] for one in played.iterations] == list(range(9))
    assert played.result == play(document, variables=N).result

"""Loops that are over keep what they were: how they ended, type, condition and limits."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import azure, loom, play, program_of

from loom.flows import planner
from loom.flows.progress import LoopProgress, ended_actions, ended_loops
from loom.flows.rules import ACTIONS_HAVE_BUDGETS

WAIT = {"wait": {"type": "wait", "inputs": {"interval": {"count": 40, "unit": "second"}}}}
SAY = {"say": {"type": "compose", "inputs": 1}}
BAD = {"bad": {"type": "compose", "inputs": "@int('x')"}}


def ended(document: dict[str, Any], **given: Any) -> dict[str, LoopProgress]:
    program, played = program_of(document), play(document, **given)
    return {loop.name: loop for loop in ended_loops(program, ended_actions(program, played.end))}


def loop(kind: str, condition: Any, actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "condition": condition, "actions": actions, **more}


NEVER = {"until": "@equals(1, 2)", "while": "@equals(1, 1)", "doUntil": "@equals(1, 2)"}


@pytest.mark.parametrize("kind", ["until", "while", "doUntil"])
@pytest.mark.parametrize(
    ("actions", "limit", "status", "iterations", "tested"),
    [
        (WAIT, {"timeout": "PT1M"}, "timeout", 2, True),
        (SAY, {"count": 3}, "failed", 3, True),
        (BAD, {"count": 4, "timeout": "PT1M"}, "failed", 1, False),
    ],
)
def test_how_a_loop_has_ended(
    kind: str, actions: dict[str, Any], limit: dict[str, Any], status: str, iterations: int, tested: bool
) -> None:
    found = ended(loom({"l": loop(kind, NEVER[kind], actions, limit=limit)}))["l"]
    assert (found.type, found.status, found.iteration) == (kind, status, iterations)
    assert (found.condition, found.condition_result) == (NEVER[kind], kind == "while" if tested else None)
    assert found.max_iterations == limit.get("count", 60)
    assert found.timeout == (60.0 if "timeout" in limit else 3600.0)


def test_a_loop_that_its_condition_ends() -> None:
    first = loop("while", "@less(variables('loopIndex'), 2)", SAY)
    then = loop("doUntil", "@equals(variables('loopIndex'), 2)", {"other": SAY["say"]})
    found = ended(loom({"first": first, "then": then}))
    assert [(each.type, each.status, each.condition_result) for each in found.values()] == [
        ("while", "complete", False),
        ("doUntil", "complete", True),
    ]


def test_a_loop_around_one_that_time_has_ended_has_failed() -> None:
    inner = loop("until", "@equals(1, 2)", WAIT, limit={"timeout": "PT1M"})
    found = ended(loom({"outer": loop("doUntil", "@equals(1, 2)", {"inner": inner}, limit={"count": 7})}))
    assert {name: each.status for name, each in found.items()} == {"outer": "failed", "inner": "timeout"}
    assert (found["inner"].parent, found["outer"].max_iterations) == ("outer", 7)


def test_limits_of_expressions_are_known_if_they_have_ended_the_loop() -> None:
    counted = loop("until", "@equals(1, 2)", SAY, limit={"count": "@add(1, 1)", "timeout": "@concat('PT', '1M')"})
    found = ended(loom({"l": counted}))["l"]
    assert (found.status, found.max_iterations, found.timeout) == ("failed", 2, None)


def test_a_foreach_and_a_loop_of_logic_apps() -> None:
    each = {"type": "foreach", "items": [1, 2, 3], "actions": SAY}
    found = ended(loom({"each": each}))["each"]
    assert (found.type, found.status, found.max_iterations, found.condition) == ("foreach", "complete", 3, None)
    limited = {"type": "Until", "expression": "@equals(1, 2)", "actions": SAY, "limit": {"count": 2, "timeout": "PT1H"}}
    quiet = ended(azure({"l": {**limited, "runAfter": {}}}))["l"]
    assert (quiet.type, quiet.status, quiet.condition_result) == ("until", "complete", None)
    strict = ended(azure({"l": {**limited, "runAfter": {}, "operationOptions": "FailWhenLimitsReached"}}))["l"]
    assert (strict.status, strict.condition_result) == ("failed", False)


def test_a_run_of_older_rules_keeps_its_code_and_is_shown_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "NEWEST", ACTIONS_HAVE_BUDGETS)
    document = loom({"l": loop("until", "@equals(1, 2)", WAIT, limit={"timeout": "PT1M"})})
    assert play(document).error("l") == "LoopLimitReached: Loop timeout after 60000ms"
    assert ended(document)["l"].status == "timeout"


def test_the_error_of_a_secure_loop_tells_that_time_has_ended_it() -> None:
    secure = {"runtimeConfiguration": {"secureData": {"properties": ["outputs"]}}}
    document = loom({"l": loop("until", "@equals(1, 2)", WAIT, limit={"timeout": "PT1M"}, **secure)})
    assert play(document).error("l") == "LoopTimedOut: Loop timeout after 60000ms"
    assert ended(document)["l"].status == "timeout"

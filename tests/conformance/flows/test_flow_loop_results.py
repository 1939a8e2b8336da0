"""A `loopResult` that is carried in itself is cut before it is nested too deep, and the loop warns of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from flow_player import loom, play

from loom.flows import planner
from loom.flows.plain import CARRIED_CUT, CARRIED_MOST, check_weight
from loom.flows.rules import ACTIONS_HAVE_BUDGETS

CARRY = {"carry": {"type": "compose", "inputs": {"n": "@variables('loopIndex')", "before": "@variables('loopResult')"}}}


def carrying(kind: str, condition: str, count: int = 400) -> dict[str, Any]:
    return loom({"l": {"type": kind, "condition": condition, "actions": CARRY, "limit": {"count": count}}})


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("until", "@equals(variables('loopIndex'), 300)"),
        ("while", "@less(variables('loopIndex'), 300)"),
        ("doUntil", "@equals(variables('loopIndex'), 300)"),
    ],
)
def test_what_is_carried_is_cut_and_the_loop_goes_on(kind: str, condition: str) -> None:
    played = play(carrying(kind, condition))
    assert (played.status, played.result.actions["l"].iterations) == ("Succeeded", 300)
    warned = [each.iteration for each in played.iterations if each.warning]
    assert warned[0] == CARRIED_MOST // 2
    assert {each - earlier for earlier, each in pairwise(warned)} == {26}
    first = next(each for each in played.iterations if each.warning)
    assert "loopResult" in first.warning
    assert check_weight(first.result) == CARRIED_CUT
    result, numbers = played.outputs("l"), []
    while result is not None:
        numbers.append(result["carry"]["n"])
        result = result["carry"]["before"]
    assert numbers == list(range(299, 299 - len(numbers), -1)), "the newest are there"
    assert len(numbers) >= CARRIED_CUT // 2


def test_deep_results_that_do_not_grow_are_whole() -> None:
    deep: Any = 1
    for _ in range(95):
        deep = [deep]
    body = {"say": {"type": "compose", "inputs": deep}}
    document = loom({"l": {"type": "until", "condition": "@equals(variables('loopIndex'), 3)", "actions": body}})
    played = play(document)
    assert [each.warning for each in played.iterations] == ["", "", ""]
    assert played.outputs("l") == {"say": deep}


def test_a_run_of_older_rules_still_fails_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "NEWEST", ACTIONS_HAVE_BUDGETS)
    played = play(carrying("until", "@equals(variables('loopIndex'), 300)"))
    assert (played.status, played.result.actions["l"].iterations) == ("Failed", 101)
    assert not any(each.warning for each in played.iterations)

"""Flows that random programs and crashes have found something with: each by itself, so that it stays found."""

from __future__ import annotations

from typing import Any

from flow_driver import Driver

from loom.runtime.flow import load


def _driven(actions: dict[str, Any]) -> Any:
    return Driver(load({"actions": actions}, name="found").program).go_on()


def test_a_container_that_is_tried_again_runs_all_of_its_actions_again() -> None:
    """The records of the first try were in the way: what follows inside never ran, and the flow hung."""
    n = {"type": "initializeVariable", "inputs": {"variables": [{"name": "n", "type": "integer", "value": 0}]}}
    count = {"type": "incrementVariable", "inputs": {"name": "n"}}
    fails_once = {"type": "compose", "inputs": "@if(less(variables('n'), 2), int('not yet'), variables('n'))"}
    scope = {
        "type": "scope",
        "actions": {"count": count, "weak": fails_once, "behind": {"type": "compose", "inputs": 1}},
    }
    result = _driven({"n": n, "again": {**scope, "retry": {"type": "fixed", "count": 3, "interval": "PT1S"}}})
    assert (result.status, result.variables) == ("Succeeded", {"n": 2})
    assert [result.actions[name].status for name in ("count", "weak", "behind")] == ["Succeeded"] * 3
    assert len(result.actions["again"].retry_history) == 1


def test_the_last_iteration_is_that_of_the_last_element() -> None:
    """Iterations side by side end in any order; what is to be seen of them afterwards does not depend on it."""
    rest = {"type": "wait", "inputs": {"interval": {"count": "@sub(9, item())", "unit": "second"}}}
    each = {"type": "foreach", "items": "@createArray(1, 2, 3)", "actions": {"rest": rest, "say": _say("@item()")}}
    result = _driven({"each": {**each, "runtimeConfiguration": {"concurrency": {"repetitions": 3}}}})
    assert result.actions["say"].outputs == 3
    assert [entry["say"] for entry in result.actions["each"].outputs] == [1, 2, 3]


def test_the_failure_of_a_foreach_is_that_of_its_first_element_that_failed() -> None:
    rest = {"type": "wait", "inputs": {"interval": {"count": "@sub(9, item())", "unit": "second"}}}
    bad = _say("@int(concat('number ', string(item())))")
    each = {"type": "foreach", "items": "@createArray(1, 2, 3)", "actions": {"rest": rest, "bad": bad}}
    result = _driven({"each": {**each, "runtimeConfiguration": {"concurrency": {"repetitions": 3}}}})
    assert result.status == "Failed"
    assert "number 1" in result.error["message"]


def _say(inputs: Any) -> dict[str, Any]:
    return {"type": "compose", "inputs": inputs}

"""Appending to an array copies nothing, and reading shows everything."""

from __future__ import annotations

import pytest

import loom
from loom.core.persistent import Map
from loom.core.state import BrokerState
from loom.flows.state import FlowPlan, Variable
from loom.store import codec


def test_what_was_appended_is_behind_the_rest_and_is_stored() -> None:
    variable = Variable("a", "array", [1, 2])
    for number in range(3, 200):
        variable = Variable("a", "array", variable.value, appended=variable.appended.push_back(number))
    assert variable.whole() == list(range(1, 200))
    state = BrokerState(run_id="r", plan=FlowPlan(variables=Map({"a": variable})))
    again = codec.decode_state("r", codec.encode_state(state))
    assert again.plan.variables["a"].whole() == list(range(1, 200))
    assert variable.value == [1, 2]


async def test_appending_between_reads_and_after_a_set() -> None:
    append = {"type": "appendToArrayVariable", "inputs": {"name": "a", "value": "@length(variables('a'))"}}
    flow = loom.load(
        {
            "actions": {
                "init": {"type": "initializeVariable", "inputs": {"variables": [{"name": "a", "type": "array"}]}},
                "one": append,
                "two": {"type": "appendToArrayVariable", "inputs": {"name": "a", "value": "x"}},
                "three": append,
                "seen": {"type": "compose", "inputs": "@variables('a')"},
                "set": {"type": "setVariable", "inputs": {"name": "a", "value": [9]}},
                "four": append,
            }
        }
    )
    result = await flow.run()
    assert result.actions["seen"].outputs == [0, "x", 2]
    assert result.variables == {"a": [9, 1]}


async def test_only_arrays_can_be_appended_to() -> None:
    flow = loom.load(
        {
            "actions": {
                "init": {
                    "type": "initializeVariable",
                    "inputs": {"variables": [{"name": "s", "type": "string", "value": None}]},
                },
                "push": {"type": "appendToArrayVariable", "inputs": {"name": "s", "value": 1}},
            }
        }
    )
    result = await flow.run()
    assert "no array" in result.actions["push"].error["message"]


def test_no_action_may_set_what_loops_set() -> None:
    with pytest.raises(loom.DefinitionError, match=r"actions\.s\.inputs\.name: 'loopIndex' is set by the loops"):
        loom.load({"actions": {"s": {"type": "setVariable", "inputs": {"name": "loopIndex", "value": 1}}}})

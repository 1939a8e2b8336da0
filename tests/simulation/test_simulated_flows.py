"""Simulating flows: loops, waits, retries and answers, through all that can go wrong."""

from __future__ import annotations

import os
from typing import Any

import pytest

import loom
from loom import ActionContext, Event, FlowEvent, InputRequiredEvent, LoopIterationEvent
from loom.effects.actions.handlers import HANDLERS
from loom.testing import Ended, simulate

SEEDS = range(int(os.environ.get("LOOM_FLOW_SEEDS", "6")))


async def steady(given: Any, context: ActionContext) -> Any:
    if context.attempt < given["failures"]:
        raise ConnectionError(f"attempt {context.attempt}")
    return given["n"]


def _work(n: str, failures: int = 0, **more: Any) -> dict[str, Any]:
    inputs = {"activityType": "steady", "input": {"n": n, "failures": failures}}
    return {"type": "activity", "inputs": inputs, **more}


def flow() -> loom.Flow:
    """Every kind of thing that takes time, one in the other."""
    minute = {"interval": {"count": 1, "unit": "minute"}}
    declared = [{"name": "log", "type": "array", "value": []}, {"name": "sum", "type": "integer", "value": 0}]
    add = {"type": "incrementVariable", "inputs": {"name": "sum", "value": "@outputs('each')"}}
    inner = {
        "type": "foreach",
        "items": "@range(0, 5)",
        "runtimeConfiguration": {"concurrency": {"repetitions": 3}},
        "actions": {"each": _work("@item()", 1, retry={"type": "fixed", "count": 1, "interval": "PT20S"}), "add": add},
    }
    wanted = {"event": "Word", "prompt": "@{variables('loopIndex')}", "requirements": {"n": "@variables('loopIndex')"}}
    ask = {"type": "waitForEvent", "inputs": wanted}
    note = {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": "@body('ask').n"}}
    loop = {
        "type": "doUntil",
        "condition": "@equals(variables('loopIndex'), 3)",
        "limit": {"count": 9, "timeout": "PT24H"},
        "delay": minute,
        "actions": {"inner": inner, "ask": ask, "note": note},
    }
    branches = {"loop": loop, "rest": {"type": "wait", "inputs": {"interval": {"count": 10, "unit": "minute"}}}}
    actions = {
        "init": {"type": "initializeVariable", "inputs": {"variables": declared}},
        "both": {"type": "parallel", "actions": branches},
        "end": {"type": "compose", "inputs": "@variables('sum')"},
    }
    return loom.load({"actions": actions}, name="simulated")


def answer(event: Event) -> Event | None:
    """Whoever is asked for a number says it."""
    return FlowEvent(name="Word", data={"n": int(event.prompt)}) if isinstance(event, InputRequiredEvent) else None


def check(ended: Ended) -> None:
    if ended.status == "cancelled":
        return
    assert ended.status == "completed"
    assert ended.result.status == "Succeeded"
    assert ended.result.variables == {"log": [0, 1, 2], "sum": 30}
    assert ended.result.actions["end"].outputs == 30
    iterations = [event.iteration for event in ended.events if isinstance(event, LoopIterationEvent)]
    assert iterations == [0, 1, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flow_lives_through_everything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS.activities, "steady", steady)
    report = simulate(flow, seed=seed, runs=3, answer=answer, check=check)
    assert report.runs == 3

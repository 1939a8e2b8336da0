"""Small flows with every kind of loop, the activity that they call, and what is to be seen of their runs."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_watching import Witness

import loom
from loom import ActionContext, FlowResult, LoopIterationEvent
from loom.effects.actions.handlers import HANDLERS
from loom.runtime.durable.runtime import DurableRuntime

Data = dict[str, Any]


class Work:
    """The activity of the flows: it tells a witness where it is and by which key, and may be held up there."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.keys: dict[str, set[str]] = {}
        """By place; more than one per place means that a repeated call came under another name."""
        self.failing: dict[str, int] = {}
        """Places where it fails until so many attempts were made."""

    async def __call__(self, given: Data, context: ActionContext) -> Data:
        place = str(given["at"])
        self.keys.setdefault(place, set()).add(context.idempotency_key)
        await self.witness.at(place)
        if self.witness.count(place) <= self.failing.get(place, 0):
            raise ConnectionError(f"not yet at {place}")
        return {"at": place, "seen": given.get("seen")}

    def times(self) -> dict[str, int]:
        """How often it was called, by place."""
        return {place: self.witness.count(place) for place in sorted(self.keys)}


def install(monkeypatch: pytest.MonkeyPatch, witness: Witness) -> Work:
    """The activity, known as `work` during a test."""
    work = Work(witness)
    monkeypatch.setitem(HANDLERS.activities, "work", work)
    return work


def work(at: str, seen: Any = None, **more: Any) -> Data:
    """An action that calls the activity."""
    return {"type": "activity", "inputs": {"activityType": "work", "input": {"at": at, "seen": seen}}, **more}


def flow(actions: Data, name: str = "flow", **more: Any) -> loom.Flow:
    """A flow of Loom's dialect, with a number and a list as variables."""
    return loom.load({"actions": {"init": _VARIABLES, **actions}, **more}, name=name)


def azure_flow(actions: Data, name: str = "flow") -> loom.Flow:
    """A flow of Logic Apps' dialect; actions begin after the variables are there, unless they say more."""
    for action in actions.values():
        action.setdefault("runAfter", {"init": ["Succeeded"]})
    triggers = {"manual": {"type": "Request", "kind": "Http"}}
    return loom.load({"triggers": triggers, "actions": {"init": _VARIABLES, **actions}}, name=name)


_VARIABLES: Data = {
    "type": "initializeVariable",
    "inputs": {
        "variables": [{"name": "n", "type": "integer", "value": 0}, {"name": "log", "type": "array", "value": []}]
    },
}
_COUNT: Data = {"type": "incrementVariable", "inputs": {"name": "n", "value": 1}}
_NOTE: Data = {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": "@outputs('step')"}}


def _body(at: str, seen: Any) -> Data:
    return {"step": work(at, seen), "count": _COUNT, "note": _NOTE}


_INDEX = "@concat('at ', string(variables('loopIndex')))"
_BEFORE = "@coalesce(variables('loopResult')?['step']?['at'], 'nothing')"


def _loop(kind: str, condition: str, **more: Any) -> loom.Flow:
    loop = {"type": kind, "condition": condition, "limit": {"count": 9}, "actions": _body(_INDEX, _BEFORE), **more}
    return flow({"loop": loop})


def _azure_until() -> loom.Flow:
    actions = _body("@concat('at ', string(iterationIndexes('loop')))", "@variables('n')")
    actions["count"] = {**_COUNT, "runAfter": {"step": ["Succeeded"]}}
    actions["note"] = {**_NOTE, "runAfter": {"count": ["Succeeded"]}}
    return azure_flow({"loop": {"type": "Until", "expression": "@equals(variables('n'), 3)", "actions": actions}})


def _foreach() -> loom.Flow:
    actions = _body("@concat('at ', string(item()))", "@variables('n')")
    return flow({"loop": {"type": "foreach", "items": "@range(0, 3)", "actions": actions}})


def _nested() -> loom.Flow:
    at = "@concat('at ', string(variables('outer_loopIndex')), string(variables('loopIndex')))"
    inner = {"type": "doUntil", "condition": "@equals(variables('loopIndex'), 2)", "actions": _body(at, _BEFORE)}
    outer = {"type": "while", "condition": "@less(variables('loopIndex'), 2)", "actions": {"inner": inner}}
    return flow({"outer": outer})


def _retry() -> loom.Flow:
    policy = {"type": "fixed", "count": 3, "interval": "PT0.01S", "minimumInterval": "PT0.01S"}
    actions = {"step": {"type": "retry", "action": work("at 0", "nothing"), "retryPolicy": policy}, "note": _NOTE}
    return flow(actions)


LOOPS = {
    "until": lambda: _loop("until", "@equals(variables('n'), 3)"),
    "while": lambda: _loop("while", "@less(variables('n'), 3)"),
    "doUntil": lambda: _loop("doUntil", "@equals(variables('n'), 3)"),
    "delayed": lambda: _loop(
        "until", "@equals(variables('n'), 3)", delay={"interval": {"count": 0.01, "unit": "second"}}
    ),
    "Azure's Until": _azure_until,
    "foreach": _foreach,
    "nested": _nested,
}
"""Loops of three iterations, or of two by two, that call the activity at `at <iteration>`."""

RETRY = _retry

PLACES = dict.fromkeys(LOOPS, ("at 0", "at 1", "at 2")) | {"nested": ("at 00", "at 01", "at 10", "at 11")}


def log_of(kind: str) -> list[Data]:
    """What the variable holds when a loop has ended."""
    places = PLACES[kind]
    if kind in ("foreach", "Azure's Until"):
        return [{"at": place, "seen": number} for number, place in enumerate(places)]
    before = ["nothing", *places]
    if kind == "nested":
        before = ["nothing", "at 00", "nothing", "at 10"]
    return [{"at": place, "seen": seen} for place, seen in zip(places, before, strict=False)]


async def stream(runtime: DurableRuntime, run_id: str) -> list[tuple[int, Any]]:
    """The whole stream of a run that has ended, by cursor."""
    handler = await runtime.handler(run_id)
    return [entry async for entry in handler._run.read_stream(-1, True)]


async def iterations(runtime: DurableRuntime, run_id: str) -> list[str]:
    """The iterations that the stream tells of. Its cursors have neither a gap nor a repetition."""
    events = await stream(runtime, run_id)
    assert [cursor for cursor, _ in events] == list(range(len(events)))
    return [event.path for _, event in events if isinstance(event, LoopIterationEvent)]


def paths(kind: str) -> list[str]:
    """The iterations that the stream of a loop tells of."""
    if kind == "foreach":
        return []
    if kind == "nested":
        return [path for o in "01" for path in (f"outer[{o}]/inner[0]", f"outer[{o}]/inner[1]", f"outer[{o}]")]
    return [f"loop[{number}]" for number in range(3)]


def statuses(result: FlowResult) -> dict[str, str]:
    return {name: action.status for name, action in result.actions.items()}

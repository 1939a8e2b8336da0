"""A second opinion on flows: the rules of both dialects as plain recursion over the document, without time and effects.

It shares nothing with the engine. It knows the actions that `flow_sketches` draws, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Action = dict[str, Any]
Block = dict[str, Action]
Statuses = dict[str, str]

_BAD = ("Failed", "TimedOut")


class Terminated(Exception):
    """The run is over, with this status."""


class Oracle:
    """One run."""

    def __init__(self, definition: Action) -> None:
        self.statuses: Statuses = {}
        self.variables: dict[str, Any] = {"n": 0, "log": []}
        self.ended_early = False
        loom = "triggers" not in definition
        try:
            self.status = self._block(definition["actions"], self.statuses, loom)
        except Terminated as end:
            self.status, self.ended_early = str(end), True

    def _block(self, block: Block, statuses: Statuses, loom: bool, ordered: bool = True) -> str:
        """Run a block. Its actions stand so that each comes after those that it runs after."""
        after = _after(block, loom and ordered)
        for name, action in block.items():
            if all(statuses[one] in wanted for one, wanted in after[name].items()):
                statuses[name] = self._action(name, action, statuses, loom)
            else:
                statuses[name] = "Skipped"
            for inner in _inside(action):
                statuses.setdefault(inner, "Skipped")
        followed = {one for wanted in after.values() for one in wanted}
        ends = set[str]()
        for leaf in block:
            if leaf not in followed:
                ends |= self._ends(leaf, after, statuses)
        return next((status for status in _BAD if status in ends), "Succeeded")

    def _ends(self, name: str, after: dict[str, dict[str, list[str]]], statuses: Statuses) -> set[str]:
        """The statuses that a leaf stands for: its own, or those of what it would have run after."""
        if statuses[name] != "Skipped":
            return {statuses[name]}
        return {status for one in after[name] for status in self._ends(one, after, statuses)}

    def _action(self, name: str, action: Action, statuses: Statuses, loom: bool) -> str:
        kind = action["type"].lower()
        loom = loom or kind in ("while", "dountil", "parallel") or "condition" in action
        if kind == "compose":
            return "Failed" if action["inputs"] == "@int('x')" else "Succeeded"
        if kind == "http":
            return "TimedOut"
        if kind == "terminate":
            raise Terminated(action["inputs"]["runStatus"])
        if kind == "incrementvariable":
            self.variables["n"] += 1
            return "Succeeded"
        if kind == "appendtoarrayvariable":
            self.variables["log"] = [*self.variables["log"], name]
            return "Succeeded"
        return self._container(kind, action, statuses, loom)

    def _container(self, kind: str, action: Action, statuses: Statuses, loom: bool) -> str:
        if kind in ("scope", "parallel"):
            return self._block(action["actions"], statuses, loom, ordered=kind == "scope")
        if kind == "if":
            holds = self._holds(action.get("expression") or action["condition"], 0)
            return self._block(action["actions"] if holds else action["else"]["actions"], statuses, loom)
        if kind == "switch":
            cases = [case["actions"] for case in action["cases"].values() if case["case"] == action["expression"]]
            return self._block(cases[0] if cases else action.get("default", {}).get("actions", {}), statuses, loom)
        if kind == "foreach":
            return self._foreach(action, statuses, loom)
        return (
            self._azures_until(action, statuses, loom) if "expression" in action else self._loop(kind, action, statuses)
        )

    def _foreach(self, action: Action, statuses: Statuses, loom: bool) -> str:
        status = "Succeeded"
        for _ in action["foreach"]:
            ended = self._iteration(action, statuses, loom)
            if ended != "Succeeded":
                status = ended if loom else "Failed"
            if loom and ended != "Succeeded":
                break
        return status

    def _iteration(self, action: Action, statuses: Statuses, loom: bool) -> str:
        inside: Statuses = {}
        ended = self._block(action["actions"], inside, loom)
        statuses.update(inside)
        return ended

    def _azures_until(self, action: Action, statuses: Statuses, loom: bool) -> str:
        for index in range(action["limit"]["count"]):
            ended = self._iteration(action, statuses, loom)
            if self._holds(action["expression"], index):
                return ended
        return "TimedOut" if action.get("operationOptions") else ended

    def _loop(self, kind: str, action: Action, statuses: Statuses) -> str:
        index = 0
        while True:
            if kind != "dountil" or index:
                holds = self._holds(action["condition"], index)
                if holds is not (kind == "while"):
                    return "Succeeded"
            if index >= action["limit"]["count"]:
                return "Failed"
            ended = self._iteration(action, statuses, loom=True)
            if ended != "Succeeded":
                return ended
            index += 1

    def _holds(self, condition: str, index: int) -> bool:
        """`@greaterOrEquals(variables('n' or 'loopIndex'), number)`, or a constant."""
        if condition in ("@true", "@false"):
            return condition == "@true"
        name, _, number = condition.removeprefix("@greaterOrEquals(variables('").removesuffix(")").partition("'), ")
        value: int = index if name == "loopIndex" else self.variables["n"]
        return value >= int(number)


def _after(block: Block, ordered: bool) -> dict[str, dict[str, list[str]]]:
    if not ordered or any("runAfter" in action for action in block.values()):
        return {name: action.get("runAfter", {}) for name, action in block.items()}
    names = list(block)
    return {name: {names[place - 1]: ["Succeeded"]} if place else {} for place, name in enumerate(names)}


def _inside(action: Action) -> Iterator[str]:
    """The names of all actions in an action."""
    branches = [action, action.get("else"), action.get("default"), *action.get("cases", {}).values()]
    for branch in branches:
        for name, inner in (branch or {}).get("actions", {}).items():
            yield name
            yield from _inside(inner)

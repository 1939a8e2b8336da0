"""Random flows for `flow_oracle`: what can be told without time, effects and races."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

STATUSES = ("Succeeded", "Failed", "Skipped", "TimedOut")
STATIC = {"Slow": {"status": "TimedOut", "outputs": None}}
_MOST = 40
"""Actions in one flow."""


class _Sketch:
    """Draws one flow."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._names = 0

    def pick(self, *options: Any) -> Any:
        return self._draw(st.sampled_from(options))

    def block(self, loom: bool, serial: bool, depth: int, most: int = 4) -> dict[str, Any]:
        """Some actions. `serial`: one after the other, so that they may use variables."""
        actions: dict[str, Any] = {}
        graph = not loom or (not serial and self.pick(False, True))
        for _ in range(self.pick(*range(most + 1))):
            action = self.action(loom, serial, depth)
            if graph:
                action["runAfter"] = self._after(list(actions), serial)
            self._names += 1
            actions[f"{action['type']}{self._names}"] = action
        return actions

    def _after(self, before: list[str], serial: bool) -> dict[str, list[str]]:
        if not before:
            return {}
        chosen = [before[-1]] if serial else [name for name in before[-3:] if self.pick(False, True)]
        return {name: sorted({self.pick(*STATUSES), self.pick("Succeeded", *STATUSES)}) for name in chosen}

    def action(self, loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        kinds = ["ok", "ok", "bad", "slow"]
        kinds += ["add", "add", "note", "note", "terminate"] if serial else []
        if depth and self._names < _MOST:
            kinds += ["scope", "if", "switch", "foreach", "until", "loop", "parallel"] * 2
        return getattr(self, f"_{self.pick(*kinds)}")(loom, serial, depth)  # type: ignore[no-any-return]

    def _ok(self, *_: Any) -> dict[str, Any]:
        return {"type": "Compose", "inputs": 1}

    def _bad(self, *_: Any) -> dict[str, Any]:
        return {"type": "Compose", "inputs": "@int('x')"}

    def _slow(self, *_: Any) -> dict[str, Any]:
        setting = {"staticResult": {"name": "Slow", "staticResultOptions": "Enabled"}}
        return {"type": "Http", "inputs": {}, "runtimeConfiguration": setting}

    def _add(self, *_: Any) -> dict[str, Any]:
        return {"type": "IncrementVariable", "inputs": {"name": "n", "value": 1}}

    def _note(self, *_: Any) -> dict[str, Any]:
        return {"type": "AppendToArrayVariable", "inputs": {"name": "log", "value": "@action()['name']"}}

    def _terminate(self, *_: Any) -> dict[str, Any]:
        if self.pick(True, True, True, False):
            return self._ok()
        return {"type": "Terminate", "inputs": {"runStatus": self.pick("Succeeded", "Failed", "Cancelled")}}

    def _condition(self, serial: bool) -> str:
        if serial and self.pick(True, False):
            return f"@greaterOrEquals(variables('n'), {self.pick(1, 2, 4)})"
        return self.pick("@true", "@false")  # type: ignore[no-any-return]

    def _scope(self, loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        return {"type": "Scope", "actions": self.block(loom, serial and self.pick(True, False), depth - 1)}

    def _parallel(self, _loom: bool, _serial: bool, depth: int) -> dict[str, Any]:
        actions = self.block(True, False, depth - 1)
        return {"type": "parallel", "actions": actions}

    def _if(self, loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        yes, no = self.block(loom, serial, depth - 1, 3), self.block(loom, serial, depth - 1, 2)
        return {"type": "If", "expression": self._condition(serial), "actions": yes, "else": {"actions": no}}

    def _switch(self, loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        cases = {f"c{self._names}{n}": {"case": n, "actions": self.block(loom, serial, depth - 1, 2)} for n in (1, 2)}
        switch = {"type": "Switch", "expression": self.pick(1, 2, 3), "cases": cases}
        return switch | (
            {"default": {"actions": self.block(loom, serial, depth - 1, 2)}} if self.pick(True, False) else {}
        )

    def _foreach(self, loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        loop = {"type": "Foreach", "foreach": list(range(self.pick(0, 1, 2, 3)))}
        one_by_one = {} if loom else {"operationOptions": "Sequential"}
        return {**loop, **one_by_one, "actions": self.block(loom, serial, depth - 1, 3)}

    def _until(self, loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        options = {"operationOptions": "FailWhenLimitsReached"} if self.pick(True, False) else {}
        body = self.block(loom, serial, depth - 1, 3)
        limit = {"count": self.pick(1, 2, 3)}
        return {"type": "Until", "expression": self._condition(serial), "limit": limit, "actions": body, **options}

    def _loop(self, _loom: bool, serial: bool, depth: int) -> dict[str, Any]:
        index = f"@greaterOrEquals(variables('loopIndex'), {self.pick(0, 1, 2)})"
        condition = index if self.pick(True, True, False) else self._condition(serial)
        body = self.block(True, serial, depth - 1, 3)
        limit = {"count": self.pick(1, 2, 3)}
        return {"type": self.pick("until", "while", "doUntil"), "condition": condition, "limit": limit, "actions": body}


@st.composite
def sketches(draw: Any) -> dict[str, Any]:
    """A flow in either dialect."""
    sketch = _Sketch(draw)
    loom = sketch.pick(True, False)
    actions = sketch.block(loom, sketch.pick(True, True, False), 4, 6)
    triggers = {} if loom else {"triggers": {"manual": {"type": "Request", "kind": "Http"}}}
    return {**triggers, "actions": actions, "staticResults": STATIC}

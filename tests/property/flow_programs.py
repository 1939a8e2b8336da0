"""Random flows in both dialects, and what may be compared of their results.

What runs side by side must not race: within it variables are neither read nor set, but for a counter that is only
counted up there. So a flow has one result, however its parts are interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from loom.effects.flow_result import ActionResult, FlowResult

Action = dict[str, Any]
STATUSES = ("Succeeded", "Failed", "Skipped", "TimedOut")
_AFTER = (["Succeeded"], ["Succeeded"], ["Succeeded"], ["Failed"], ["Succeeded", "Failed"], list(STATUSES), ["Skipped"])


@dataclass(frozen=True)
class _Around:
    """Where an action stands."""

    depth: int = 0
    racy: bool = False
    """Something else runs at the same time."""
    loops: tuple[str, ...] = ()
    foreach: str = ""
    before: tuple[str, ...] = ()
    """Actions that have ended, or been skipped, before it."""


@dataclass
class _Builder:
    """Draws one flow."""

    draw: Any
    loom: bool
    names: int = 0
    budget: int = 14
    """How many actions it may still have."""
    static: dict[str, Any] = field(default_factory=dict)

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    # -- expressions ----------------------------------------------------------------------------------------------

    def value(self, around: _Around) -> Any:
        """Something to compose: a literal or a template, which may fail."""
        options = ["literal", "text", "arithmetic", "bad"]
        options += (
            ["before"] * 3 * bool(around.before) + ["item"] * 2 * bool(around.foreach) + ["loop"] * bool(around.loops)
        )
        options += ["variable"] * 2 * (not around.racy)
        match self.pick(*options):
            case "literal":
                return self.draw(
                    st.sampled_from([0, 1.5, None, True, "text", [], {"a": [1, {"b": None}]}, "@@escaped"])
                )
            case "text":
                return f"got @{{add({self.number(0, 5)}, 1)}} and @{{toUpper('x')}}"
            case "arithmetic":
                return f"@div({self.number(-9, 9)}, {self.number(0, 3)})"
            case "bad":
                return self.pick("@int('x')", "@first(1)", "@outputs('nobody')", "@json('[1')")
            case "before":
                name = self.pick(*around.before)
                return self.pick(
                    f"@outputs('{name}')", f"@actions('{name}')['status']", f"@string(outputs('{name}'))",
                    f"@coalesce(outputs('{name}'), 'none')", f"@length(result('{name}'))", f"@body('{name}')",
                )  # fmt: skip
            case "item":
                return self.pick("@item()", f"@items('{around.foreach}')", "@concat('i', item())")
            case "loop":
                name = self.pick(*around.loops)
                return self.pick(
                    f"@iterationIndexes('{name}')", f"@variables('{name}_loopIndex')", "@variables('loopCount')",
                    "@string(variables('loopResult'))", f"@variables('{name}_loopResult')",
                )  # fmt: skip
        return self.pick("@variables('n')", "@variables('log')", "@concat(variables('text'), '.')")

    def condition(self, around: _Around) -> str:
        options = ["@equals(1, 1)", "@equals(1, 2)", "@greater(length('abc'), 3)"]
        if around.before:
            options.append(f"@equals(actions('{self.pick(*around.before)}')['status'], 'Succeeded')")
        if around.foreach:
            options.append("@equals(item(), 1)")
        if not around.racy:
            options += ["@greater(variables('n'), 2)", "@less(length(variables('log')), 2)"]
        return str(self.draw(st.sampled_from(options)))

    # -- actions --------------------------------------------------------------------------------------------------

    def block(self, around: _Around, most: int = 3, *, parallel: bool = False) -> dict[str, Action]:
        """The actions of one container; those of a `parallel` one all begin at once."""
        count = self.number(1, most)
        side_by_side = parallel or (self.pick(False, False, False, True) and count > 1)
        if side_by_side:
            around = replace(around, racy=True)
        actions: dict[str, Action] = {}
        explicit = not self.loom or side_by_side or self.pick(False, True)
        previous = ""
        for _ in range(count):
            name, action = self.action(around)
            if explicit:
                action["runAfter"] = {previous: list(self.pick(*_AFTER))} if previous and not side_by_side else {}
            actions[name] = action
            previous = name
            if not side_by_side:
                around = replace(around, before=(*around.before, name))
        return actions

    def action(self, around: _Around) -> tuple[str, Action]:
        self.budget -= 1
        leaves = ["compose"] * 3 + ["activity"] * 4 + ["wait", "increment"]
        if not around.racy:
            leaves += ["set", "append", "terminate", "response"]
        containers = ["scope", "if", "switch", "foreach", "loop", "loop", "retry"] + ["parallel"] * self.loom
        kinds = leaves + containers * (around.depth < 3 and self.budget > 0)
        kind = self.pick(*kinds)
        if kind == "terminate" and self.number(0, 3):
            kind = "compose"
        made: Action = getattr(self, f"_{kind}")(replace(around, depth=around.depth + 1))
        return made.pop("name", None) or self.name(kind), made

    def _compose(self, around: _Around) -> Action:
        made = {"type": "compose", "inputs": self.value(around)}
        if self.pick(*[False] * 9, True):
            made["trackedProperties"] = {"seen": "@action()['outputs']"}
        return made | self._policy(around) if self.pick(*[False] * 5, True) else made

    def _activity(self, around: _Around) -> Action:
        inputs = {"activityType": "work", "input": {"value": self.value(around), "failures": self.pick(0, 0, 1, 2, 9)}}
        made: Action = {"type": "activity", "inputs": inputs}
        return made | self._policy(around) if self.pick(False, True) else made

    def _policy(self, _around: _Around) -> Action:
        policy: Action = {"type": self.pick("fixed", "none"), "count": self.number(1, 2), "interval": "PT7S"}
        if self.loom and self.pick(False, True):
            policy["on"] = self.pick(["flaky"], ["timeout"])
        return {"retry" if self.loom else "retryPolicy": policy}

    def _wait(self, around: _Around) -> Action:
        counts = [0, 1, 2, "@if(equals(item(), 1), 3, 1)"]  # iterations side by side end in another order
        count = self.pick(*counts[: 4 if around.foreach else 3])
        return {"type": "wait", "inputs": {"interval": {"count": count, "unit": "Minute"}}}

    def _increment(self, _around: _Around) -> Action:
        return {"type": "incrementVariable", "inputs": {"name": "count", "value": self.number(1, 3)}}

    def _set(self, around: _Around) -> Action:
        name, value = self.pick(
            ("n", f"@add(variables('n'), {self.number(0, 2)})"), ("text", "@concat(variables('text'), 'x')")
        )
        return {"type": "setVariable", "inputs": {"name": name, "value": value}}

    def _append(self, around: _Around) -> Action:
        return {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": self.value(around)}}

    def _terminate(self, _around: _Around) -> Action:
        status = self.pick("Succeeded", "Failed", "Cancelled")
        return {"type": "terminate", "inputs": {"runStatus": status, "runError": {"code": "Enough", "message": "done"}}}

    def _response(self, around: _Around) -> Action:
        return {"type": "response", "inputs": {"statusCode": 200, "body": self.value(around)}}

    def _scope(self, around: _Around) -> Action:
        made: Action = {"type": "scope", "actions": self.block(around)}
        return made | self._policy(around) if self.pick(False, False, True) else made

    def _parallel(self, around: _Around) -> Action:
        return {"type": "parallel", "actions": self.block(replace(around, racy=True), parallel=True)}

    def _if(self, around: _Around) -> Action:
        made = {"type": "if", "actions": self.block(around, 2), "else": {"actions": self.block(around, 2)}}
        return made | {"condition" if self.loom else "expression": self.condition(around)}

    def _switch(self, around: _Around) -> Action:
        cases = {case: {"case": case, "actions": self.block(around, 2)} for case in ("a", "Succeeded")}
        on = (
            f"@actions('{self.pick(*around.before)}')['status']"
            if around.before
            else self.pick("a", "b", "@concat('a', '')")
        )
        made: Action = {"type": "switch", "cases": cases, "on" if self.loom else "expression": on}
        return made | ({"default": {"actions": self.block(around, 1)}} if self.pick(False, True) else {})

    def _foreach(self, around: _Around) -> Action:
        name = self.name("each")
        width = self.pick(None, 1, 2)
        racy = around.racy or (width or (1 if self.loom or around.foreach else 20)) > 1
        inner = replace(around, racy=racy, foreach=name, loops=(*around.loops, name))
        items = self.pick("@createArray(1, 2, 3)", "@range(0, 4)", "@json('[]')", "@createArray('a')", "@null")
        made: Action = {"name": name, "type": "foreach", "actions": self.block(inner)}
        if width is not None:
            made["runtimeConfiguration"] = {"concurrency": {"repetitions": width}}
        return made | {"items" if self.loom else "foreach": items}

    def _loop(self, around: _Around) -> Action:
        name = self.name("loop")
        kind = self.pick("until", "while", "doUntil", "until") if self.loom else "until"
        stop = self.number(1, 3)
        # The test may read variables only where nobody else sets them.
        tests = [f"@greaterOrEquals(iterationIndexes('{name}'), {stop - 1})"]
        tests += [f"@greaterOrEquals(variables('n'), {stop})"] * (not around.racy)
        test = self.pick(*tests)
        limit: Action = {"count": self.number(1, 4), "timeout": self.pick("PT1H", "PT150.5S")}
        inner = replace(around, loops=(*around.loops, name))
        made: Action = {"name": name, "type": kind, "limit": limit, "actions": self.block(inner)}
        if not self.loom:
            options = {"operationOptions": "FailWhenLimitsReached"} if self.pick(False, True) else {}
            return made | {"expression": test} | options
        if self.pick(False, True):
            made["delay"] = {"interval": {"count": self.number(1, 2), "unit": "Minute"}}
        if kind == "while":
            test = f"@less(variables('loopIndex'), {stop})"
        return made | {"condition": test}

    def _retry(self, around: _Around) -> Action:
        name, action = self.action(around)
        policy = {"type": "fixed", "count": self.number(1, 2), "interval": "PT3S"}
        return {"type": "retry", "action": {**action, "name": name}, "retryPolicy": policy}


@st.composite
def flows(draw: Any) -> Action:
    """A flow in one of the dialects, with three variables, and a counter for what runs side by side."""
    builder = _Builder(draw, draw(st.booleans()))
    variables = [("n", "integer", 0), ("log", "array", []), ("text", "string", ""), ("count", "integer", 0)]
    declared = [{"name": name, "type": kind, "value": value} for name, kind, value in variables]
    init: Action = {"type": "initializeVariable", "inputs": {"variables": declared}}
    body = {"type": "scope", "actions": builder.block(_Around(), 4)}
    last: Action = {"type": "compose", "inputs": "@variables('count')"}
    actions = {"init": init, "body": body, "last": last}
    if not builder.loom:
        init["runAfter"], body["runAfter"] = {}, {"init": ["Succeeded"]}
        last["runAfter"] = {"body": ["Succeeded"]}
        return {"triggers": {"manual": {"type": "Request", "kind": "Http"}}, "actions": actions}
    return {"actions": actions}


def comparable(result: FlowResult) -> Any:
    """What must be the same however a flow was run: all but times, and the words of failures."""
    actions = {name: _action(action) for name, action in result.actions.items()}
    return (result.status, result.outputs, result.response, actions, result.variables, _code(result.error))


def _action(action: ActionResult) -> Any:
    retries, tracked = len(action.retry_history or ()), action.tracked_properties
    error, ran = _code(action.error), (action.iterations, retries, tracked)
    return (action.status, action.inputs, action.outputs, action.code, error, ran)


def _code(error: Any) -> Any:
    return error["code"] if error is not None else None

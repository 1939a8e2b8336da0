"""Containers that are no loops: scope, parallel, if, switch, retry. Pure."""

from __future__ import annotations

from typing import Any

from loom.flows.diagnostics import at
from loom.flows.lowering.conditions import condition
from loom.flows.lowering.context import Action, Lowered, constant
from loom.flows.lowering.sources import Located
from loom.flows.nodes.branches import If, Parallel, Scope, Switch
from loom.flows.nodes.retrying import Retry

MAX_CASES = 25
"""A limit of the platform: exceeding it is warned of."""


def scope(action: Action) -> Lowered:
    """Actions that are looked at as one."""
    return Lowered(Scope(), (action.block(action.source.field("actions")),))


def parallel(action: Action) -> Lowered:
    """Actions that all start at once."""
    return Lowered(Parallel(), (action.block(action.source.field("actions"), ordered=False),))


def if_(action: Action) -> Lowered:
    """A condition and two branches."""
    found = test(action)
    asked = condition(action, found) if found is not None else constant(None)
    then = action.block(action.source.field("actions"))
    otherwise = action.block(_branch(action.source.field("else")))
    return Lowered(If(condition=asked), (then, otherwise))


def test(action: Action) -> Located | None:
    """What an `if` or a loop asks, in the key of either dialect, but not in both."""
    loom, azure = action.source.field("condition"), action.source.field("expression")
    if loom is not None and azure is not None:
        message = "'condition' and 'expression' exclude each other"
        action.low.problems.error(action.source.path, message, "keep 'condition' for Loom's rules, else 'expression'")
    key = "condition" if action.source.around else "expression"
    return action.required(key, found=loom or azure)


def _branch(part: Located | None) -> Located | None:
    """The actions of a branch: under `actions`, or the branch itself."""
    if part is None or part.value is None:
        return None
    inner = part.child("actions")
    if inner is None:
        return part
    # Somebody may have named an action `actions`.
    is_action = isinstance(inner.value, dict) and isinstance(inner.value.get("type"), str)
    return part if is_action else inner


def _single(part: Located | None) -> bool:
    """Whether a branch is one action, not a map of them."""
    return part is not None and isinstance(part.value, dict) and isinstance(part.value.get("type"), str)


def switch(action: Action) -> Lowered:
    """A value and a branch for each of its literals."""
    on = action.source.field("on", "expression")
    if action.source.field("on") is not None and action.source.field("expression") is not None:
        action.low.problems.warn(action.source.path, "'on' and 'expression' say the same; 'on' counts")
    asked = action.value(action.required("on" if action.source.around else "expression", found=on))
    branches = _cases(action)
    default = action.source.field("default")
    values = tuple(value for value, _, _ in branches)
    blocks = [_case_block(action, name, part) for _, name, part in branches]
    single = tuple(_single(part) for _, _, part in branches)
    if default is not None:
        blocks.append(_default_block(action, default))
        single = (*single, _single(default))
    return Lowered(Switch(on=asked, cases=values, has_default=default is not None, single=single), tuple(blocks))


def _cases(action: Action) -> list[tuple[Any, str, Located]]:
    """The cases: value, name, what to do."""
    cases = action.source.field("cases")
    if cases is None:
        return []
    if not isinstance(cases.value, dict):
        action.low.problems.error(cases.path, "'cases' must be an object")
        return []
    if len(cases.value) > MAX_CASES:
        action.low.problems.warn(cases.path, f"there are more than {MAX_CASES} cases")
    found = []
    for name, data in cases.value.items():
        part = Located(data, at(cases.path, name))
        if not isinstance(data, dict):
            action.low.problems.error(part.path, "a case must be an object")
            continue
        value = name if _single(part) else _case_value(action, part, name)
        found.append((value, name, part))
    return found


def _case_value(action: Action, part: Located, name: str) -> Any:
    value = part.child("case")
    if value is None:
        if not action.loom:
            action.low.problems.error(part.path, "a case needs 'case': the value that it stands for")
        return name
    if isinstance(value.value, str) and "@" in value.value:
        template = action.low.text(value, lenient=action.loom)
        if template is not None and template.is_constant:
            return template.value
        action.low.problems.warn(value.path, "a case is compared as it is written: its expression is not evaluated")
    return value.value


def _case_block(action: Action, name: str, part: Located) -> int:
    if _single(part):
        return action.block(part, only=_own_name(action, part, name))
    return action.block(part.child("actions"))


def _default_block(action: Action, part: Located) -> int:
    if _single(part):
        return action.block(part, only=_own_name(action, part, "default"))
    return action.block(_branch(part))


def _own_name(action: Action, part: Located, key: str) -> str:
    """The name of an action that stands where there could be several: its own, or after what it stands in."""
    own = part.value.get("name")
    if isinstance(own, str) and own and not str(part.value.get("type")).lower().endswith("variable"):
        return own
    return f"{action.source.name}_{key}"


def retry(action: Action) -> Lowered:
    """One action that is tried again as the policy says; the policy itself goes to the inner action."""
    part = action.required("action", found=action.source.field("action"))
    if part is None or not isinstance(part.value, dict):
        if part is not None:
            action.low.problems.error(part.path, "an action must be an object")
        return Lowered(Retry(), (action.block(None),))
    policy = action.source.field("retryPolicy", "retry")
    if policy is None and not ("retry" in part.value or "retryPolicy" in part.value):
        policy = Located({}, action.source.path)
    return Lowered(Retry(), (action.block(part, only=_own_name(action, part, "action"), retry=policy),))

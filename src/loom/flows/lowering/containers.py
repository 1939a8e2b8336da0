"""Lowering of containers: scope, parallel, if, switch, retry, and the loops of both dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loom.expressions.errors import FunctionError
from loom.flows.diagnostics import at
from loom.flows.limits import MAX_CASES, MAX_WIDTH
from loom.flows.lowering.context import ActionDraft, Located, Lowered, constant, is_expression, is_foreign
from loom.flows.lowering.fields import checked, condition, condition_text, duration, interval, rechecked
from loom.flows.nodes.containers import If, Parallel, Retry, Scope, Switch
from loom.flows.nodes.loops import ConditionLoop, Foreach

if TYPE_CHECKING:
    from loom.flows.program import Value


def scope(action: ActionDraft) -> Lowered:
    """Lower a group of actions."""
    return Lowered(Scope(), (action.block(action.source.field("actions")),))


def parallel(action: ActionDraft) -> Lowered:
    """Lower actions that all start at once."""
    return Lowered(Parallel(), (action.block(action.source.field("actions"), ordered=False),))


def if_(action: ActionDraft) -> Lowered:
    """Lower a condition and its two branches."""
    found = test(action)
    asked = condition(action, found) if found is not None else constant(None)
    then = action.block(action.source.field("actions"))
    otherwise = action.block(_branch(action.source.field("else")))
    return Lowered(If(condition=asked), (then, otherwise))


def test(action: ActionDraft) -> Located | None:
    """Find the condition of an `if` or a loop, in the key of either dialect, but not in both."""
    loom, azure = action.source.field("condition"), action.source.field("expression")
    if loom is not None and azure is not None:
        message = "'condition' and 'expression' exclude each other"
        action.low.problems.error(action.source.path, message, "keep 'condition' for Loom's rules, else 'expression'")
    key = "condition" if action.source.around else "expression"
    return action.required(key, found=loom or azure)


def _branch(part: Located | None) -> Located | None:
    """Find the actions of a branch: under `actions`, or the branch itself."""
    if part is None or part.value is None:
        return None
    inner = part.child("actions")
    if inner is None:
        return part
    # An author may have named an action `actions`.
    is_action = isinstance(inner.value, dict) and isinstance(inner.value.get("type"), str)
    return part if is_action else inner


def _single(part: Located | None) -> bool:
    """Tell whether a branch is one action, not a map of them."""
    return part is not None and isinstance(part.value, dict) and isinstance(part.value.get("type"), str)


def switch(action: ActionDraft) -> Lowered:
    """Lower a value and a branch for each of its literals."""
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


def _cases(action: ActionDraft) -> list[tuple[Any, str, Located]]:
    """List the cases: value, name, part of the document."""
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


def _case_value(action: ActionDraft, part: Located, name: str) -> Any:
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


def _case_block(action: ActionDraft, name: str, part: Located) -> int:
    if _single(part):
        return action.block(part, only=_own_name(action, part, name))
    return action.block(part.child("actions"))


def _default_block(action: ActionDraft, part: Located) -> int:
    if _single(part):
        return action.block(part, only=_own_name(action, part, "default"))
    return action.block(_branch(part))


def _own_name(action: ActionDraft, part: Located, key: str) -> str:
    """Name an action that stands in place of a map of actions: by its own name, or after its container."""
    own = part.value.get("name")
    if isinstance(own, str) and own and not str(part.value.get("type")).lower().endswith("variable"):
        return own
    return f"{action.source.name}_{key}"


def retry(action: ActionDraft) -> Lowered:
    """Lower an action that is tried again by a policy. The policy goes to the inner action."""
    part = action.required("action", found=action.source.field("action"))
    if part is None or not isinstance(part.value, dict):
        if part is not None:
            action.low.problems.error(part.path, "an action must be an object")
        return Lowered(Retry(), (action.block(None),))
    policy = action.source.field("retryPolicy", "retry")
    if policy is None and not ("retry" in part.value or "retryPolicy" in part.value):
        policy = Located({}, action.source.path)
    return Lowered(Retry(), (action.block(part, only=_own_name(action, part, "action"), retry=policy),))


# -- loops -------------------------------------------------------------------------------------------------------------

_DEFAULT_COUNT = 60
_DEFAULT_TIMEOUT_S = 3_600.0

_LOOP_KINDS: dict[str, Literal["until", "while", "doUntil"]] = {
    "until": "until",
    "while": "while",
    "dountil": "doUntil",
}


def foreach(action: ActionDraft) -> Lowered:
    """Lower a body for each element of an array."""
    source = action.source
    items = source.field("foreach", "items")
    if source.field("foreach") is not None and source.field("items") is not None:
        action.low.problems.warn(source.path, "'foreach' and 'items' say the same; 'foreach' counts")
    found = action.required("items" if source.around else "foreach", found=items)
    if found is not None and not isinstance(found.value, list) and not _may_be_array(found.value):
        hint = "an expression begins with @" if isinstance(found.value, str) else ""
        action.low.problems.warn(found.path, f"{found.value!r:.100} is no array, so the loop will fail", hint)
    width = _width(action)
    items_value = action.value(found)
    body = action.block(source.field("actions"), loop=True)
    return Lowered(Foreach(items=items_value, width=width, loom=action.loom), (body,))


def _may_be_array(value: Any) -> bool:
    return is_expression(value) or is_foreign(value)


def _width(action: ActionDraft) -> Value:
    sequential = "sequential" in action.source.options
    asked = action.source.setting("concurrency", "repetitions")
    if asked is None or asked.value is None:
        alone = sequential or action.loom or action.place.in_foreach
        return constant(1 if alone else action.low.limits.foreach_width)
    if sequential:
        message = "'Sequential' and 'repetitions' exclude each other"
        action.low.problems.error(at(action.source.path, "operationOptions"), message)
        return constant(1)
    if is_foreign(asked.value):
        return constant(action.low.limits.foreach_width)
    if isinstance(asked.value, int) and asked.value > MAX_WIDTH:
        action.low.problems.warn(asked.path, f"more than {MAX_WIDTH} iterations at a time")
    return checked(action, asked, _repetitions) or constant(1)


def _repetitions(value: Any) -> int:
    return _at_least_one(value, "repetitions")


def _at_least_one(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FunctionError(f"{what} must be an integer of at least 1, not {value!r}")
    return value


def until(action: ActionDraft) -> Lowered:
    """Lower a body and its test. The type, or the key of the test, says whose rules hold for test and limits."""
    source = action.source
    found = test(action)
    loom = source.type != "until" or source.field("condition") is not None
    delay = source.field("delay")
    if found is not None:
        action.low.conditions.append((action.index, found.path))
    asked = condition(action, found) if found is not None else constant(None)
    loop = ConditionLoop(
        kind=_LOOP_KINDS[source.type],
        condition=asked,
        text=condition_text(found.value) if found is not None else "",
        test_first=loom and source.type != "dountil",
        negated=source.type == "while",
        count=_count(action, loom),
        timeout_s=_timeout(action, loom),
        delay_s=_delay(action, delay) if delay is not None else None,
        loom=loom,
        fails_at_limit=loom or "failwhenlimitsreached" in source.options,
    )
    return Lowered(loop, (action.block(source.field("actions"), loop=True),))


def _limit(action: ActionDraft, key: str) -> Located | None:
    limit = action.source.field("limit")
    if limit is not None and not isinstance(limit.value, dict | None):
        action.low.problems.error(limit.path, "a limit must be an object with 'count' and 'timeout'")
    found = limit.child(key) if limit is not None else None
    return found if found is not None and found.value is not None else None


def _count(action: ActionDraft, loom: bool) -> Value:
    part = _limit(action, "count")
    if part is None:
        return constant(_DEFAULT_COUNT)
    if loom:
        return checked(action, part, _within(action.low.limits.max_iterations)) or constant(_DEFAULT_COUNT)
    return _azure_count(action, part, max(action.low.limits.max_until_iterations, action.low.limits.max_iterations))


def _within(most: int) -> Any:
    def check(value: Any) -> int:
        count = _at_least_one(value, "a loop's count")
        if count > most:
            raise FunctionError(f"Loop count exceeds system limit: {most}")
        return count

    return check


def _azure_count(action: ActionDraft, part: Located, most: int) -> Value:
    """Lower a limit of Logic Apps. One that is too high is cut, because real files have such limits."""

    def check(value: Any) -> int:
        number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        return min(_at_least_one(number, "a loop's count"), most)

    if is_expression(part.value):
        return rechecked(action, part, check)
    try:
        count = check(part.value)
    except FunctionError as error:
        _unusable(action, part, str(error), _DEFAULT_COUNT)
        return constant(_DEFAULT_COUNT)
    if count == most != part.value:
        action.low.problems.warn(part.path, f"a loop runs at most {most} times")
    return constant(count)


def _unusable(action: ActionDraft, part: Located, reason: str, default: object) -> None:
    if is_foreign(part.value):
        reason = "an expression of a resource template is not evaluated here"
    action.low.problems.warn(part.path, f"{reason}; {default} counts instead")


def _timeout(action: ActionDraft, loom: bool) -> Value:
    part = _limit(action, "timeout")
    if part is None:
        return constant(_DEFAULT_TIMEOUT_S)
    if loom:
        return checked(action, part, _not_longer_than(action.low.limits.max_duration_s)) or constant(_DEFAULT_TIMEOUT_S)
    if is_expression(part.value):
        return rechecked(action, part, duration)
    try:
        return constant(duration(part.value))
    except FunctionError as error:
        _unusable(action, part, str(error), "PT1H")
        return constant(_DEFAULT_TIMEOUT_S)


def _not_longer_than(most: float) -> Any:
    def check(value: Any) -> float:
        seconds = duration(value)
        if seconds > most:
            raise FunctionError(f"Loop timeout exceeds system limit: {most:g} seconds")
        return seconds

    return check


def _delay(action: ActionDraft, part: Located) -> Value | None:
    inner = part.child("interval")
    return interval(action, inner if inner is not None else part)

"""Loops: foreach, and those with a condition in both dialects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from loom.expressions.errors import FunctionError
from loom.flows.diagnostics import at
from loom.flows.lowering.conditions import condition, condition_text
from loom.flows.lowering.containers import test
from loom.flows.lowering.context import Action, Lowered, constant, is_expression, is_foreign
from loom.flows.lowering.quantities import checked, duration, interval, rechecked
from loom.flows.nodes.foreach import Foreach
from loom.flows.nodes.loops import Loop

if TYPE_CHECKING:
    from loom.flows.lowering.sources import Located
    from loom.flows.program import Value

DEFAULT_COUNT = 60
DEFAULT_TIMEOUT_S = 3_600.0
DEFAULT_WIDTH = 20
MAX_WIDTH = 50

_KINDS: dict[str, Literal["until", "while", "doUntil"]] = {"until": "until", "while": "while", "dountil": "doUntil"}


def foreach(action: Action) -> Lowered:
    """A body for each element of an array."""
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


def _width(action: Action) -> Value:
    sequential = "sequential" in action.source.options
    asked = action.source.setting("concurrency", "repetitions")
    if asked is None or asked.value is None:
        alone = sequential or action.loom or action.place.in_foreach
        return constant(1 if alone else DEFAULT_WIDTH)
    if sequential:
        message = "'Sequential' and 'repetitions' exclude each other"
        action.low.problems.error(at(action.source.path, "operationOptions"), message)
        return constant(1)
    if is_foreign(asked.value):
        return constant(DEFAULT_WIDTH)
    if isinstance(asked.value, int) and asked.value > MAX_WIDTH:
        action.low.problems.warn(asked.path, f"more than {MAX_WIDTH} iterations at a time")
    return checked(action, asked, _repetitions) or constant(1)


def _repetitions(value: Any) -> int:
    return _at_least_one(value, "repetitions")


def _at_least_one(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FunctionError(f"{what} must be an integer of at least 1, not {value!r}")
    return value


def until(action: Action) -> Lowered:
    """A body and a test. Whose rules hold for test and limits is said by the type or by the key of the test."""
    source = action.source
    found = test(action)
    loom = source.type != "until" or source.field("condition") is not None
    delay = source.field("delay")
    asked = condition(action, found) if found is not None else constant(None)
    loop = Loop(
        kind=_KINDS[source.type],
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


def _limit(action: Action, key: str) -> Located | None:
    limit = action.source.field("limit")
    if limit is not None and not isinstance(limit.value, dict | None):
        action.low.problems.error(limit.path, "a limit must be an object with 'count' and 'timeout'")
    found = limit.child(key) if limit is not None else None
    return found if found is not None and found.value is not None else None


def _count(action: Action, loom: bool) -> Value:
    part = _limit(action, "count")
    if part is None:
        return constant(DEFAULT_COUNT)
    if loom:
        return checked(action, part, _within(action.low.limits.max_iterations)) or constant(DEFAULT_COUNT)
    return _azure_count(action, part, max(action.low.limits.max_until_iterations, action.low.limits.max_iterations))


def _within(most: int) -> Any:
    def check(value: Any) -> int:
        count = _at_least_one(value, "a loop's count")
        if count > most:
            raise FunctionError(f"Loop count exceeds system limit: {most}")
        return count

    return check


def _azure_count(action: Action, part: Located, most: int) -> Value:
    """Of Logic Apps: what is too high is lowered, for real files have it."""

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
        _unusable(action, part, str(error), DEFAULT_COUNT)
        return constant(DEFAULT_COUNT)
    if count == most != part.value:
        action.low.problems.warn(part.path, f"a loop runs at most {most} times")
    return constant(count)


def _unusable(action: Action, part: Located, reason: str, default: object) -> None:
    if is_foreign(part.value):
        reason = "an expression of a resource template is not evaluated here"
    action.low.problems.warn(part.path, f"{reason}; {default} counts instead")


def _timeout(action: Action, loom: bool) -> Value:
    part = _limit(action, "timeout")
    if part is None:
        return constant(DEFAULT_TIMEOUT_S)
    if loom:
        return checked(action, part, _not_longer_than(action.low.limits.max_duration_s)) or constant(DEFAULT_TIMEOUT_S)
    if is_expression(part.value):
        return rechecked(action, part, duration)
    try:
        return constant(duration(part.value))
    except FunctionError as error:
        _unusable(action, part, str(error), "PT1H")
        return constant(DEFAULT_TIMEOUT_S)


def _not_longer_than(most: float) -> Any:
    def check(value: Any) -> float:
        seconds = duration(value)
        if seconds > most:
            raise FunctionError(f"Loop timeout exceeds system limit: {most:g} seconds")
        return seconds

    return check


def _delay(action: Action, part: Located) -> Value | None:
    inner = part.child("interval")
    return interval(action, inner if inner is not None else part)

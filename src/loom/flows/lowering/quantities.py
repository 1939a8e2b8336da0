"""Numbers and lengths of time: literal ones are checked at load, others when they are evaluated. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from loom.expressions import ExpressionError
from loom.expressions.dotnet.durations import parse_duration
from loom.expressions.dotnet.timestamps import epoch_seconds
from loom.expressions.errors import FunctionError
from loom.flows.diagnostics import at, suggestion
from loom.flows.lowering.context import constant, is_expression
from loom.flows.lowering.sources import Located

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions import Environment
    from loom.flows.lowering.context import Action
    from loom.flows.program import Value

_UNITS = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "week": 604_800.0,
    "month": 2_592_000.0,
    "year": 31_536_000.0,
}


def checked(action: Action, part: Located, check: Callable[[Any], Any]) -> Value | None:
    """The value of a part after a check that raises `FunctionError`: now if it is literal, else when it is evaluated.

    None, and a problem, if a literal one is refused.
    """
    if not is_expression(part.value):
        try:
            return constant(check(part.value))
        except FunctionError as error:
            action.low.problems.error(part.path, str(error))
            return None
    return rechecked(action, part, check)


def rechecked(action: Action, part: Located, check: Callable[[Any], Any]) -> Value:
    """The value of a part after a check whose refusal fails the action."""
    value, path = action.value(part), action.low.within(part.path)

    def evaluate(env: Environment) -> Any:
        try:
            return check(value(env))
        except FunctionError as error:
            refused = ExpressionError(str(error))
            refused.path = path
            raise refused from None

    return evaluate


def duration(value: Any) -> float:
    """The seconds of an ISO 8601 duration."""
    if not isinstance(value, str):
        raise FunctionError(f"{value!r} is no ISO 8601 duration such as 'PT30S'")
    seconds = parse_duration(value)
    if seconds < 0:
        raise FunctionError(f"{value!r} is a duration below zero")
    return seconds


def timestamp(value: Any) -> float:
    """The seconds since 1970 of a timestamp."""
    if not isinstance(value, str):
        raise FunctionError(f"{value!r} is no timestamp such as '2026-01-02T03:04:05Z'")
    return epoch_seconds(value)


def interval(action: Action, part: Located) -> Value | None:
    """The seconds of `{count, unit}` or of an ISO 8601 duration."""
    if not isinstance(part.value, dict):
        return checked(action, part, duration)
    missing = [key for key in ("count", "unit") if key not in part.value]
    if missing:
        action.low.problems.error(part.path, f"an interval needs '{missing[0]}'")
        return None
    count = checked(action, Located(part.value["count"], at(part.path, "count")), _count)
    unit = checked(action, Located(part.value["unit"], at(part.path, "unit")), _unit)
    if count is None or unit is None:
        return None
    return lambda env: count(env) * unit(env)


def _count(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise FunctionError(f"an interval's count must be a number of at least 0, not {value!r}")
    return float(value)


def _unit(value: Any) -> float:
    name = value.lower() if isinstance(value, str) else ""
    seconds = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
    if seconds is None:
        hint = suggestion(name, _UNITS)
        raise FunctionError(
            f"{value!r} is no unit of time: second, minute, hour, day, week, month, year. {hint}".strip()
        )
    return seconds

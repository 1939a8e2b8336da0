"""Fields that several action types share: conditions, lengths of time, retry policies, static results, secrecy.

A literal is checked when the document is loaded, an expression when it is evaluated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

from loom.expressions import ExpressionError
from loom.expressions.calls import SourceLocation, compile_call
from loom.expressions.dotnet.timestamps import epoch_seconds, parse_duration
from loom.expressions.errors import FunctionError
from loom.expressions.functions import find
from loom.expressions.values import kind_of
from loom.flows.action_types import is_call, retries_by_default
from loom.flows.diagnostics import at, suggestion
from loom.flows.limits import MAX_RETRIES
from loom.flows.lowering.context import ActionDraft, ActionSource, Located, constant, is_expression, is_foreign
from loom.flows.program import ActionRetryPolicy, RetryLimits, StaticResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions import Environment
    from loom.flows.program import Value


# -- conditions --------------------------------------------------------------------------------------------------------

_WORDS = {"true": True, "false": False}
_LOGICAL = frozenset({"and", "or", "not"})


def condition(action: ActionDraft, part: Located) -> Value:
    """Compile the condition of an `if` or a loop. Its value is a boolean, or evaluating it fails."""
    data, path = part
    if isinstance(data, bool):
        return constant(data)
    if isinstance(data, str):
        return _boolean(_text(action, part), action.low.within(path))
    if isinstance(data, dict):
        return _boolean(_tree(action, part), action.low.within(path))
    action.low.problems.error(path, 'a condition is a text or an object such as {"and": [...]}')
    return constant(None)


def condition_text(data: Any) -> str:
    """Write a condition for people: a tree in the notation of expressions."""
    return data if isinstance(data, str) else f"@{_shown(data)}"


def _text(action: ActionDraft, part: Located) -> Value:
    word = part.value.strip().lower()
    if action.loom and word in _WORDS:
        return constant(_WORDS[word])
    template = action.low.text(part, lenient=action.loom, lenient_reads=action.loom)
    if template is None:
        return constant(None)
    if template.is_literal:
        hint = "an expression begins with @" if "(" in word else ""
        tell = action.low.problems.warn if word in _WORDS else action.low.refuse
        tell(part.path, f"the condition {part.value!r} is a text, neither true nor false", hint)
    return template.evaluate


def _boolean(value: Value, path: str) -> Value:
    def evaluate(env: Environment) -> bool:
        try:
            result = value(env)
            if result is True or result is False:
                return result
            raise ExpressionError(f"the condition must be true or false, and is of type '{kind_of(result)}'")
        except ExpressionError as error:
            error.path = error.path or path
            raise

    return evaluate


def _tree(action: ActionDraft, part: Located) -> Value:
    """Compile one call: an object whose only key is the function's name."""
    data, path = part
    if len(data) != 1:
        action.low.problems.error(path, f"a condition is one function with its arguments, not {len(data)} keys")
        return constant(None)
    ((name, given),) = data.items()
    inner = Located(given, at(path, name))
    parts = [inner]
    if isinstance(given, list):
        parts = [Located(item, at(inner.path, index)) for index, item in enumerate(given)]
    key = name.strip()
    action.low.refer(inner.path, key, _literal(parts), len(parts))
    arguments = [_argument(action, one, key.lower() in _LOGICAL) for one in parts]
    return compile_call(key, arguments, SourceLocation(_shown(data), None, key), forgiving=action.loom)


def _literal(parts: list[Located]) -> str | None:
    first = parts[0].value if parts else None
    return first if isinstance(first, str) and "@" not in first else None


def _argument(action: ActionDraft, part: Located, logical: bool) -> Value:
    data = part.value
    if isinstance(data, dict) and len(data) == 1 and (logical or find(next(iter(data)).strip()) is not None):
        return _tree(action, part)
    if isinstance(data, str) and (logical or "@" in data):
        template = action.low.text(part, lenient=action.loom, lenient_reads=action.loom)
        return template.evaluate if template is not None else constant(None)
    return action.value(part)


def _shown(data: Any) -> str:
    if isinstance(data, dict) and len(data) == 1:
        ((name, given),) = data.items()
        parts = given if isinstance(given, list) else [given]
        return f"{name}({', '.join(_shown(part) for part in parts)})"
    if isinstance(data, str):
        return data[1:] if data.startswith("@") and not data.startswith(("@@", "@{")) else f"'{data}'"
    words = {True: "true", False: "false", None: "null"}
    return str(data) if isinstance(data, dict | list | int | float) and not isinstance(data, bool) else words[data]


# -- numbers and lengths of time ---------------------------------------------------------------------------------------

_UNITS = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "week": 604_800.0,
    "month": 2_592_000.0,
    "year": 31_536_000.0,
}


def checked(action: ActionDraft, part: Located, check: Callable[[Any], Any]) -> Value | None:
    """Compile a part with a check that raises `FunctionError`: now for a literal, else at each evaluation.

    None, and a problem, if the check refuses a literal.
    """
    if not is_expression(part.value):
        try:
            return constant(check(part.value))
        except FunctionError as error:
            action.low.problems.error(part.path, str(error))
            return None
    return rechecked(action, part, check)


def rechecked(action: ActionDraft, part: Located, check: Callable[[Any], Any]) -> Value:
    """Compile a part with a check whose refusal fails the action."""
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
    """Convert an ISO 8601 duration to seconds."""
    if not isinstance(value, str):
        raise FunctionError(f"{value!r} is no ISO 8601 duration such as 'PT30S'")
    seconds = parse_duration(value)
    if seconds < 0:
        raise FunctionError(f"{value!r} is a duration below zero")
    return seconds


def timestamp(value: Any) -> float:
    """Convert a timestamp to seconds since 1970."""
    if not isinstance(value, str):
        raise FunctionError(f"{value!r} is no timestamp such as '2026-01-02T03:04:05Z'")
    return epoch_seconds(value)


def interval(action: ActionDraft, part: Located) -> Value | None:
    """Compile `{count, unit}`, or an ISO 8601 duration, to seconds."""
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


# -- retries, static results, secrecy ----------------------------------------------------------------------------------

_PolicyType = Literal["none", "fixed", "exponential", "default"]
_POLICY_TYPES: dict[str, _PolicyType] = {name: name for name in get_args(_PolicyType)}
_SHORTEST_S, _LONGEST_S = 5.0, 86_400.0
_AZURE_DEFAULT = ActionRetryPolicy("exponential", 4, 7.0, 5.0, 3_600.0, azure=True)
_LOOM_DEFAULT = ActionRetryPolicy("exponential", 3, 5.0, 1.0, 60.0, azure=False)
_STATUSES = {name.lower(): name for name in ("Succeeded", "Failed", "Skipped", "TimedOut")}


def retry_policy(action: ActionDraft) -> ActionRetryPolicy | None:
    """Read the retry policy of an action; None: it is never tried again."""
    source = action.source
    if source.type == "retry":
        return None
    loom = action.place.loom
    part = action.place.retry or source.top("retryPolicy") or source.top("retry")
    if part is None and is_call(source.type):  # Elsewhere, `inputs` may be anything.
        part = source.input("retryPolicy")
    if part is None or part.value is None:
        return _AZURE_DEFAULT if not loom and retries_by_default(source.type) else None
    if not isinstance(part.value, dict):
        if not is_foreign(part.value):
            action.low.problems.error(part.path, "a retry policy must be an object")
        return None if loom else _AZURE_DEFAULT
    return _Reader(action, part, _LOOM_DEFAULT if loom else _AZURE_DEFAULT).policy()


def retry_limits(action: ActionDraft) -> RetryLimits:
    """Find the system's limits for the tries of an action. In a `retry`, which is a loop, they have a time limit too.

    Elsewhere a day would be too short: Logic Apps allows 90 tries with a day between two of them.
    """
    limits = action.low.limits
    if action.place.retried:
        return RetryLimits(limits.max_iterations, limits.max_duration_s)
    return RetryLimits(max(limits.max_iterations, MAX_RETRIES), math.inf)


class _Reader:
    """Reads one policy. Fields that it lacks are as in the default."""

    def __init__(self, action: ActionDraft, part: Located, default: ActionRetryPolicy) -> None:
        self._action = action
        self._part = part
        self._default = default

    def policy(self) -> ActionRetryPolicy | None:
        """Return the policy; None if its type is `none`."""
        kind = self._type()
        if kind == "none":
            return None
        default = self._default
        if kind == "default":
            return default
        policy = ActionRetryPolicy(
            type=kind,
            count=self._count(),
            interval_s=self._seconds("interval", default=default.interval_s),
            min_interval_s=self._seconds("minimumInterval", "minInterval", default=default.min_interval_s),
            max_interval_s=self._seconds("maxInterval", "maximumInterval", default=default.max_interval_s),
            azure=default.azure,
            on=self._on(),
        )
        if kind == "fixed" and not policy.azure:
            self._check_fixed(policy)
        return policy

    def _check_fixed(self, policy: ActionRetryPolicy) -> None:
        """Warn if the delay will not be the interval."""
        path = at(self._part.path, "interval")
        if policy.interval_s < policy.min_interval_s:
            message = f"a fixed interval is at least 'minimumInterval', so {policy.min_interval_s:g} s count instead"
            self._action.low.problems.warn(path, message)
        limits = retry_limits(self._action)
        if policy.interval_s > limits.max_duration_s:
            message = f"the system limit is {limits.max_duration_s:g} seconds for all tries, so there is no second one"
            self._action.low.problems.warn(path, message)

    def _type(self) -> _PolicyType:
        part = self._part.child("type")
        name = part.value.lower() if part is not None and isinstance(part.value, str) else "exponential"
        known = _POLICY_TYPES.get(name)
        if known is not None:
            return known
        if part is not None and self._literal(part, "exponential"):
            hint = self._action.low.problems.near(name, _POLICY_TYPES)
            self._action.low.problems.error(part.path, f"{part.value!r} is no type of a retry policy", hint)
        return "exponential"

    def _literal(self, part: Located, default: object) -> bool:
        """Tell whether a part is literal. A policy is fixed at load, so an expression gives way to the default."""
        if is_expression(part.value) or is_foreign(part.value):
            message = f"expressions in a retry policy are not evaluated; {default} counts instead"
            self._action.low.problems.warn(part.path, message)
            return False
        return True

    def _count(self) -> int:
        part = self._part.child("count")
        default = self._default.count
        if part is None or part.value is None or not self._literal(part, default):
            return default
        value = part.value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._action.low.problems.error(part.path, f"a retry count must be an integer of at least 0, not {value!r}")
            return default
        limits = retry_limits(self._action)
        if value > limits.max_count:
            problems, place = self._action.low.problems, self._action.place
            tell = problems.error if place.retried and not self._action.low.stored else problems.warn
            tell(part.path, f"Retry count exceeds system limit: {limits.max_count}")
        elif value > MAX_RETRIES:
            self._action.low.problems.warn(part.path, f"more than {MAX_RETRIES} retries")
        return value

    def _seconds(self, *keys: str, default: float) -> float:
        part = next((found for key in keys if (found := self._part.child(key)) is not None), None)
        if part is None or part.value is None or not self._literal(part, f"{default:g} s"):
            return default
        try:
            seconds = duration(part.value)
        except FunctionError as error:
            self._action.low.problems.error(part.path, str(error))
            return default
        if self._default.azure and not _SHORTEST_S <= seconds <= _LONGEST_S:
            self._action.low.problems.warn(part.path, "a retry interval is between 5 seconds and 1 day")
        return seconds

    def _on(self) -> tuple[str, ...] | None:
        part = self._part.child("on")
        if part is None or part.value is None:
            return None
        if not isinstance(part.value, list):
            self._action.low.problems.error(part.path, "'on' must be an array of status codes and error types")
            return None
        return tuple(str(item).lower() for item in part.value)


def static_result(action: ActionDraft) -> StaticResult | None:
    """Read the mock that the document has for the action; None if it has none, or it is disabled."""
    asked = action.source.setting("staticResult")
    if asked is None or not isinstance(asked.value, dict):
        return None
    if str(asked.value.get("staticResultOptions", "Enabled")).lower() != "enabled":
        return None
    name = asked.value.get("name")
    path = at(action.low.document.path, "staticResults")
    results: Any = action.low.document.definition.get("staticResults")
    found = Located(results, path).child(name) if isinstance(name, str) else None
    if found is None or not isinstance(found.value, dict):
        hint = action.low.problems.near(str(name), results) if isinstance(results, dict) else ""
        message = f"there is no static result {name!r}, so the action runs"
        action.low.problems.warn(at(asked.path, "name"), message, hint)
        return None
    outputs = found.child("outputs")
    return StaticResult(
        status=_STATUSES.get(str(found.value.get("status", "")).lower(), "Succeeded"),
        outputs=action.value(outputs) if outputs is not None else constant(None),
        code=str(found.value.get("code") or ""),
        error=found.value.get("error"),
    )


def wants_secure(source: ActionSource) -> tuple[bool, bool]:
    """Tell whether the document hides the inputs and the outputs of an action."""
    properties = source.setting("secureData", "properties")
    if properties is None or not isinstance(properties.value, list):
        return False, False
    named = {str(item).lower() for item in properties.value}
    return "inputs" in named, "outputs" in named

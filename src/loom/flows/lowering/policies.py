"""What any action may ask for: retries, a static result, secrecy. Pure."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from loom.expressions.errors import FunctionError
from loom.flows.diagnostics import at
from loom.flows.lowering.context import Action, constant, is_expression, is_foreign
from loom.flows.lowering.quantities import duration
from loom.flows.lowering.sources import Located, Source
from loom.flows.program import RetryLimits, RetryPolicy, StaticResult
from loom.flows.schemas_table import is_call, retries_by_default

PolicyType = Literal["none", "fixed", "exponential", "default"]
_TYPES: dict[str, PolicyType] = {name: name for name in get_args(PolicyType)}
_MAX_RETRIES = 90
_SHORTEST_S, _LONGEST_S = 5.0, 86_400.0
_AZURE = RetryPolicy("exponential", 4, 7.0, 5.0, 3_600.0, azure=True)
_LOOM = RetryPolicy("exponential", 3, 5.0, 1.0, 60.0, azure=False)
_STATUSES = {name.lower(): name for name in ("Succeeded", "Failed", "Skipped", "TimedOut")}


def retry_policy(action: Action) -> RetryPolicy | None:
    """How often the action is tried again; None: never."""
    source = action.source
    if source.type == "retry":
        return None
    loom = action.place.loom
    part = action.place.retry or source.top("retryPolicy") or source.top("retry")
    if part is None and is_call(source.type):  # Elsewhere, `inputs` may be anything.
        part = source.input("retryPolicy")
    if part is None or part.value is None:
        return _AZURE if not loom and retries_by_default(source.type) else None
    if not isinstance(part.value, dict):
        if not is_foreign(part.value):
            action.low.problems.error(part.path, "a retry policy must be an object")
        return None if loom else _AZURE
    return _Reader(action, part, _LOOM if loom else _AZURE).policy()


def retry_limits(action: Action) -> RetryLimits:
    """Tell what the system allows the tries of an action. In a `retry`, which is a loop, they have a time limit too.

    Elsewhere a day would be too short: Logic Apps allows 90 tries with a day between two of them.
    """
    limits = action.low.limits
    if action.place.retried:
        return RetryLimits(limits.max_iterations, limits.max_duration_s)
    return RetryLimits(max(limits.max_iterations, _MAX_RETRIES), math.inf)


class _Reader:
    """Reads one policy; what it does not say is as in the default."""

    def __init__(self, action: Action, part: Located, default: RetryPolicy) -> None:
        self._action = action
        self._part = part
        self._default = default

    def policy(self) -> RetryPolicy | None:
        """None if it says so."""
        kind = self._type()
        if kind == "none":
            return None
        default = self._default
        if kind == "default":
            return default
        policy = RetryPolicy(
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

    def _check_fixed(self, policy: RetryPolicy) -> None:
        """Say so where the interval is not what will be waited."""
        path = at(self._part.path, "interval")
        if policy.interval_s < policy.min_interval_s:
            message = f"a fixed interval is at least 'minimumInterval', so {policy.min_interval_s:g} s count instead"
            self._action.low.problems.warn(path, message)
        limits = retry_limits(self._action)
        if policy.interval_s > limits.max_duration_s:
            message = f"the system limit is {limits.max_duration_s:g} seconds for all tries, so there is no second one"
            self._action.low.problems.warn(path, message)

    def _type(self) -> PolicyType:
        part = self._part.child("type")
        name = part.value.lower() if part is not None and isinstance(part.value, str) else "exponential"
        known = _TYPES.get(name)
        if known is not None:
            return known
        if part is not None and self._literal(part, "exponential"):
            hint = self._action.low.problems.near(name, _TYPES)
            self._action.low.problems.error(part.path, f"{part.value!r} is no type of a retry policy", hint)
        return "exponential"

    def _literal(self, part: Located, default: object) -> bool:
        """Whether it can be read now; a policy is fixed at load, so an expression in it gives way to the default."""
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
        elif value > _MAX_RETRIES:
            self._action.low.problems.warn(part.path, f"more than {_MAX_RETRIES} retries")
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


def static_result(action: Action) -> StaticResult | None:
    """The mock that the document has for the action, if it is switched on."""
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


def wants_secure(source: Source) -> tuple[bool, bool]:
    """Whether the document hides the inputs and the outputs of an action."""
    properties = source.setting("secureData", "properties")
    if properties is None or not isinstance(properties.value, list):
        return False, False
    named = {str(item).lower() for item in properties.value}
    return "inputs" in named, "outputs" in named

# The names of classes and parameters are the public API that Loom keeps.
# ruff: noqa: A002, N801
"""The parts of a retry policy: which errors to retry, when to give up, how long to wait.

Conditions and stops combine with `|` and `&`, waits add up with `+` and `sum()`. The number of a retry counts from 0.
`random` is the only source of chance here, and a seed decides it.

A wrong number must fail where it is written, naming class and parameter, not hours later inside a failing run.
"""

from __future__ import annotations

import math
import random
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, SupportsIndex

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable


time_unit_type = int | float | timedelta
"""A duration: seconds as a number, or a `timedelta`."""


class Described:
    """Gives parts of a policy a readable `repr`: the class and its public settings."""

    @override
    def __repr__(self) -> str:
        """Show the class and its settings."""
        shown = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({shown})"


ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]


# Conditions: which errors are worth another try.


class RetryCondition(Protocol):
    """Decides whether an error is worth another try."""

    def __call__(self, error: BaseException) -> bool:
        """Return true to try again."""
        ...


class _Condition(Described):
    """Base of the built-in conditions: `a | b` takes either, `a & b` needs both."""

    def __call__(self, error: BaseException) -> bool:
        raise NotImplementedError

    def __or__(self, other: RetryCondition) -> retry_any:
        return retry_any(self, other)

    def __ror__(self, other: RetryCondition) -> retry_any:
        return retry_any(other, self)

    def __and__(self, other: RetryCondition) -> retry_all:
        return retry_all(self, other)

    def __rand__(self, other: RetryCondition) -> retry_all:
        return retry_all(other, self)


class retry_if_exception(_Condition):
    """Retry if the predicate says so."""

    def __init__(self, predicate: Callable[[BaseException], bool]) -> None:
        parts(type(self).__name__, "predicate", (predicate,))
        self.predicate = predicate

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return self.predicate(error)


class retry_if_exception_type(retry_if_exception):
    """Retry errors of the given types."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        self.exception_types = _types(self, exception_types)
        super().__init__(lambda error: isinstance(error, exception_types))


class retry_if_not_exception_type(retry_if_exception):
    """Retry all errors except the given types."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        self.exception_types = _types(self, exception_types)
        super().__init__(lambda error: not isinstance(error, exception_types))


class retry_unless_exception_type(retry_if_not_exception_type):
    """Retry all errors except the given types: `retry_if_not_exception_type` under its other name."""


class retry_if_exception_message(_Condition):
    """Retry errors whose text equals `message`, or in which the pattern `match` is found."""

    def __init__(self, message: str | None = None, match: str | re.Pattern[str] | None = None) -> None:
        owner = type(self).__name__
        if message is None and match is None:
            raise TypeError(f"{owner}() missing 1 required argument 'message' or 'match'")
        if message is not None and match is not None:
            raise TypeError(f"{owner}() takes either 'message' or 'match', not both")
        if not isinstance(message, str | None):
            raise TypeError(f"{owner}: message must be a string, got {message!r}")
        if not isinstance(match, str | re.Pattern | None):
            raise TypeError(f"{owner}: match must be a regular expression, got {match!r}")
        self.message = message
        self.match = match
        self._pattern = None if match is None else re.compile(match)

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        text = str(error)
        return text == self.message if self._pattern is None else self._pattern.search(text) is not None


class retry_if_not_exception_message(retry_if_exception_message):
    """Retry errors whose text is not `message`, or in which the pattern `match` is not found."""

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return not super().__call__(error)


class retry_if_exception_cause_type(_Condition):
    """Retry errors raised `from` one of the given types, at any depth; the implicit `__context__` does not count."""

    def __init__(self, exception_types: ExceptionTypes = Exception) -> None:
        self.exception_types = _types(self, exception_types)

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        seen: set[int] = set()
        cause = error.__cause__
        # A chain of causes may be a ring.
        while cause is not None and id(cause) not in seen:
            if isinstance(cause, self.exception_types):
                return True
            seen.add(id(cause))
            cause = cause.__cause__
        return False


class retry_any(_Condition):
    """Retry if any of the conditions holds."""

    def __init__(self, *retries: RetryCondition) -> None:
        parts("retry_any", "a condition", retries)
        self.retries = retries

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return any(retry(error) for retry in self.retries)


class retry_all(_Condition):
    """Retry if all of the conditions hold."""

    def __init__(self, *retries: RetryCondition) -> None:
        parts("retry_all", "a condition", retries)
        self.retries = retries

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return all(retry(error) for retry in self.retries)


class retry_always(_Condition):
    """Retry every error."""

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return True


class retry_never(_Condition):
    """Retry no error."""

    @override
    def __call__(self, error: BaseException) -> bool:
        """Return whether to try again."""
        return False


def _types(condition: _Condition, exception_types: Any) -> Any:
    """Refuse what `isinstance` cannot be asked about, while the author is looking."""
    try:
        isinstance(None, exception_types)
    except TypeError:
        owner = type(condition).__name__
        raise TypeError(
            f"{owner}: exception_types must be an exception class or a tuple of them, got {exception_types!r}"
        ) from None
    return exception_types


# Stops: when to give up.


class StopCondition(Protocol):
    """Decides whether the retries end; `attempts` counts the failures, from 1."""

    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return true to give up; `upcoming_sleep` is the delay that a retry would wait."""
        ...


class _Stop(Described):
    """Base of the built-in conditions: `a | b` stops at either, `a & b` when both hold."""

    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        raise NotImplementedError

    def __or__(self, other: StopCondition) -> stop_any:
        return stop_any(self, other)

    def __ror__(self, other: StopCondition) -> stop_any:
        return stop_any(other, self)

    def __and__(self, other: StopCondition) -> stop_all:
        return stop_all(self, other)

    def __rand__(self, other: StopCondition) -> stop_all:
        return stop_all(other, self)


class stop_after_attempt(_Stop):
    """Stop once this many executions have failed: 3 means the first one and two retries."""

    def __init__(self, max_attempt_number: int) -> None:
        self.max_attempt_number = count("stop_after_attempt", "max_attempt_number", max_attempt_number)

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return whether to give up."""
        return attempts >= self.max_attempt_number


class stop_after_delay(_Stop):
    """Stop once this much time has passed since the first attempt began."""

    def __init__(self, max_delay: time_unit_type) -> None:
        self.max_delay = seconds("stop_after_delay", "max_delay", max_delay, finite=False)

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return whether to give up."""
        return elapsed_time >= self.max_delay


class stop_before_delay(_Stop):
    """Stop if the next retry would begin after this much time since the first attempt began."""

    def __init__(self, max_delay: time_unit_type) -> None:
        self.max_delay = seconds("stop_before_delay", "max_delay", max_delay, finite=False)

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return whether to give up."""
        return elapsed_time + upcoming_sleep >= self.max_delay


class stop_any(_Stop):
    """Stop if any of the conditions holds."""

    def __init__(self, *stops: StopCondition) -> None:
        parts("stop_any", "a condition", stops)
        self.stops = stops

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return whether to give up."""
        return any(stop(attempts, elapsed_time, upcoming_sleep=upcoming_sleep) for stop in self.stops)


class stop_all(_Stop):
    """Stop if all of the conditions hold."""

    def __init__(self, *stops: StopCondition) -> None:
        parts("stop_all", "a condition", stops)
        self.stops = stops

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return whether to give up."""
        return all(stop(attempts, elapsed_time, upcoming_sleep=upcoming_sleep) for stop in self.stops)


class stop_never(_Stop):
    """Never stop; the retry condition or the run's timeout is then the limit."""

    @override
    def __call__(self, attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        """Return whether to give up."""
        return False


def most_attempts(stop: StopCondition) -> int | None:
    """Return after how many attempts a condition stops at the latest; None if it counts no attempts."""
    if isinstance(stop, stop_after_attempt):
        return int(stop.max_attempt_number) if math.isfinite(stop.max_attempt_number) else None
    if isinstance(stop, stop_any):
        return min((limit for part in stop.stops if (limit := most_attempts(part)) is not None), default=None)
    if isinstance(stop, stop_all):
        limits = [most_attempts(part) for part in stop.stops]
        known = [limit for limit in limits if limit is not None]
        return max(known) if known and len(known) == len(limits) else None
    return None


# Waits: how long to pause before a retry.


class WaitStrategy(Protocol):
    """Computes the delay before a retry; the first retry has `attempts` 0."""

    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds; the same seed gives the same delay."""
        ...


class _Wait(Described):
    """Base of the built-in strategies: `a + b` waits for both, and so does `sum([a, b])`."""

    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        raise NotImplementedError

    def __add__(self, other: WaitStrategy) -> wait_combine:
        return wait_combine(self, other)

    def __radd__(self, other: Any) -> Any:
        # sum() starts with 0.
        return self if other == 0 else wait_combine(other, self)


class wait_fixed(_Wait):
    """Wait the same time before every retry."""

    def __init__(self, wait: time_unit_type) -> None:
        self.wait = seconds("wait_fixed", "wait", wait)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return self.wait


class wait_none(wait_fixed):
    """Retry at once."""

    def __init__(self) -> None:
        super().__init__(0)


class wait_exponential(_Wait):
    """Wait `multiplier * exp_base ** n`, at least `min` and at most `max`."""

    def __init__(
        self,
        multiplier: float = 1.0,
        exp_base: float = 2.0,
        max: time_unit_type = 60.0,
        min: time_unit_type = 0.0,
    ) -> None:
        owner = type(self).__name__
        self.multiplier = factor(owner, "multiplier", multiplier)
        self.exp_base = factor(owner, "exp_base", exp_base)
        self.max = seconds(owner, "max", max, finite=False)
        self.min = seconds(owner, "min", min)
        ordered(owner, self.min, self.max)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return max(self.min, min(_power(self.multiplier, self.exp_base, attempts), self.max))


class wait_random_exponential(wait_exponential):
    """Wait a random time between `min` and what `wait_exponential` would wait ("full jitter")."""

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return _uniform(seed, self.min, super().__call__(attempts))


def wait_full_jitter(
    multiplier: float = 1.0,
    exp_base: float = 2.0,
    max: time_unit_type = 60.0,
    min: time_unit_type = 0.0,
) -> wait_random_exponential:
    """Return `wait_random_exponential` under its other name."""
    return wait_random_exponential(multiplier=multiplier, exp_base=exp_base, max=max, min=min)


class wait_exponential_jitter(_Wait):
    """Wait `initial * exp_base ** n` plus a random time up to `jitter`, in all at most `max`."""

    def __init__(
        self,
        initial: time_unit_type = 1.0,
        exp_base: float = 2.0,
        max: time_unit_type = 60.0,
        jitter: time_unit_type = 1.0,
    ) -> None:
        owner = "wait_exponential_jitter"
        self.initial = seconds(owner, "initial", initial)
        self.exp_base = factor(owner, "exp_base", exp_base)
        self.max = seconds(owner, "max", max, finite=False)
        self.jitter = seconds(owner, "jitter", jitter)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        base = min(_power(self.initial, self.exp_base, attempts), self.max)
        return min(base + _uniform(seed, 0.0, self.jitter), self.max)


class wait_incrementing(_Wait):
    """Wait `start + increment * n`, never below 0 and at most `max`; a negative increment shortens the waits."""

    def __init__(
        self,
        start: time_unit_type = 0.0,
        increment: time_unit_type = 100.0,
        max: time_unit_type = float("inf"),
    ) -> None:
        owner = "wait_incrementing"
        self.start = seconds(owner, "start", start, negative=True)
        self.increment = seconds(owner, "increment", increment, negative=True)
        self.max = seconds(owner, "max", max, finite=False)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return max(0.0, min(self.start + self.increment * attempts, self.max))


class wait_random(_Wait):
    """Wait a random time between `min` and `max`."""

    def __init__(self, min: time_unit_type = 0.0, max: time_unit_type = 1.0) -> None:
        self.min = seconds("wait_random", "min", min)
        self.max = seconds("wait_random", "max", max)
        ordered("wait_random", self.min, self.max)

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return _uniform(seed, self.min, self.max)


class wait_chain(_Wait):
    """Use the n-th strategy for retry `n`, and the last one from then on."""

    def __init__(self, *strategies: WaitStrategy) -> None:
        if not strategies:
            raise ValueError("wait_chain requires at least one strategy")
        parts("wait_chain", "a strategy", strategies)
        self.strategies = strategies

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return self.strategies[min(attempts, len(self.strategies) - 1)](attempts, seed=seed)


class wait_combine(_Wait):
    """Wait the sum of all strategies."""

    def __init__(self, *strategies: WaitStrategy) -> None:
        parts("wait_combine", "a strategy", strategies)
        self.strategies = strategies

    @override
    def __call__(self, attempts: int, *, seed: int | None = None) -> float:
        """Return the delay in seconds."""
        return sum((strategy(attempts, seed=seed) for strategy in self.strategies), 0.0)


def _power(base: float, exp_base: float, attempts: int) -> float:
    """Return `base * exp_base ** attempts`; what no float can hold is infinite, so that a maximum still applies."""
    if base == 0:
        return 0.0
    try:
        return base * exp_base**attempts
    except OverflowError:
        return float("inf")


def _uniform(seed: int | None, low: float, high: float) -> float:
    """Draw from a generator of its own: without a seed it seeds itself."""
    return random.Random(seed).uniform(low, high)  # noqa: S311 - jitter is no secret


# Checks of what authors write.


def number(owner: str, name: str, value: Any) -> float:
    """Return `value` as a float; whatever is not a number (or is NaN) is refused."""
    # Decimals, fractions and numpy scalars are fine; text and booleans convert too, but are mistakes.
    if isinstance(value, str | bytes | bool) or not isinstance(value, SupportsFloat | SupportsIndex):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}")
    try:
        result = float(value)
    except OverflowError:
        raise ValueError(f"{owner}: {name} is too large") from None
    if math.isnan(result):
        raise ValueError(f"{owner}: {name} must be a number, got NaN")
    return result


def seconds(owner: str, name: str, value: Any, *, finite: bool = True, negative: bool = False) -> float:
    """Return a duration in seconds. Infinity is for limits (`finite=False`), negative values for increments."""
    if isinstance(value, timedelta):
        return seconds(owner, name, value.total_seconds(), negative=negative)
    try:
        result = number(owner, name, value)
    except TypeError:
        raise TypeError(f"{owner}: {name} must be seconds as a number or a timedelta, got {value!r}") from None
    if result < 0 and not negative:
        raise ValueError(f"{owner}: {name} must not be negative, got {value!r}")
    if finite and math.isinf(result):
        raise ValueError(f"{owner}: {name} must be finite, got {value!r}")
    return result


def factor(owner: str, name: str, value: Any) -> float:
    """Return a finite number that is not negative."""
    result = number(owner, name, value)
    if result < 0 or math.isinf(result):
        raise ValueError(f"{owner}: {name} must be finite and not negative, got {value!r}")
    return result


def count(owner: str, name: str, value: Any) -> float:
    """Return a whole number of at least 1; infinity means no limit."""
    result = number(owner, name, value)
    if result < 1:
        raise ValueError(f"{owner}: {name} must be at least 1, got {value!r}")
    if math.isinf(result):
        return result
    if not result.is_integer():
        raise TypeError(f"{owner}: {name} must be a whole number, got {value!r}")
    return int(result)


def ordered(owner: str, low: float, high: float) -> None:
    """Refuse a `min` above its `max`."""
    if low > high:
        raise ValueError(f"{owner}: min ({low:g}) must not be above max ({high:g})")


def parts(owner: str, kind: str, values: tuple[Any, ...]) -> None:
    """Refuse what cannot be called, and classes: `wait_none` written without its parentheses is a class."""
    for value in values:
        if isinstance(value, type):
            hint = "retry_if_exception_type(...)" if issubclass(value, BaseException) else "an instance of it"
            raise TypeError(f"{owner}: {kind} is the class {value.__name__}; pass {hint}")
        if not callable(value):
            raise TypeError(f"{owner}: {kind} must be callable, got {value!r}")

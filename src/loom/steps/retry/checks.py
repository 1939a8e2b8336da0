"""Checks of what authors hand to retry policies: numbers, durations and callables.

A wrong number must fail where it is written, naming class and parameter, not hours later inside a failing run.
Imports nothing of Loom.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, SupportsFloat, SupportsIndex

from typing_extensions import override

time_unit_type = int | float | timedelta
"""A duration: seconds as a number, or a `timedelta`."""


def number(owner: str, name: str, value: Any) -> float:
    """Return `value` as a float; whatever is not a number (or is NaN) is refused."""
    # Decimals, fractions and numpy scalars are fine; text and booleans convert too, but nobody means them.
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
    """Return a whole number of at least 1; infinity stands for "without limit"."""
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


class Described:
    """Gives parts of a policy a readable `repr`: the class and its public settings."""

    @override
    def __repr__(self) -> str:
        """Show the class and its settings."""
        shown = ", ".join(f"{key}={value!r}" for key, value in vars(self).items() if not key.startswith("_"))
        return f"{type(self).__name__}({shown})"

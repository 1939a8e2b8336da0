# The class names are the public API that Loom keeps.
# ruff: noqa: N801
"""Stop conditions: when to give up. They combine with `|` and `&`.

May import `checks` only.
"""

from __future__ import annotations

import math
from typing import Protocol

from typing_extensions import override

from loom.steps.retry.checks import Described, count, parts, seconds, time_unit_type


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

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest

from loom.steps.retry import (
    StopCondition,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    stop_any,
    stop_before_delay,
    stop_never,
)

early, late = stop_after_attempt(2), stop_after_delay(10)


@pytest.mark.parametrize(
    ("stop", "attempts", "elapsed", "sleep", "expected"),
    [
        (stop_after_attempt(3), 2, 1e9, 1e9, False),
        (stop_after_attempt(3), 3, 0, 0, True),
        (stop_after_attempt(3.0), 3, 0, 0, True),
        (stop_after_attempt(inf), 10**9, 0, 0, False),
        (stop_after_delay(10), 99, 9.9, 99, False),
        (stop_after_delay(10), 1, 10, 0, True),
        (stop_after_delay(timedelta(minutes=1)), 1, 60, 0, True),
        (stop_after_delay(0), 1, 0, 0, True),
        (stop_after_delay(inf), 1, 1e300, 0, False),
        (stop_before_delay(10), 1, 9, 0.9, False),
        (stop_before_delay(10), 1, 9, 1, True),
        (stop_before_delay(timedelta(seconds=10)), 1, 10, 0, True),
        (stop_never(), 10**9, 1e9, 1e9, False),
        (stop_any(), 1, 0, 0, False),
        (stop_all(), 1, 0, 0, True),
        (early | late, 2, 0, 0, True),
        (early | late, 1, 10, 0, True),
        (early | late, 1, 0, 0, False),
        (early & late, 2, 0, 0, False),
        (early & late, 2, 10, 0, True),
        (stop_any(early, stop_before_delay(5)), 1, 1, 4, True),
        (stop_all(early, stop_before_delay(5)), 2, 1, 3, False),
    ],
)
def test_when_to_give_up(stop: StopCondition, attempts: int, elapsed: float, sleep: float, expected: bool) -> None:
    assert stop(attempts, elapsed, upcoming_sleep=sleep) is expected


def test_a_plain_function_combines_on_either_side() -> None:
    def odd(attempts: int, elapsed_time: float, *, upcoming_sleep: float = 0.0) -> bool:
        return attempts % 2 == 1

    assert (odd | stop_never())(3, 0) is True
    assert (stop_never() | odd)(3, 0) is True
    assert (odd & stop_never())(3, 0) is False
    assert (stop_never() & odd)(3, 0) is False


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: stop_after_attempt(0), ValueError, "stop_after_attempt: max_attempt_number must be at least 1, got 0"),
        (lambda: stop_after_attempt(-3), ValueError, "max_attempt_number must be at least 1"),
        (lambda: stop_after_attempt(-inf), ValueError, "max_attempt_number must be at least 1"),
        (lambda: stop_after_attempt(2.5), TypeError, "max_attempt_number must be a whole number, got 2.5"),
        (lambda: stop_after_attempt("3"), TypeError, "max_attempt_number must be a number, got '3'"),
        (lambda: stop_after_attempt(float("nan")), ValueError, "max_attempt_number must be a number, got NaN"),
        (lambda: stop_after_delay(-1), ValueError, "stop_after_delay: max_delay must not be negative, got -1"),
        (lambda: stop_before_delay(None), TypeError, "stop_before_delay: max_delay must be seconds"),
        (lambda: stop_any(3), TypeError, "stop_any: a condition must be callable, got 3"),
        (lambda: stop_never() & 3, TypeError, "stop_all: a condition must be callable, got 3"),
    ],
)
def test_nonsense_is_refused_by_name(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()

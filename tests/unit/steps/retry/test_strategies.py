"""Retry conditions, stops and waits."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.steps.retry import (
    RetryCondition,
    StopCondition,
    WaitStrategy,
    retry_all,
    retry_always,
    retry_any,
    retry_if_exception,
    retry_if_exception_cause_type,
    retry_if_exception_message,
    retry_if_exception_type,
    retry_if_not_exception_message,
    retry_if_not_exception_type,
    retry_never,
    retry_unless_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    stop_any,
    stop_before_delay,
    stop_never,
    wait_chain,
    wait_combine,
    wait_exponential,
    wait_exponential_jitter,
    wait_fixed,
    wait_full_jitter,
    wait_incrementing,
    wait_none,
    wait_random,
    wait_random_exponential,
)


def chained(*errors: Exception) -> Exception:
    """The last error, raised from the one before it, and so on."""
    for cause, error in pairwise(errors):
        error.__cause__ = cause
    return errors[-1]


def in_context() -> Exception:
    error = RuntimeError("outer")
    error.__context__ = KeyError("inner")
    return error


by_type = retry_if_exception_type(ValueError)
by_text = retry_if_exception_message(message="again")


@pytest.mark.parametrize(
    ("retry", "error", "expected"),
    [
        (retry_if_exception(lambda e: "x" in str(e)), Exception("x"), True),
        (retry_if_exception(lambda e: "x" in str(e)), Exception("y"), False),
        (retry_if_exception_type(), KeyboardInterrupt(), False),
        (retry_if_exception_type(), ValueError(), True),
        (retry_if_exception_type(OSError), ConnectionError(), True),
        (retry_if_exception_type((KeyError, ValueError)), TypeError(), False),
        (retry_if_exception_type(KeyError | ValueError), ValueError(), True),
        (retry_if_not_exception_type(ValueError), ValueError(), False),
        (retry_if_not_exception_type(ValueError), TypeError(), True),
        (retry_unless_exception_type((ValueError, KeyError)), KeyError(), False),
        (by_text, Exception("again"), True),
        (by_text, Exception("again!"), False),
        (retry_if_exception_message(message=""), Exception(), True),
        (retry_if_exception_message(match=r"HTTP 5\d\d"), Exception("got HTTP 503"), True),
        (retry_if_exception_message(match=re.compile("busy", re.I)), Exception("BUSY"), True),
        (retry_if_exception_message(match="busy"), Exception("BUSY"), False),
        (retry_if_not_exception_message(message="no"), Exception("no"), False),
        (retry_if_not_exception_message(match="no"), Exception("yes"), True),
        (retry_if_exception_cause_type(KeyError), chained(KeyError(), RuntimeError(), OSError()), True),
        (retry_if_exception_cause_type(KeyError), chained(ValueError(), RuntimeError()), False),
        (retry_if_exception_cause_type(KeyError), KeyError(), False),
        (retry_if_exception_cause_type(KeyError), in_context(), False),
        (retry_always(), Exception(), True),
        (retry_never(), Exception(), False),
        (retry_any(), Exception(), False),
        (retry_all(), Exception(), True),
        (by_type | by_text, ValueError("other"), True),
        (by_type | by_text, TypeError("again"), True),
        (by_type | by_text, TypeError("other"), False),
        (by_type & by_text, ValueError("again"), True),
        (by_type & by_text, ValueError("other"), False),
        (retry_never() | by_type | by_text, TypeError("again"), True),
    ],
)
def test_which_errors_are_tried_again(retry: RetryCondition, error: Exception, expected: bool) -> None:
    assert retry(error) is expected


def test_a_ring_of_causes_ends() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert retry_if_exception_cause_type(KeyError)(one) is False


def test_a_plain_function_combines_on_either_side() -> None:
    def is_key_error(error: BaseException) -> bool:
        return isinstance(error, KeyError)

    assert (is_key_error | retry_never())(KeyError()) is True
    assert (retry_never() | is_key_error)(KeyError()) is True
    assert (is_key_error & retry_never())(KeyError()) is False
    assert (retry_always() & is_key_error)(ValueError()) is False


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (retry_if_exception_message, "missing 1 required argument 'message' or 'match'"),
        (lambda: retry_if_exception_message("a", "b"), "takes either 'message' or 'match', not both"),
        (retry_if_not_exception_message, r"retry_if_not_exception_message\(\) missing"),
        (lambda: retry_if_exception_message(message=5), "retry_if_exception_message: message must be a string, got 5"),
        (lambda: retry_if_exception_message(match=5), "match must be a regular expression, got 5"),
        (lambda: retry_if_exception_type("ValueError"), "retry_if_exception_type: exception_types must be an excep"),
        (lambda: retry_if_exception_cause_type([KeyError]), "retry_if_exception_cause_type: exception_types must be"),
        (lambda: retry_if_exception(None), "retry_if_exception: predicate must be callable, got None"),
        (lambda: by_type | KeyError, r"a condition is the class KeyError; pass retry_if_exception_type\(...\)"),
        (lambda: 3 & by_type, "retry_all: a condition must be callable, got 3"),
    ],
)
def test_nonsense_is_refused_by_name(build: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        build()


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


def test_a_plain_function_combines_with_a_stop_on_either_side() -> None:
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
def test_nonsense_stop_is_refused_by_name(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


@pytest.mark.parametrize(
    ("wait", "delays"),
    [
        (wait_fixed(5), [5, 5, 5, 5]),
        (wait_fixed(timedelta(milliseconds=250)), [0.25, 0.25, 0.25, 0.25]),
        (wait_fixed(Decimal("0.5")), [0.5, 0.5, 0.5, 0.5]),
        (wait_none(), [0, 0, 0, 0]),
        (wait_exponential(), [1, 2, 4, 8]),
        (wait_exponential(multiplier=0.5, exp_base=3, max=10), [0.5, 1.5, 4.5, 10]),
        (wait_exponential(min=3, max=timedelta(seconds=5)), [3, 3, 4, 5]),
        (wait_exponential(multiplier=8, exp_base=0.5), [8, 4, 2, 1]),
        (wait_exponential(exp_base=0), [1, 0, 0, 0]),
        (wait_incrementing(), [0, 100, 200, 300]),
        (wait_incrementing(start=1, increment=2, max=4), [1, 3, 4, 4]),
        (wait_incrementing(start=3, increment=-2), [3, 1, 0, 0]),
        (wait_incrementing(start=-1, increment=timedelta(seconds=1)), [0, 0, 1, 2]),
        (wait_exponential_jitter(jitter=0), [1, 2, 4, 8]),
        (wait_exponential_jitter(initial=2, exp_base=10, max=30, jitter=0), [2, 20, 30, 30]),
        (wait_exponential_jitter(initial=timedelta(seconds=2), max=timedelta(seconds=4), jitter=0), [2, 4, 4, 4]),
        (wait_chain(wait_fixed(1), wait_fixed(2), wait_exponential()), [1, 2, 4, 8]),
        (wait_combine(), [0, 0, 0, 0]),
        (wait_combine(wait_fixed(1), wait_exponential()), [2, 3, 5, 9]),
        (wait_fixed(1) + wait_exponential(), [2, 3, 5, 9]),
        (sum([wait_fixed(1), wait_fixed(2), wait_none()]), [3, 3, 3, 3]),
    ],
)
def test_delays_before_the_first_retries(wait: WaitStrategy, delays: list[float]) -> None:
    assert [wait(n) for n in range(4)] == delays


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (wait_random(min=2, max=6), lambda draw: draw(2, 6)),
        (wait_random_exponential(min=1), lambda draw: draw(1, 8)),
        (wait_full_jitter(min=1), lambda draw: draw(1, 8)),
        (wait_exponential_jitter(jitter=2), lambda draw: 8 + draw(0, 2)),
        (wait_exponential_jitter(max=8, jitter=2), lambda draw: 8),
        (wait_chain(wait_none(), wait_random()), lambda draw: draw(0, 1)),
        (wait_fixed(3) + wait_random(), lambda draw: 3 + draw(0, 1)),
    ],
)
def test_jitter_is_drawn_from_the_seed(wait: WaitStrategy, expected: Any) -> None:
    assert wait(3, seed=42) == pytest.approx(expected(Random(42).uniform))


def test_jitter_without_a_seed_differs_from_call_to_call() -> None:
    wait = wait_random(max=1000)
    assert len({wait(0) for _ in range(10)}) > 1


def test_a_plain_function_can_be_added_on_either_side() -> None:
    def one_per_retry(attempts: int, *, seed: int | None = None) -> float:
        return float(attempts)

    assert (wait_fixed(1) + one_per_retry)(2) == 3
    assert (one_per_retry + wait_fixed(1))(2) == 3


@pytest.mark.parametrize("wait", [wait_exponential(), wait_exponential_jitter(), wait_random_exponential(min=60)])
def test_a_power_no_float_can_hold_meets_the_maximum(wait: WaitStrategy) -> None:
    assert wait(5000) == 60


def test_nothing_times_an_endless_power_is_nothing() -> None:
    assert wait_exponential(multiplier=0, max=inf)(5000) == 0


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: wait_fixed(-1), ValueError, r"wait_fixed: wait must not be negative, got -1"),
        (lambda: wait_fixed(timedelta(seconds=-1)), ValueError, r"wait_fixed: wait must not be negative"),
        (lambda: wait_fixed(float("nan")), ValueError, r"wait_fixed: wait must be a number, got NaN"),
        (lambda: wait_fixed(inf), ValueError, r"wait_fixed: wait must be finite"),
        (lambda: wait_fixed(10**400), ValueError, r"wait_fixed: wait is too large"),
        (lambda: wait_fixed("5"), TypeError, r"wait_fixed: wait must be seconds as a number or a timedelta, got '5'"),
        (lambda: wait_fixed(None), TypeError, r"wait_fixed: wait must be seconds"),
        (lambda: wait_fixed(True), TypeError, r"wait_fixed: wait must be seconds"),
        (lambda: wait_exponential(multiplier=-1), ValueError, r"wait_exponential: multiplier must be finite and not"),
        (lambda: wait_exponential(exp_base=inf), ValueError, r"wait_exponential: exp_base must be finite and not"),
        (lambda: wait_exponential(exp_base="2"), TypeError, r"wait_exponential: exp_base must be a number"),
        (
            lambda: wait_exponential(min=10, max=5),
            ValueError,
            r"wait_exponential: min \(10\) must not be above max",
        ),
        (lambda: wait_full_jitter(min=-1), ValueError, r"wait_random_exponential: min must not be negative"),
        (lambda: wait_random(min=2, max=1), ValueError, r"wait_random: min \(2\) must not be above max \(1\)"),
        (lambda: wait_random(max=inf), ValueError, r"wait_random: max must be finite"),
        (lambda: wait_exponential_jitter(jitter=-1), ValueError, r"wait_exponential_jitter: jitter must not be neg"),
        (lambda: wait_incrementing(max=-1), ValueError, r"wait_incrementing: max must not be negative"),
        (lambda: wait_incrementing(increment=float("nan")), ValueError, r"wait_incrementing: increment must be a num"),
        (wait_chain, ValueError, r"wait_chain requires at least one strategy"),
        (lambda: wait_chain(5), TypeError, r"wait_chain: a strategy must be callable, got 5"),
        (lambda: wait_fixed(1) + 5, TypeError, r"wait_combine: a strategy must be callable, got 5"),
        (lambda: wait_combine(wait_none), TypeError, r"wait_combine: a strategy is the class wait_none; pass an inst"),
    ],
)
def test_nonsense_wait_is_refused_by_name(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_repr_shows_the_settings() -> None:
    assert repr(wait_exponential()) == "wait_exponential(multiplier=1.0, exp_base=2.0, max=60.0, min=0.0)"


duration = st.floats(min_value=0, max_value=1e6)
retry_number = st.integers(min_value=0, max_value=10_000)
seed_number = st.integers(min_value=0, max_value=2**32 - 1)


@given(low=duration, span=duration, base=st.floats(min_value=0, max_value=10), n=retry_number, seed=seed_number)
def test_delays_keep_within_their_bounds(low: float, span: float, base: float, n: int, seed: int) -> None:
    high = low + span
    for wait in (
        wait_random(min=low, max=high),
        wait_exponential(multiplier=span, exp_base=base, min=low, max=high),
        wait_random_exponential(multiplier=span, exp_base=base, min=low, max=high),
    ):
        assert low <= wait(n, seed=seed) <= high
    for wait in (
        wait_exponential_jitter(initial=low, exp_base=base, max=high, jitter=span),
        wait_incrementing(start=low, increment=-span, max=high),
        wait_incrementing(start=-low, increment=span, max=high),
    ):
        assert 0 <= wait(n, seed=seed) <= high


@given(n=retry_number, seed=seed_number)
def test_the_same_seed_gives_the_same_delay(n: int, seed: int) -> None:
    for wait in (wait_random(max=100), wait_full_jitter(), wait_exponential_jitter() + wait_random()):
        assert wait(n, seed=seed) == wait(n, seed=seed)

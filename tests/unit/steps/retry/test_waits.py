from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.steps.retry import (
    WaitStrategy,
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
def test_nonsense_is_refused_by_name(build: Any, error: type[Exception], text: str) -> None:
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

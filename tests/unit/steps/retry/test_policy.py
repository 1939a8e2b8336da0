"""Retry policies: built from parts, asked by the engine, and the two older ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.steps.retry import (
    ConstantDelayRetryPolicy,
    ExponentialBackoffRetryPolicy,
    RetryInfo,
    RetryPolicy,
    ask_policy,
    attempt_limit,
    policy_seed,
    retry_if_exception_type,
    retry_policy,
    stop_after_attempt,
    stop_after_delay,
    stop_before_delay,
    stop_never,
    wait_chain,
    wait_exponential,
    wait_fixed,
    wait_none,
    wait_random,
    wait_random_exponential,
)


class Verdict:
    """A policy that always says the same."""

    def __init__(self, verdict: Any) -> None:
        self.verdict = verdict

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> Any:
        return self.verdict


def ask(policy: Any, *, attempts: int = 1, seed: int | None = 7) -> float | None:
    return ask_policy(policy, elapsed_time=1.5, attempts=attempts, error=ValueError("x"), seed=seed)


def test_the_defaults_are_three_executions_five_seconds_apart() -> None:
    policy = retry_policy()
    assert [policy.next(0.0, failures, ValueError()) for failures in (1, 2, 3, 4)] == [5, 5, None, None]


def test_the_first_retry_waits_the_first_delay() -> None:
    policy = retry_policy(wait=wait_exponential(), stop=stop_never())
    assert [policy.next(0.0, failures, ValueError()) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]


def test_a_count_of_zero_is_read_as_the_first_retry() -> None:
    assert retry_policy(wait=wait_chain(wait_fixed(1), wait_fixed(9))).next(0.0, 0, ValueError()) == 1


def test_an_error_not_worth_it_ends_the_retries_before_anything_else_is_asked() -> None:
    def unasked(*_: Any, **__: Any) -> Any:
        pytest.fail("must not be asked")

    policy = retry_policy(retry=retry_if_exception_type(OSError), wait=unasked, stop=unasked)
    assert policy.next(0.0, 1, ValueError()) is None


def test_stop_learns_the_delay_to_come() -> None:
    policy = retry_policy(wait=wait_fixed(2), stop=stop_before_delay(10))
    assert policy.next(7.9, 1, ValueError()) == 2
    assert policy.next(8.0, 1, ValueError()) is None


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: retry_policy(wait=5), "retry_policy: wait must be callable, got 5"),
        (lambda: retry_policy(wait=None), "retry_policy: wait must be callable, got None"),
        (lambda: retry_policy(wait=wait_none), "retry_policy: wait is the class wait_none; pass an instance of it"),
        (lambda: retry_policy(stop=3), "retry_policy: stop must be callable, got 3"),
        (lambda: retry_policy(retry=OSError), r"retry is the class OSError; pass retry_if_exception_type\(...\)"),
    ],
)
def test_wrong_parts_are_refused(build: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        build()


def test_any_object_with_next_is_a_policy() -> None:
    assert isinstance(Verdict(None), RetryPolicy)
    assert isinstance(retry_policy(), RetryPolicy)
    assert not isinstance(object(), RetryPolicy)


@pytest.mark.parametrize(("verdict", "delay"), [(None, None), (0, 0.0), (2.5, 2.5), (Fraction(1, 2), 0.5)])
def test_a_verdict_is_seconds_or_none(verdict: Any, delay: float | None) -> None:
    assert ask(Verdict(verdict)) == delay


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (-1, ValueError),
        (inf, ValueError),
        (nan, ValueError),
        ("5", TypeError),
        (True, TypeError),
        (False, TypeError),
        (timedelta(seconds=1), TypeError),
        ([], TypeError),
    ],
)
def test_a_nonsense_verdict_names_the_policy(verdict: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"Verdict\.next\(\): the delay it returns"):
        ask(Verdict(verdict))


def test_an_async_policy_is_refused() -> None:
    class Later:
        async def next(self, elapsed_time: float, attempts: int, error: Exception) -> float:
            return 1.0

    with pytest.raises(TypeError, match=r"Later\.next\(\) must not be async"):
        ask(Later())


def test_arguments_reach_the_policy_in_order() -> None:
    class Recorder:
        def next(self, elapsed: float, failures: int, exc: Exception, *, seed: int | None = None) -> float:
            self.asked = (elapsed, failures, str(exc), seed)
            return 1

    policy = Recorder()
    assert ask(policy, attempts=4) == 1
    assert policy.asked == (1.5, 4, "x", 7)


def test_a_policy_without_seed_is_asked_without() -> None:
    class Old:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float:
            return attempts

    assert ask(Old(), attempts=2) == 2


def test_a_wrapping_policy_passes_the_seed_on() -> None:
    class Wrapper:
        def next(self, *args: Any, **kwargs: Any) -> Any:
            return retry_policy(wait=wait_random(max=1000)).next(*args, **kwargs)

    assert ask(Wrapper()) == ask(retry_policy(wait=wait_random(max=1000)))


def test_next_may_be_any_callable_of_the_instance() -> None:
    class Callable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None) -> int | None:
            return seed

    policy = Verdict(None)
    policy.next = Callable()  # type: ignore[method-assign, assignment]
    assert ask(policy, seed=11) == 11


def test_errors_of_the_policy_are_its_own() -> None:
    class Broken:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float:
            raise LookupError("no table")

    with pytest.raises(LookupError, match="no table"):
        ask(Broken())


@given(run=st.text(st.characters(exclude_categories=["Cs"])), step=st.text("abc_"), failures=st.integers(1, 99))
def test_the_seed_is_the_low_32_bits_of_the_digest(run: str, step: str, failures: int) -> None:
    digest = hashlib.sha256(f"{run}:{step}:{failures}".encode()).hexdigest()
    assert policy_seed(run, step, failures) == int(digest, 16) & 0xFFFF_FFFF


def test_each_failure_has_its_own_seed() -> None:
    assert policy_seed("run-1", "fetch", 1) != policy_seed("run-1", "fetch", 2)


@given(attempts=st.integers(1, 50), limit=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
def test_a_bounded_policy_ends_and_repeats_itself(attempts: int, limit: int, seed: int) -> None:
    policy = retry_policy(wait=wait_random(min=1, max=2), stop=stop_after_attempt(limit))
    delay = ask(policy, attempts=attempts, seed=seed)
    assert delay == ask(policy, attempts=attempts, seed=seed)
    assert delay is None if attempts >= limit else 1 <= delay <= 2


def test_retry_info_is_a_frozen_record() -> None:
    info = RetryInfo(retry_number=0, elapsed_seconds=0.0, last_exception=None, last_failed_at=None)
    assert info == RetryInfo(0, 0.0, None, None)
    with pytest.raises(FrozenInstanceError):
        info.retry_number = 1  # type: ignore[misc]


def made(build: Callable[..., RetryPolicy], **settings: Any) -> RetryPolicy:
    with pytest.warns(DeprecationWarning, match=f"{build.__name__} is deprecated, use retry_policy") as caught:
        policy = build(**settings)
    assert caught[0].filename == __file__
    return policy


def delays(policy: RetryPolicy, seed: int | None = None) -> list[float | None]:
    return [policy.next(0.0, failures, ValueError(), seed=seed) for failures in (1, 2, 3, 4, 5)]


def test_constant_delay() -> None:
    assert delays(made(ConstantDelayRetryPolicy)) == [5, 5, None, None, None]
    assert delays(made(ConstantDelayRetryPolicy, maximum_attempts=4, delay=0.5)) == [0.5, 0.5, 0.5, None, None]


def test_exponential_backoff_without_jitter() -> None:
    settings = {"initial_delay": 2, "multiplier": 3, "max_delay": 50}
    assert delays(made(ExponentialBackoffRetryPolicy, jitter=False, **settings)) == [2, 6, 18, 50, None]
    assert delays(made(ExponentialBackoffRetryPolicy, jitter=False)) == [1, 2, 4, 8, None]


def test_exponential_backoff_has_full_jitter_by_default() -> None:
    modern = retry_policy(wait=wait_random_exponential(), stop=stop_after_attempt(5))
    assert delays(made(ExponentialBackoffRetryPolicy), seed=3) == delays(modern, seed=3)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="max_attempt_number must be at least 1"):
        made(ConstantDelayRetryPolicy, maximum_attempts=0)
    with pytest.raises(ValueError, match="multiplier must be finite and not negative"):
        made(ExponentialBackoffRetryPolicy, initial_delay=-1)


class Own:
    def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
        return None


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, 1),
        (retry_policy(), 3),
        (retry_policy(stop=stop_after_attempt(5) | stop_after_delay(60)), 5),
        (retry_policy(stop=stop_after_attempt(5) & stop_after_delay(60)), 0),
        (retry_policy(stop=stop_after_attempt(5) & stop_after_attempt(7)), 7),
        (retry_policy(stop=stop_after_attempt(math.inf)), 0),
        (retry_policy(stop=stop_never()), 0),
        (Own(), 0),
    ],
)
def test_a_limit_is_told_where_there_is_one(policy: Any, expected: int) -> None:
    assert attempt_limit(policy) == expected

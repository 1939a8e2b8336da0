from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loom.steps.retry import (
    ConstantDelayRetryPolicy,
    ExponentialBackoffRetryPolicy,
    RetryPolicy,
    retry_policy,
    stop_after_attempt,
    wait_random_exponential,
)


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

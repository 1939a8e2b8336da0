# The names are the public API that Loom keeps.
# ruff: noqa: N802
"""The two older policies, kept for the programs that still use them. May import its sibling modules only."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from loom.steps.retry.policy import RetryPolicy, retry_policy
from loom.steps.retry.stops import stop_after_attempt
from loom.steps.retry.waits import wait_exponential, wait_fixed, wait_random_exponential

if TYPE_CHECKING:
    from loom.steps.retry.checks import time_unit_type


def ConstantDelayRetryPolicy(maximum_attempts: int = 3, delay: time_unit_type = 5) -> RetryPolicy:
    """Retry at a fixed interval. Deprecated: use `retry_policy`."""
    _deprecated("ConstantDelayRetryPolicy", "wait_fixed(delay)")
    return retry_policy(wait=wait_fixed(delay), stop=stop_after_attempt(maximum_attempts))


def ExponentialBackoffRetryPolicy(
    maximum_attempts: int = 5,
    initial_delay: float = 1.0,
    multiplier: float = 2.0,
    max_delay: time_unit_type = 60.0,
    jitter: bool = True,
) -> RetryPolicy:
    """Retry after growing delays, by default with full jitter. Deprecated: use `retry_policy`."""
    _deprecated("ExponentialBackoffRetryPolicy", "wait_exponential(...)")
    strategy = wait_random_exponential if jitter else wait_exponential
    wait = strategy(multiplier=initial_delay, exp_base=multiplier, max=max_delay)
    return retry_policy(wait=wait, stop=stop_after_attempt(maximum_attempts))


def _deprecated(name: str, wait: str) -> None:
    warnings.warn(
        f"{name} is deprecated, use retry_policy(wait={wait}, stop=stop_after_attempt(n)) instead",
        DeprecationWarning,
        stacklevel=3,
    )

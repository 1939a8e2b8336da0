# The names are the public API that Loom keeps.
# ruff: noqa: N802
"""Retry policies: the protocol, the policy built from parts, and how the engine asks any policy for its verdict.

Policies are asked at the edge; their verdict travels as data from there on.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import warnings
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from loom.steps.retry.strategies import (
    Described,
    StopCondition,
    WaitStrategy,
    most_attempts,
    number,
    parts,
    stop_after_attempt,
    wait_exponential,
    wait_fixed,
    wait_random_exponential,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.retry.strategies import RetryCondition, time_unit_type


@dataclass(frozen=True)
class RetryInfo:
    """Where the running execution of a step stands in its retries."""

    retry_number: int
    """0 for the first execution, 1 for the first retry."""
    elapsed_seconds: float
    """Since the first execution began."""
    last_exception: Exception | None
    """What the execution before this one raised."""
    last_failed_at: datetime | None
    """When it did (UTC)."""


@runtime_checkable
class RetryPolicy(Protocol):
    """Decides after each failure of a step whether and when it runs again. Any object with this method will do."""

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        """Return the seconds to wait before the next execution, or None to give up.

        `elapsed_time` runs from the start of the first execution to this failure, `attempts` counts the failures
        from 1, and `seed` makes random delays repeatable.
        """
        ...


class _ComposableRetryPolicy(Described):
    """Asks its three parts in turn: is the error worth it, how long to wait, is it time to give up."""

    def __init__(self, retry: RetryCondition | None, wait: WaitStrategy, stop: StopCondition) -> None:
        self.retry = retry
        self.wait = wait
        self.stop = stop

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        """Return the seconds to wait, or None to give up."""
        if self.retry is not None and not self.retry(error):
            return None
        # Failures count from 1, retries from 0.
        delay = self.wait(max(attempts - 1, 0), seed=seed)
        return None if self.stop(attempts, elapsed_time, upcoming_sleep=delay) else delay


_FIVE_SECONDS = wait_fixed(5)
_THREE_ATTEMPTS = stop_after_attempt(3)


def retry_policy(
    retry: RetryCondition | None = None,
    wait: WaitStrategy = _FIVE_SECONDS,
    stop: StopCondition = _THREE_ATTEMPTS,
) -> RetryPolicy:
    """Build a policy: which errors to retry (all), how long to wait (5 s), when to stop (after 3 executions)."""
    if retry is not None:
        parts("retry_policy", "retry", (retry,))
    parts("retry_policy", "wait", (wait,))
    parts("retry_policy", "stop", (stop,))
    return _ComposableRetryPolicy(retry, wait, stop)


def policy_seed(run_id: str, step: str, failures: int) -> int:
    """Return the seed for the jitter of a step's n-th failure: the same on every machine and in every replay."""
    digest = hashlib.sha256(f"{run_id}:{step}:{failures}".encode()).digest()
    return int.from_bytes(digest[-4:], "big")


def ask_policy(
    policy: RetryPolicy, *, elapsed_time: float, attempts: int, error: Exception, seed: int | None
) -> float | None:
    """Ask any policy for its verdict and check it: seconds to wait, or None to give up."""
    if _takes_seed(policy.next):
        verdict: Any = policy.next(elapsed_time, attempts, error, seed=seed)
    else:
        verdict = policy.next(elapsed_time, attempts, error)
    if verdict is None:
        return None
    owner = f"{type(policy).__name__}.next()"
    if isinstance(verdict, CoroutineType):
        verdict.close()
        raise TypeError(f"{owner} must not be async: it returns seconds or None")
    delay = number(owner, "the delay it returns (or None)", verdict)
    if delay < 0 or math.isinf(delay):
        raise ValueError(f"{owner}: the delay it returns must be finite and not negative, got {verdict!r}")
    return delay


def attempt_limit(policy: RetryPolicy | None) -> int:
    """Return how many attempts a policy allows at most: 1 without a policy, 0 if that cannot be told."""
    if policy is None:
        return 1
    return most_attempts(policy.stop) or 0 if isinstance(policy, _ComposableRetryPolicy) else 0


def _takes_seed(method: Callable[..., Any]) -> bool:
    function = getattr(method, "__func__", method)
    # Only functions are kept in the cache: other callables need not be hashable.
    return _has_seed(function) if isinstance(function, FunctionType) else _inspect_seed(method)


def _inspect_seed(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        # A callable without a signature (written in C): the plain call is the safe one.
        return False
    return "seed" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


_has_seed = lru_cache(maxsize=1024)(_inspect_seed)


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

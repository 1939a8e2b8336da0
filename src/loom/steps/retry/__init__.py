"""Retry policies: which errors of a step are tried again, after how long, and until when.

Re-exports the public names of the modules beside it; imports nothing else of Loom.
"""

from __future__ import annotations

from loom.steps.retry.checks import time_unit_type
from loom.steps.retry.conditions import (
    RetryCondition,
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
)
from loom.steps.retry.legacy import ConstantDelayRetryPolicy, ExponentialBackoffRetryPolicy
from loom.steps.retry.policy import (
    RetryInfo,
    RetryPolicy,
    ask_policy,
    attempt_limit,
    policy_seed,
    retry_policy,
)
from loom.steps.retry.stops import (
    StopCondition,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    stop_any,
    stop_before_delay,
    stop_never,
)
from loom.steps.retry.waits import (
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

__all__ = [
    "ConstantDelayRetryPolicy",
    "ExponentialBackoffRetryPolicy",
    "RetryCondition",
    "RetryInfo",
    "RetryPolicy",
    "StopCondition",
    "WaitStrategy",
    "ask_policy",
    "attempt_limit",
    "policy_seed",
    "retry_all",
    "retry_always",
    "retry_any",
    "retry_if_exception",
    "retry_if_exception_cause_type",
    "retry_if_exception_message",
    "retry_if_exception_type",
    "retry_if_not_exception_message",
    "retry_if_not_exception_type",
    "retry_never",
    "retry_policy",
    "retry_unless_exception_type",
    "stop_after_attempt",
    "stop_after_delay",
    "stop_all",
    "stop_any",
    "stop_before_delay",
    "stop_never",
    "time_unit_type",
    "wait_chain",
    "wait_combine",
    "wait_exponential",
    "wait_exponential_jitter",
    "wait_fixed",
    "wait_full_jitter",
    "wait_incrementing",
    "wait_none",
    "wait_random",
    "wait_random_exponential",
]

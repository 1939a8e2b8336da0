"""When a failed action is tried again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.flows.program import RetryLimits, RetryPolicy
    from loom.flows.state import Record, Tries

_TRANSIENT = frozenset({408, 429})
_SERVER_ERRORS = range(500, 600)
_JITTER = 0.1
_PRECISION = 1 << 30


def next_delay(policy: RetryPolicy, tries: int, record: Record, random_below: Callable[[int], int]) -> float | None:
    """Seconds until the next try of an action that has been tried again `tries` times; None: there is none."""
    if policy.type == "none" or tries >= policy.count or not _may_help(policy, record):
        return None
    delay = _delay(policy, tries, random_below)
    return max(delay, record.retry_after) if record.retry_after is not None else delay


def limited_delay(policy: RetryPolicy, limits: RetryLimits, tries: Tries, at: float, delay: float) -> float | None:
    """The delay before the next try, as the rules `RETRIES_HAVE_LIMITS` have it; None: there is no further try."""
    if policy.type == "fixed" and not policy.azure:
        delay = max(delay, policy.min_interval_s)
    is_over = tries.count >= limits.max_count or at + delay - tries.first_at > limits.max_duration_s
    return None if is_over else delay


def _may_help(policy: RetryPolicy, record: Record) -> bool:
    """Whether the failure is one that the policy is for."""
    status = _status_code(record)
    if policy.on is not None:
        names = {record.error_type.lower(), record.code.lower(), "" if status is None else str(status)}
        if record.status == "TimedOut" or status in (408, 504):
            names.add("timeout")
        return not names.isdisjoint(policy.on)
    if not policy.azure:
        return True
    if status is not None:
        return status in _TRANSIENT or status in _SERVER_ERRORS
    return record.error_type in ("connection", "timeout") and record.status != "TimedOut"


def _status_code(record: Record) -> int | None:
    code = record.outputs.get("statusCode") if isinstance(record.outputs, dict) else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _delay(policy: RetryPolicy, tries: int, random_below: Callable[[int], int]) -> float:
    if policy.type == "fixed":
        return policy.interval_s
    # No interval is longer than years: the power is kept within what floats can hold.
    interval = policy.interval_s * 2.0 ** min(tries, 64)
    chance = random_below(_PRECISION) / _PRECISION
    if policy.azure:
        high = min(interval, policy.max_interval_s)
        low = min(max(interval / 2, policy.min_interval_s), high) if tries else policy.min_interval_s
        return max(low + (high - low) * chance, policy.min_interval_s)
    return max(min(interval * (1 + _JITTER * chance), policy.max_interval_s), policy.min_interval_s)

"""How many attempts a policy allows, as far as it can be told from its parts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from loom.steps.retry import (
    attempt_limit,
    retry_policy,
    stop_after_attempt,
    stop_after_delay,
    stop_never,
)


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

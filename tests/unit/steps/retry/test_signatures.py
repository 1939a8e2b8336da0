"""The signatures of the parts of a retry policy: what a call by position, by name or by default means."""

from __future__ import annotations

import inspect
from math import inf
from typing import Any

import pytest

import loom.compat.retry_policy as parts

NEEDED = inspect.Parameter.empty
"""The default of a parameter that has none."""
EXPONENTIAL = {"multiplier": 1, "exp_base": 2, "max": 60, "min": 0}
TYPES = {"exception_types": Exception}
MESSAGE = {"message": None, "match": None}

SIGNATURES: dict[str, dict[str, Any]] = {
    "retry_if_exception": {"predicate": NEEDED},
    "retry_if_exception_type": TYPES,
    "retry_if_not_exception_type": TYPES,
    "retry_unless_exception_type": TYPES,
    "retry_if_exception_message": MESSAGE,
    "retry_if_not_exception_message": MESSAGE,
    "retry_if_exception_cause_type": TYPES,
    "retry_always": {},
    "retry_never": {},
    "stop_after_attempt": {"max_attempt_number": NEEDED},
    "stop_after_delay": {"max_delay": NEEDED},
    "stop_before_delay": {"max_delay": NEEDED},
    "stop_never": {},
    "wait_fixed": {"wait": NEEDED},
    "wait_none": {},
    "wait_exponential": EXPONENTIAL,
    "wait_random_exponential": EXPONENTIAL,
    "wait_full_jitter": EXPONENTIAL,
    "wait_exponential_jitter": {"initial": 1, "exp_base": 2, "max": 60, "jitter": 1},
    "wait_incrementing": {"start": 0, "increment": 100, "max": inf},
    "wait_random": {"min": 0, "max": 1},
}
VARIADIC = {
    "retry_any": "retries",
    "retry_all": "retries",
    "stop_any": "stops",
    "stop_all": "stops",
    "wait_chain": "strategies",
    "wait_combine": "strategies",
}
DEPRECATED = {"ConstantDelayRetryPolicy", "ExponentialBackoffRetryPolicy"}
OTHERS = {
    "RetryCondition",
    "RetryInfo",
    "RetryPolicy",
    "StopCondition",
    "WaitStrategy",
    "retry_policy",
    "time_unit_type",
}


def _parameters(name: str) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(getattr(parts, name)).parameters.values() if each.name != "self"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_order_and_defaults(name: str) -> None:
    found = _parameters(name)
    assert [(each.name, each.default) for each in found] == list(SIGNATURES[name].items())
    assert {each.kind for each in found} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize("name", VARIADIC)
def test_combinations_take_any_number(name: str) -> None:
    [found] = _parameters(name)
    assert (found.name, found.kind) == (VARIADIC[name], inspect.Parameter.VAR_POSITIONAL)


def test_the_tables_name_all_parts() -> None:
    assert {*SIGNATURES, *VARIADIC, *DEPRECATED, *OTHERS} == set(parts.__all__)


@pytest.mark.parametrize(
    ("by_position", "by_name"),
    [
        (parts.wait_exponential(3, 4, 50, 2), parts.wait_exponential(multiplier=3, exp_base=4, max=50, min=2)),
        (parts.wait_incrementing(3, 4, 50), parts.wait_incrementing(start=3, increment=4, max=50)),
        (parts.wait_fixed(7), parts.wait_fixed(wait=7)),
    ],
)
def test_positions_mean_the_same_as_names(by_position: Any, by_name: Any) -> None:
    assert [by_position(n) for n in range(6)] == [by_name(n) for n in range(6)]


@pytest.mark.parametrize(
    ("by_position", "by_name"),
    [
        (parts.wait_random(3, 4), parts.wait_random(min=3, max=4)),
        (
            parts.wait_exponential_jitter(3, 4, 50, 2),
            parts.wait_exponential_jitter(initial=3, exp_base=4, max=50, jitter=2),
        ),
        (
            parts.wait_random_exponential(3, 4, 50, 2),
            parts.wait_random_exponential(multiplier=3, exp_base=4, max=50, min=2),
        ),
        (parts.wait_full_jitter(3, 4, 50, 2), parts.wait_random_exponential(3, 4, 50, 2)),
    ],
)
def test_positions_mean_the_same_as_names_where_chance_has_a_part(by_position: Any, by_name: Any) -> None:
    assert [by_position(n, seed=9) for n in range(6)] == [by_name(n, seed=9) for n in range(6)]


def test_what_is_called_with_an_error_a_count_or_nothing_keeps_its_form() -> None:
    assert parts.retry_if_exception(predicate=lambda error: "x" in str(error))(ValueError("x")) is True
    assert parts.stop_after_attempt(max_attempt_number=2)(2, 0.0, upcoming_sleep=1.0) is True
    assert parts.wait_exponential()(3, seed=None) == 8.0
    assert isinstance(parts.retry_unless_exception_type(), parts.retry_if_not_exception_type)
    assert isinstance(parts.wait_none(), parts.wait_fixed)

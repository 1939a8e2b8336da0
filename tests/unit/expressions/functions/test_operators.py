"""Arithmetic, comparison and logic."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions import ExpressionError, evaluate
from loom.expressions.functions.operators import all_of, any_of, choice, div, mod

# --- arithmetic: kinds, limits and signs ------------------------------------------------------------------------------


CONTEXT = {"variables": {"big": Decimal("79228162514264337593543950335"), "d": Decimal("1.50"), "third": Decimal(3)}}


def value_of(text: str) -> Any:
    return evaluate("@" + text, CONTEXT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add(9223372036854775806, 1)", 2**63 - 1),
        ("add(1, variables('d'))", Decimal("2.50")),
        ("add(0.1, variables('d'))", Decimal("1.60")),
        ("sub(-9223372036854775807, 1)", -(2**63)),
        ("sub(1, 0.5)", 0.5),
        ("mul(variables('d'), variables('d'))", Decimal("2.2500")),
        ("mul(1e308, 10)", math.inf),
        ("div(7, 2)", 3),
        ("div(-7, 2)", -3),
        ("div(7, -2)", -3),
        ("div(-7, -2)", 3),
        ("div(7, 2.0)", 3.5),
        ("div(1.0, 0)", math.inf),
        ("div(-1.0, 0)", -math.inf),
        ("div(1, variables('third'))", Decimal("0.3333333333333333333333333333")),
        ("mod(-7, 3)", -1),
        ("mod(7, -3)", 1),
        ("mod(7.5, 2)", 1.5),
        ("mod(variables('d'), 1)", Decimal("0.50")),
        ("min(3, 1, 2)", 1),
        ("min(3, 1.5)", 1.5),
        ("max(3, 1.5)", 3.0),
        ("max(1, variables('d'))", Decimal("1.50")),
        ("max(createArray(5))", 5),
        ("range(-1, 3)", [-1, 0, 1]),
        ("range(9223372036854775807, 1)", [2**63 - 1]),
    ],
)
def test_values_and_kinds_of_numbers(text: str, expected: Any) -> None:
    found = value_of(text)
    assert found == expected
    assert str(found) == str(expected)
    assert type(found) is type(expected)


def test_integers_of_any_size_from_elsewhere_bring_no_other_error() -> None:
    context = {"item": 10**400}
    assert evaluate("@add(item(), 0.5)", context) == math.inf
    for text in ("@add(item(), 1)", "@add(item(), decimal('1'))", "@take('a', 1e300)", "@rand(0, 1e300)"):
        with pytest.raises(ExpressionError):
            evaluate(text, context)


def test_zero_by_zero_is_not_a_number() -> None:
    assert math.isnan(value_of("div(0.0, 0)"))
    assert math.isnan(value_of("mod(1.0, 0)"))
    assert math.isnan(value_of("mod(mul(1e308, 10), 2)"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("add(9223372036854775807, 1)", "64 bits"),
        ("sub(-9223372036854775808, 1)", "64 bits"),
        ("mul(4294967296, 4294967296)", "64 bits"),
        ("div(-9223372036854775808, -1)", "64 bits"),
        ("div(1, 0)", "cannot divide by zero"),
        ("mod(1, 0)", "cannot divide by zero"),
        ("div(variables('d'), 0)", "cannot divide by zero"),
        ("add(variables('big'), 1)", "too large for a decimal"),
        ("mul(variables('d'), 1e50)", "too large for a decimal"),
        ("add(variables('d'), mul(1e308, 10))", "Infinity is no decimal"),
        ("add('1', 1)", "a number, not String"),
        ("add(true, 1)", "a number, not Boolean"),
        ("max('a')", "a number, not String"),
        ("max(1, createArray(2))", "a number, not Array"),
        ("min(json('[]'))", "the array is empty"),
        ("range(1, 0)", "from 1 to 100000"),
        ("range(1, 100001)", "from 1 to 100000"),
        ("range(9223372036854775807, 2)", "64 bits"),
        ("rand(5, 5)", "less than"),
        ("rand(1.5, 3)", "an integer"),
    ],
)
def test_refusals_of_arithmetic(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        value_of(text)


def test_random_numbers_stay_in_their_range_and_come_again_for_a_seed() -> None:
    drawn = {evaluate("@rand(-2, 2)", {"seed": seed}) for seed in range(100)}
    assert drawn == {-2, -1, 0, 1}
    assert evaluate("@rand(0, 1000000)", {"seed": 7}) == evaluate("@rand(0, 1000000)", {"seed": 7})
    pair = evaluate("@createArray(rand(0, 1000000), rand(0, 1000000))")
    assert pair[0] != pair[1]
    wide = evaluate("@rand(-9223372036854775808, 9223372036854775807)")
    assert -(2**63) <= wide < 2**63


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**62), 2**62).filter(bool))
def test_division_and_remainder_belong_together(a: int, b: int) -> None:
    if (a, b) != (-(2**63), -1):
        assert div(a, b) * b + mod(a, b) == a
        assert abs(mod(a, b)) < abs(b)


# --- logic and comparison, and whether a text is a number -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@equals(1, 1.0)", True),
        ("@equals(null, '')", False),
        ("@equals(true, 'true')", True),
        ("@equals(createArray(1, 'a'), createArray(1, 'a'))", True),
        ("@greater(2, 1.5)", True),
        ("@greater('b', 'a')", True),
        ("@greaterOrEquals(1, 1.0)", True),
        ("@less('A', 'a')", True),
        ("@lessOrEquals(2, 1)", False),
        ("@isInt('10')", True),
        ("@isInt(' -1,0,00 ')", True),
        ("@isInt('9223372036854775807')", True),
        ("@isInt('-9223372036854775808')", True),
        ("@isInt('9223372036854775808')", False),
        ("@isInt('0000000000000000000000000001')", True),
        ("@isInt('1.5')", False),
        ("@isInt('')", False),
        ("@isInt('abc')", False),
        ("@isInt('1e3')", False),
        ("@isFloat('10,000.5')", True),
        ("@isFloat('1e3')", True),
        ("@isFloat('NaN')", True),
        ("@isFloat('abc')", False),
        ("@isFloat('')", False),
    ],
)
def test_values_of_logic(text: str, expected: bool) -> None:
    assert evaluate(text) is expected


@pytest.mark.parametrize(
    "text", ["@greater(1, 'a')", "@less(true, false)", "@greater(null, 1)", "@isInt(1)", "@isFloat(1)"]
)
def test_refusals_of_logic(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text)


def test_the_lazy_functions_also_exist_as_plain_ones() -> None:
    assert all_of(True, True)
    assert not any_of(False)
    assert choice(False, 1, 2) == 2

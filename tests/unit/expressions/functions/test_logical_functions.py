"""Logical functions: comparisons, and whether a text is a number."""

from __future__ import annotations

import pytest

from loom.expressions import ExpressionError, evaluate
from loom.expressions.functions.logical import all_of, any_of, choice


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
def test_values(text: str, expected: bool) -> None:
    assert evaluate(text) is expected


@pytest.mark.parametrize(
    "text", ["@greater(1, 'a')", "@less(true, false)", "@greater(null, 1)", "@isInt(1)", "@isFloat(1)"]
)
def test_refusals(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text)


def test_the_lazy_functions_also_exist_as_plain_ones() -> None:
    assert all_of(True, True)
    assert not any_of(False)
    assert choice(False, 1, 2) == 2

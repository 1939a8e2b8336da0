"""`formatNumber`; the formats themselves are tested beside them."""

from __future__ import annotations

import pytest

from loom.expressions import ExpressionError, evaluate


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("formatNumber(1234567890, '0,0.00', 'en-us')", "1,234,567,890.00"),
        ("formatNumber(17.35, 'C2')", "$17.35"),
        ("formatNumber(12, '0000')", "0012"),
        ("formatNumber(decimal('0.125'), 'P1')", "12.5%"),
        ("formatNumber(255, 'X4', '')", "00FF"),
    ],
)
def test_values(expression: str, text: str) -> None:
    assert evaluate(f"@{expression}") == text


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("formatNumber('12', 'C')", "number"),
        ("formatNumber(true, 'C')", "number"),
        ("formatNumber(12, 5)", "format"),
        ("formatNumber(12, 'W')", "'W'"),
        ("formatNumber(1.5, 'D')", "integers"),
        ("formatNumber(1, 'C', 'zz-not-a-locale-zz')", "zz-not-a-locale-zz"),
    ],
)
def test_errors_name_what_is_wrong(expression: str, part: str) -> None:
    with pytest.raises(ExpressionError, match=part):
        evaluate(f"@{expression}")

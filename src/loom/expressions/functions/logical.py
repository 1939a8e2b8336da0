"""Logical functions: and, or, not, if, and comparisons. Pure.

`and`, `or` and `if` stand here as if all their arguments had been evaluated; a compiled call evaluates only those that
it needs.
"""

from __future__ import annotations

import re
from typing import Any

from loom.expressions import values
from loom.expressions.arguments import want_boolean, want_string
from loom.expressions.numerals import parse_float
from loom.expressions.registry import function

_INT64_DIGITS = 19
_INTEGER = re.compile(r"[+-]?[0-9][0-9,]*")

function("equals", 2)(values.equals)


@function("and", 1, None)
def all_of(*operands: Any) -> bool:
    """Whether all are true."""
    return all(want_boolean("expression", operand) for operand in operands)


@function("or", 1, None)
def any_of(*operands: Any) -> bool:
    """Whether one is true."""
    return any(want_boolean("expression", operand) for operand in operands)


@function("not", 1)
def negation(operand: Any) -> bool:
    """The opposite."""
    return not want_boolean("expression", operand)


@function("if", 3)
def choice(condition: Any, if_true: Any, if_false: Any) -> Any:
    """One value if the condition is true, the other if it is false."""
    return if_true if want_boolean("expression", condition) else if_false


@function("greater", 2)
def greater(a: Any, b: Any) -> bool:
    """Whether the first comes after the second."""
    return values.compare(a, b) > 0


@function("greaterOrEquals", 2)
def greater_or_equals(a: Any, b: Any) -> bool:
    """Whether the first does not come before the second."""
    return values.compare(a, b) >= 0


@function("less", 2)
def less(a: Any, b: Any) -> bool:
    """Whether the first comes before the second."""
    return values.compare(a, b) < 0


@function("lessOrEquals", 2)
def less_or_equals(a: Any, b: Any) -> bool:
    """Whether the first does not come after the second."""
    return values.compare(a, b) <= 0


@function("isInt", 1)
def is_int(text: Any) -> bool:
    """Whether a string is the text of an integer."""
    digits = want_string("value", text).strip()
    if _INTEGER.fullmatch(digits) is None:
        return False
    sign = "-" if digits.startswith("-") else ""
    significant = digits.lstrip("+-").replace(",", "").lstrip("0")
    return len(significant) <= _INT64_DIGITS and values.INT_MIN <= int(sign + (significant or "0")) <= values.INT_MAX


@function("isFloat", 1, 2)
def is_float(text: Any, locale: Any = "") -> bool:
    """Whether a string is the text of a number in a culture, which is the invariant one if none is named."""
    return parse_float(want_string("value", text), want_string("locale", locale)) is not None

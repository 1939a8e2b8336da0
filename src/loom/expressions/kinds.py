"""The kinds of values: what they are called, and their limits. Pure; may import nothing of Loom."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

CONTENT_TYPE, CONTENT = "$content-type", "$content"
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DECIMAL_MAX = Decimal(2**96 - 1)
"""The largest decimal; the smallest is its negative."""


def kind_of(value: Any) -> str:
    """What people call the kind of a value: Null, Boolean, Integer, Float, Decimal, String, Array or Object."""
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return type(value).__name__


_KINDS: tuple[tuple[type, str], ...] = (
    (type(None), "Null"),
    (bool, "Boolean"),
    (int, "Integer"),
    (float, "Float"),
    (Decimal, "Decimal"),
    (str, "String"),
    (list, "Array"),
    (dict, "Object"),
)


def is_number(value: Any) -> bool:
    """Whether it is an integer, a float or a decimal; a boolean is none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_envelope(value: Any) -> bool:
    """Whether it is binary or XML data in its envelope."""
    return isinstance(value, dict) and CONTENT_TYPE in value and CONTENT in value

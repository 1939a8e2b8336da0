"""The values of the language: what kind they are, how they read as text, and how they compare. Pure.

`None`, `bool`, `int` (int64), `float`, `Decimal`, `str`, `list`, `dict`. Binary and XML data travel as an envelope, a
dict of `$content-type` and `$content`. May import `kinds`, `texts`, `envelopes`, `errors`, `limits` and `utf16`;
what is in `kinds` and `texts` can be had from here.

Data may be deep, and one list may be part of another many times over, so whatever walks through a value counts its
depth and its size.
"""

from __future__ import annotations

from decimal import Context, Decimal
from math import isfinite, isnan
from typing import Any

from loom.expressions.envelopes import envelope_text
from loom.expressions.errors import FunctionError
from loom.expressions.kinds import (
    CONTENT,
    CONTENT_TYPE,
    DECIMAL_MAX,
    INT_MAX,
    INT_MIN,
    is_envelope,
    is_number,
    kind_of,
)
from loom.expressions.limits import ELEMENT, FREE, MAX_DEPTH, MAX_NODES
from loom.expressions.metering import spend, spend_text
from loom.expressions.texts import float_text, json_text, number_text
from loom.expressions.utf16 import ordinal

__all__ = [
    "CONTENT",
    "CONTENT_TYPE",
    "DECIMAL_MAX",
    "INT_MAX",
    "INT_MIN",
    "compare",
    "decimal_of",
    "equals",
    "float_text",
    "is_envelope",
    "is_number",
    "json_text",
    "kind_of",
    "number_text",
    "text_of",
]

# A context of our own: the one that Python keeps for a thread may have been changed by anybody.
_DOUBLE_DIGITS = Context(prec=15)


def decimal_of(number: Any) -> Decimal:
    """A number as a decimal; of a float only its first 15 digits count, as a double promises no more."""
    if isinstance(number, float):
        if not isfinite(number):
            raise FunctionError(f"{float_text(number)} is no decimal")
        number = format(_DOUBLE_DIGITS.create_decimal(repr(number)).normalize(_DOUBLE_DIGITS), "f")
    value = Decimal(number)
    if value.copy_abs() > DECIMAL_MAX:
        raise FunctionError(f"{value:f} is too large for a decimal, whose limit is {DECIMAL_MAX}")
    return value


def text_of(value: Any) -> str:
    """How a value reads inside a text."""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int | float | Decimal):
        return number_text(value)
    if is_envelope(value):
        return envelope_text(value)
    return json_text(value)


def equals(a: Any, b: Any) -> bool:
    """Whether two values are equal: numbers by value, texts exactly, arrays and objects deeply, keys in any order."""
    kind = type(a)
    if kind is type(b) and kind in _SIMPLE:
        if kind is str and len(a) > FREE:
            spend(len(a) // _COMPARED)
        return bool(a == b)
    if isinstance(a, list | dict):
        return type(a) is type(b) and (a is b or _Comparison().same(a, b, MAX_DEPTH))
    return _same_scalar(a, b)


def _same_scalar(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        if isinstance(a, str) or isinstance(b, str):
            return bool(_boolean_text(a) == _boolean_text(b))
        return a is b
    if is_number(a) and is_number(b):
        return compare(a, b) == 0
    return type(a) is type(b) and bool(a == b)


def _boolean_text(value: Any) -> Any:
    return value if isinstance(value, str) else "true" if value else "false"


_SIMPLE = frozenset({str, int, bool})
"""Kinds whose values are equal if Python says so."""
_PLAIN = frozenset({int, bool})
"""Kinds among them that are compared in no time."""
_COMPARED = 8
"""Characters that are compared for one unit."""


class _Comparison:
    """A deep comparison that stops after so many parts, for two small graphs may unfold to endless trees."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_NODES

    def same(self, a: Any, b: Any, depth: int) -> bool:
        if not isinstance(a, list | dict):
            if isinstance(a, str) and len(a) > FREE:
                spend(len(a) // _COMPARED)
            return _same_scalar(a, b)
        if a is b or type(a) is not type(b) or len(a) != len(b):
            return a is b
        self.left -= len(a)
        if self.left < 0 or not depth:
            raise FunctionError(f"the values are too large to compare (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        spend(len(a) * ELEMENT)
        if isinstance(a, list):
            return all(
                x == y if type(x) is type(y) and type(x) in _PLAIN else self.same(x, y, depth - 1)
                for x, y in zip(a, b, strict=True)
            )
        return all(key in b and self.same(item, b[key], depth - 1) for key, item in a.items())


def compare(a: Any, b: Any) -> int:
    """Which of two numbers or of two texts comes first: below 0, 0 or above 0. Other kinds have no order."""
    if isinstance(a, str) and isinstance(b, str):
        if not (a.isascii() and b.isascii()):
            spend_text(a)
            spend_text(b)
            x, y = ordinal(a), ordinal(b)
            return (x > y) - (x < y)
        if len(a) > FREE:
            spend(len(a) // _COMPARED)
        return (a > b) - (a < b)
    if not (is_number(a) and is_number(b)):
        raise FunctionError(f"can compare two numbers or two strings, not {kind_of(a)} with {kind_of(b)}")
    if _is_nan(a) or _is_nan(b):  # NaN comes before every number and equals itself.
        return _is_nan(b) - _is_nan(a)
    if isinstance(a, Decimal) != isinstance(b, Decimal):
        a, b = _as_decimal(a), _as_decimal(b)
    return int(a > b) - int(a < b)


def _is_nan(number: Any) -> bool:
    return isinstance(number, float) and isnan(number)


def _as_decimal(number: Any) -> Any:
    """A number as a decimal where it is one; what is too large for it keeps its kind and still compares well."""
    if isinstance(number, Decimal):
        return number
    return decimal_of(number) if abs(number) <= DECIMAL_MAX else number

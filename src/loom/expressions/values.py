"""The values of the language: what kind they are, how they read as text, and how they compare. Pure.

`None`, `bool`, `int` (int64), `float`, `Decimal`, `str`, `list`, `dict`. Binary and XML data travel as an envelope, a
dict of `$content-type` and `$content`. May import `kinds`, `envelopes`, `errors`, `limits` and `utf16`; what is in
`kinds` can be had from here.

Data may be deep, and one list may be part of another many times over, so whatever walks through a value counts its
depth and its size.
"""

from __future__ import annotations

import json
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
from loom.expressions.limits import MAX_DEPTH, MAX_NODES, MAX_TEXT
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

# Contexts of our own: the one that Python keeps for a thread may have been changed by anybody.
_DOUBLE_DIGITS = Context(prec=15)
_FLOAT_DIGITS = Context(prec=17)


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


# --- text ---------------------------------------------------------------------------------------------------------


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


def number_text(value: int | float | Decimal) -> str:
    """How a number reads: integers plain, floats as short as they can be, decimals with all their places."""
    if isinstance(value, float):
        return float_text(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def float_text(value: float) -> str:
    """The shortest text that is this float: fixed from 1e-4 up to 1e15, otherwise like `1E-05` and `9.2E+18`."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if not value or 1e-4 <= abs(value) < 1e15:  # noqa: PLR2004
        return text.removesuffix(".0")
    sign, digits, exponent = Decimal(text).normalize(_FLOAT_DIGITS).as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits))
    power = exponent + len(figures) - 1
    point = "." if len(figures) > 1 else ""
    return f"{'-' if sign else ''}{figures[0]}{point}{figures[1:]}E{'-' if power < 0 else '+'}{abs(power):02}"


def json_text(value: Any) -> str:
    """A value as compact JSON, the way the language writes it: floats and decimals always show that they are some."""
    writer = _Writer()
    writer.write(value, MAX_DEPTH)
    return "".join(writer.parts)


_quote = json.JSONEncoder(ensure_ascii=False).encode
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class _Writer:
    """Writes JSON into parts, and stops when there are too many of them or too many characters."""

    __slots__ = ("left", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.left = MAX_NODES

    def write(self, value: Any, depth: int) -> None:
        if not isinstance(value, dict | list):
            self._put(_scalar(value))
            return
        self.left -= len(value)
        if not depth or self.left < 0:
            raise FunctionError(f"the value is too large to write (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        if isinstance(value, dict):
            self._object(value, depth - 1)
        else:
            self._array(value, depth - 1)

    def _object(self, value: dict[str, Any], depth: int) -> None:
        before = "{"
        for key, item in value.items():
            self._item(f"{before}{_string(key)}:", item, depth)
            before = ","
        self._put("}" if value else "{}")

    def _array(self, value: list[Any], depth: int) -> None:
        before = "["
        for item in value:
            self._item(before, item, depth)
            before = ","
        self._put("]" if value else "[]")

    def _item(self, before: str, item: Any, depth: int) -> None:
        if isinstance(item, dict | list):
            self._put(before)
            self.write(item, depth)
        else:
            self._put(before + _scalar(item))

    def _put(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_TEXT:
            raise FunctionError(f"the value has more than {MAX_TEXT:,} characters as JSON")
        self.parts.append(text)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if type(value) is int:
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not isfinite(value):
        return f'"{float_text(value)}"'
    if isinstance(value, float | Decimal):
        text = number_text(value)
        return text if "." in text or "E" in text else text + ".0"
    if isinstance(value, int):
        return str(value)
    raise FunctionError(f"a value of kind {kind_of(value)} cannot be written as JSON")


def _string(text: str) -> str:
    quoted = _quote(text)
    return quoted if quoted.isascii() else quoted.translate(_LINE_ENDS)


# --- comparison ---------------------------------------------------------------------------------------------------


def equals(a: Any, b: Any) -> bool:
    """Whether two values are equal: numbers by value, texts exactly, arrays and objects deeply, keys in any order."""
    if isinstance(a, str) and isinstance(b, str):
        return a == b
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


class _Comparison:
    """A deep comparison that stops after so many parts, for two small graphs may unfold to endless trees."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_NODES

    def same(self, a: Any, b: Any, depth: int) -> bool:
        if not isinstance(a, list | dict):
            return _same_scalar(a, b)
        if a is b or type(a) is not type(b) or len(a) != len(b):
            return a is b
        self.left -= len(a)
        if self.left < 0 or not depth:
            raise FunctionError(f"the values are too large to compare (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        if isinstance(a, list):
            return all(
                x == y if type(x) is type(y) and type(x) in _SIMPLE else self.same(x, y, depth - 1)
                for x, y in zip(a, b, strict=True)
            )
        return all(key in b and self.same(item, b[key], depth - 1) for key, item in a.items())


def compare(a: Any, b: Any) -> int:
    """Which of two numbers or of two texts comes first: below 0, 0 or above 0. Other kinds have no order."""
    if isinstance(a, str) and isinstance(b, str):
        if not (a.isascii() and b.isascii()):
            x, y = ordinal(a), ordinal(b)
            return (x > y) - (x < y)
        return (a > b) - (a < b)
    if not (is_number(a) and is_number(b)):
        raise FunctionError(f"can compare two numbers or two strings, not {kind_of(a)} with {kind_of(b)}")
    if isinstance(a, Decimal) != isinstance(b, Decimal):
        a, b = _as_decimal(a), _as_decimal(b)
    if _is_nan(a) or _is_nan(b):  # NaN comes before every number and equals itself.
        return _is_nan(b) - _is_nan(a)
    return int(a > b) - int(a < b)


def _is_nan(number: Any) -> bool:
    return isinstance(number, float) and isnan(number)


def _as_decimal(number: Any) -> Any:
    """A number as a decimal where it is one; what is too large for it keeps its kind and still compares well."""
    if isinstance(number, Decimal):
        return number
    return decimal_of(number) if abs(number) <= DECIMAL_MAX else number

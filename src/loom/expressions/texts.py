"""Numbers as text, and any value as JSON. Pure.

Data may be deep, and one list may be part of another many times over, so the writer counts depth and size.
"""

from __future__ import annotations

import json
from decimal import Context, Decimal
from math import isfinite, isnan
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.kinds import kind_of
from loom.expressions.limits import FEW, MAX_DEPTH, MAX_NODES, MAX_TEXT, NODE
from loom.expressions.metering import spend, spend_text

# A context of our own: the one that Python keeps for a thread may have been changed by anybody.
_FLOAT_DIGITS = Context(prec=17)


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
    if writer.size > FEW:
        writer.pay()
        spend(2 * writer.size, writer.size)
    return "".join(writer.parts)


_quote = json.JSONEncoder(ensure_ascii=False).encode
_LINE_ENDS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class _Writer:
    """Writes JSON into parts, and stops when there are too many of them or too many characters."""

    __slots__ = ("left", "paid", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.left = self.paid = MAX_NODES

    def write(self, value: Any, depth: int) -> None:
        if not isinstance(value, dict | list):
            self._put(_scalar(value))
            return
        self.left -= len(value)
        if not depth or self.left < 0:
            raise FunctionError(f"the value is too large to write (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        if self.paid - self.left > FEW:
            self.pay()
        if isinstance(value, dict):
            self._object(value, depth - 1)
        else:
            self._array(value, depth - 1)

    def pay(self) -> None:
        """Count the parts since the last time: one by one they would cost more than they are."""
        spend((self.paid - self.left) * NODE)
        self.paid = self.left

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
    spend_text(text)
    quoted = _quote(text)
    if not quoted.isascii():
        # Not by `translate`, which takes a hundred times as long and lets no other thread in.
        for character, escape in _LINE_ENDS.items():
            quoted = quoted.replace(character, escape)
    return quoted

"""The values of the language: their kinds, how they compare, and their parts. Pure.

A value is `None`, `bool`, `int` (64 bits), `float`, `Decimal`, `str`, `list` or `dict`. Binary and XML data travel as
an envelope, a dict of `$content-type` and `$content`. `value_text` writes values as text and reads them.

Data may be deep, and one list may be part of another many times over. So each walk through a value counts its depth and
its size.
"""

from __future__ import annotations

from decimal import Context, Decimal
from math import isfinite, isnan
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.meter import ELEMENT, FEW, FREE, MAX_DEPTH, MAX_NODES, NODE, spend, spend_text
from loom.expressions.strings import ordinal_key, upper

# --- kinds ------------------------------------------------------------------------------------------------------------

CONTENT_TYPE, CONTENT = "$content-type", "$content"


def kind_of(value: Any) -> str:
    """Name the kind of a value: Null, Boolean, Integer, Float, Decimal, String, Array or Object."""
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
    """Say whether a value is an integer, a float or a decimal; a boolean is none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_envelope(value: Any) -> bool:
    """Say whether a value is binary or XML data in its envelope."""
    return isinstance(value, dict) and CONTENT_TYPE in value and CONTENT in value


# --- numbers ----------------------------------------------------------------------------------------------------------

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
DECIMAL_MAX = Decimal(2**96 - 1)
"""The largest decimal; the smallest is its negative."""
# Contexts of our own: the one that Python keeps for a thread may have been changed by other code.
_FLOAT_DIGITS = Context(prec=17)
_DOUBLE_DIGITS = Context(prec=15)
_MAX_SCALE = 28
# Enough digits for every text that is short enough to be worth reading.
_WIDE = Context(prec=2000, Emax=999_999, Emin=-999_999)


def number_text(value: int | float | Decimal) -> str:
    """Write a number: integers plain, floats as short as they can be, decimals with all their places."""
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


def fit_decimal(value: Decimal) -> Decimal | None:
    """A number with as many of its places as a decimal can have; None if it is too large."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = min(max(-exponent, 0), _MAX_SCALE)
    while scale >= 0:
        rounded = value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
        if rounded.scaleb(scale, context=_WIDE).copy_abs() <= DECIMAL_MAX:
            return rounded
        scale -= 1
    return None


# --- equality and order -----------------------------------------------------------------------------------------------


def equals(a: Any, b: Any) -> bool:
    """Say whether two values are equal: numbers by value, texts exactly, arrays and objects deeply, keys unordered."""
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
    """A deep comparison that stops after `MAX_NODES` parts, because two small graphs may unfold to endless trees."""

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
    """Compare two numbers or two texts: below 0, 0 or above 0. Other kinds have no order."""
    if isinstance(a, str) and isinstance(b, str):
        if not (a.isascii() and b.isascii()):
            spend_text(a)
            spend_text(b)
            x, y = ordinal_key(a), ordinal_key(b)
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


# --- keys of sets -----------------------------------------------------------------------------------------------------


def identities(items: list[Any]) -> list[Any]:
    """Make a key that can be hashed for each value.

    Two values have one key if they are of one kind and `equals` calls them equal.
    """
    if len(items) > FEW:
        spend(2 * len(items) * ELEMENT, 2 * len(items) * _PLACE)
    keys = _Keys()
    return [item if type(item) in _OWN_KEYS else keys.key(item, MAX_DEPTH) for item in items]


_OWN_KEYS = frozenset({str, int, type(None)})
"""Kinds whose values are their own keys."""
_PLACE = 24
"""Bytes that a key takes in a table."""


class _Keys:
    """A maker of keys that stops after `MAX_NODES` parts."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_NODES

    def key(self, value: Any, depth: int) -> Any:
        if isinstance(value, bool):
            return (bool, value)
        if value is None or isinstance(value, str | int):
            return value
        if isinstance(value, float | Decimal):
            return value if value == value else float  # noqa: PLR0124 (one key for every NaN)
        self.left -= len(value)
        if self.left < 0 or not depth:
            raise FunctionError(f"the values are too large to compare (over {MAX_NODES:,} parts or {MAX_DEPTH} levels)")
        spend(len(value) * NODE, len(value) * _PLACE)
        if isinstance(value, list):
            return (list, *[self.key(item, depth - 1) for item in value])
        return (dict, frozenset((name, self.key(item, depth - 1)) for name, item in value.items()))


# --- parts ------------------------------------------------------------------------------------------------------------


def read(value: Any, key: Any, optional: bool) -> Any:
    """Read the part of a value under a key or an index. A missing part is null if `optional`, else an error.

    An object is asked for the exact key, then for the first key that differs only in case. Last comes the path `a/b`,
    as Power Automate writes it.
    """
    if isinstance(value, dict):
        return _read_object(value, key, optional)
    if isinstance(value, list):
        return _read_array(value, key, optional)
    if value is None:
        if optional:
            return None
        raise FunctionError(f"cannot read {_shown(key)} of null; '?' before it would give null")
    raise FunctionError(f"cannot read {_shown(key)} of a value of kind {kind_of(value)}")


def find_key(data: dict[str, Any], name: str) -> str | None:
    """The key of that name: the exact one, else the first that differs only in case, else none."""
    if name in data:
        return name
    if len(data) + len(name) > FEW:
        spend(len(data) * ELEMENT + len(name))
    wanted = upper(name)
    return next((key for key in data if upper(key) == wanted), None)


def _read_object(value: dict[str, Any], key: Any, optional: bool) -> Any:
    if not isinstance(key, str):
        raise FunctionError(f"an object is read by the name of a property, not by a value of kind {kind_of(key)}")
    found = find_key(value, key)
    if found is not None:
        return value[found]
    part, slash, rest = key.partition("/")
    found = find_key(value, part) if slash else None
    if found is not None:
        return _read_path(value[found], rest.split("/"), optional)
    if optional:
        return None
    names = ", ".join(f"'{name}'" for name in list(value)[:_NAMES_SHOWN])
    more = ", …" if len(value) > _NAMES_SHOWN else ""
    has = f"it has {names}{more}" if value else "it is empty"
    raise FunctionError(f"the object has no property '{key}'; {has}")


_NAMES_SHOWN = 8


def _read_path(value: Any, parts: list[str], optional: bool) -> Any:
    for part in parts:
        if isinstance(value, dict):
            key = find_key(value, part)
            if key is not None:
                value = value[key]
                continue
        value = read(value, part, optional)
    return value


def _read_array(value: list[Any], key: Any, optional: bool) -> Any:
    if not isinstance(key, int) or isinstance(key, bool):
        raise FunctionError(f"an array is read by an integer index, not by {_shown(key)}")
    if 0 <= key < len(value):
        return value[key]
    if optional:
        return None
    raise FunctionError(f"the index {key} is outside the array, which has {len(value)} elements")


def _shown(key: Any) -> str:
    return f"'{key[:80]}'" if isinstance(key, str) else f"[{key}]" if isinstance(key, int) else f"a {kind_of(key)}"

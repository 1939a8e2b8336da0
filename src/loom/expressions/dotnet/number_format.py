"""Writing numbers in .NET's standard formats: C D E F G N P R X. Pure.

May import `cultures`, `number_custom`, `values` and `errors`.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

from loom.expressions.dotnet.number_custom import format_custom, grouped
from loom.expressions.errors import FunctionError
from loom.expressions.values import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.dotnet.cultures import NumberSymbols

Number = int | float | Decimal

_STANDARD = re.compile(r"([A-Za-z])([0-9]{0,9})")
_MAX_PRECISION = 999
_SMALLEST_FIXED = -4
"""The power of ten from which on `G` writes no exponent."""
# Enough for every digit of the smallest and the largest double, and of the precision beside them.
_EXACT = Context(prec=2_500, rounding=ROUND_HALF_UP)


def format_number(value: Number, fmt: str, symbols: NumberSymbols) -> str:
    """The text of a number in a standard or custom format; an empty format is `G`."""
    if isinstance(value, float) and not math.isfinite(value):
        return symbols.nan if math.isnan(value) else (symbols.minus if value < 0 else "") + symbols.infinity
    standard = _STANDARD.fullmatch(fmt or "G")
    if standard is None:
        return format_custom(value, fmt, symbols)
    letter, digits = standard.groups()
    precision = int(digits) if digits else None
    if precision is not None and precision > _MAX_PRECISION:
        raise FunctionError(f"the number format {fmt[:20]!r} asks for more than {_MAX_PRECISION} digits")
    write = _WRITERS.get(letter.upper())
    if write is None:
        raise FunctionError(f"there is no number format {fmt!r}; a letter is one of C D E F G N P R X")
    return write(value, precision, letter, symbols)


def _is_negative(value: Number) -> bool:
    return math.copysign(1.0, value) < 0 if isinstance(value, float) else value < 0


def _fixed(value: Number, digits: int) -> tuple[str, str]:
    """The whole and the fractional digits of the size of a number, rounded away from zero at a tie."""
    size = abs(Decimal(value))
    whole, _, fraction = f"{_EXACT.quantize(size, Decimal(1).scaleb(-digits)):f}".partition(".")
    return whole, fraction


def _joined(parts: tuple[str, str], point: str) -> str:
    whole, fraction = parts
    return f"{whole}{point}{fraction}" if fraction else whole


def _fixed_point(value: Number, precision: int | None, _: str, symbols: NumberSymbols) -> str:
    text = _joined(_fixed(value, 2 if precision is None else precision), symbols.decimal)
    return symbols.minus + text if _is_negative(value) else text


def _with_groups(value: Number, precision: int | None, _: str, symbols: NumberSymbols) -> str:
    whole, fraction = _fixed(value, 2 if precision is None else precision)
    text = _joined((grouped(whole, symbols.group, symbols.group_sizes), fraction), symbols.decimal)
    return symbols.minus + text if _is_negative(value) else text


def _percent(value: Number, precision: int | None, _: str, symbols: NumberSymbols) -> str:
    whole, fraction = _fixed(_EXACT.multiply(Decimal(value), Decimal(100)), 2 if precision is None else precision)
    text = _joined((grouped(whole, symbols.group, symbols.group_sizes), fraction), symbols.decimal)
    shown = symbols.percent_pattern.replace("%", symbols.percent).replace("n", text)
    return symbols.minus + shown if _is_negative(value) else shown


def _money(value: Number, precision: int | None, _: str, symbols: NumberSymbols) -> str:
    whole, fraction = _fixed(value, symbols.currency_digits if precision is None else precision)
    whole = grouped(whole, symbols.currency_group, symbols.group_sizes)
    pattern = symbols.negative_currency_pattern if _is_negative(value) else symbols.currency_pattern
    # The number goes in before the symbol, whose own letters must stay as they are.
    text = pattern.replace("-", symbols.minus).replace("n", _joined((whole, fraction), symbols.currency_decimal))
    return text.replace("$", symbols.currency)


def _whole_number(value: Number, letter: str) -> int:
    if not isinstance(value, int):
        raise FunctionError(f"the number format {letter!r} is for integers only")
    return value


def _decimal_digits(value: Number, precision: int | None, letter: str, symbols: NumberSymbols) -> str:
    number = _whole_number(value, letter)
    return f"{symbols.minus if number < 0 else ''}{str(abs(number)).zfill(precision or 0)}"


def _hexadecimal(value: Number, precision: int | None, letter: str, _: NumberSymbols) -> str:
    number = _whole_number(value, letter) % 2**64  # negative numbers in two's complement
    return f"{number:{letter}}".zfill(precision or 0)


def _exponential(value: Number, precision: int | None, letter: str, symbols: NumberSymbols) -> str:
    digits, exponent = _significant(value, (6 if precision is None else precision) + 1)
    return _scientific(value, digits, f"{letter}{exponent:+04}", symbols)


def _scientific(value: Number, digits: str, exponent: str, symbols: NumberSymbols) -> str:
    mantissa = _joined((digits[0], digits[1:]), symbols.decimal)
    return f"{symbols.minus if _is_negative(value) else ''}{mantissa}{exponent}"


def _significant(value: Number, count: int) -> tuple[str, int]:
    """So many digits of a number, and the power of ten of the first one."""
    size = abs(Decimal(value))
    if not size:
        return "0" * count, 0
    rounded = _EXACT.quantize(size, Decimal(1).scaleb(size.adjusted() - count + 1))
    digits = "".join(map(str, rounded.as_tuple().digits))[:count]
    return digits, rounded.adjusted()


def _general(value: Number, precision: int | None, letter: str, symbols: NumberSymbols) -> str:
    if not precision:
        return _shortest(value, symbols)
    digits, exponent = _significant(value, precision)
    digits = digits.rstrip("0") or "0"
    if not _SMALLEST_FIXED <= exponent < precision:
        return _scientific(value, digits, f"{'E' if letter == 'G' else 'e'}{exponent:+03}", symbols)
    whole = digits[: exponent + 1].ljust(exponent + 1, "0") if exponent >= 0 else "0"
    fraction = digits[exponent + 1 :] if exponent >= 0 else "0" * (-exponent - 1) + digits
    text = _joined((whole, fraction), symbols.decimal)
    return symbols.minus + text if _is_negative(value) else text


def _round_trip(value: Number, _: int | None, letter: str, symbols: NumberSymbols) -> str:
    if not isinstance(value, float):
        raise FunctionError(f"the number format {letter!r} is for floats only")
    return _shortest(value, symbols)


def _shortest(value: Number, symbols: NumberSymbols) -> str:
    return text_of(value).replace("-", symbols.minus).replace(".", symbols.decimal)


_WRITERS: dict[str, Callable[[Number, int | None, str, NumberSymbols], str]] = {
    "C": _money,
    "D": _decimal_digits,
    "E": _exponential,
    "F": _fixed_point,
    "G": _general,
    "N": _with_groups,
    "P": _percent,
    "R": _round_trip,
    "X": _hexadecimal,
}

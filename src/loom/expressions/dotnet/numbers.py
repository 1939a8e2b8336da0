"""Numbers as text, as .NET writes and reads them in a culture. Pure.

`format_number` writes standard formats (C D E F G N P R X) and custom ones such as `#,##0.00;(#,##0.00);zero`.
`parse_float` and `parse_decimal` read. A thousands separator may stand anywhere after the first digit, white space
around the number, and a sign after it where the caller allows one.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from functools import lru_cache
from itertools import chain, repeat
from math import inf, nan
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.expressions.dotnet.tokens import check_format
from loom.expressions.errors import FunctionError
from loom.expressions.strings import translated
from loom.expressions.values import fit_decimal, number_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.dotnet.cultures import NumberSymbols


Number = int | float | Decimal


# --- standard formats -------------------------------------------------------------------------------------------------

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
        return _format_custom(value, fmt, symbols)
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
    text = _joined((_grouped(whole, symbols.group, symbols.group_sizes), fraction), symbols.decimal)
    return symbols.minus + text if _is_negative(value) else text


def _percent(value: Number, precision: int | None, _: str, symbols: NumberSymbols) -> str:
    whole, fraction = _fixed(_EXACT.multiply(Decimal(value), Decimal(100)), 2 if precision is None else precision)
    text = _joined((_grouped(whole, symbols.group, symbols.group_sizes), fraction), symbols.decimal)
    shown = symbols.percent_pattern.replace("%", symbols.percent).replace("n", text)
    return symbols.minus + shown if _is_negative(value) else shown


def _money(value: Number, precision: int | None, _: str, symbols: NumberSymbols) -> str:
    whole, fraction = _fixed(value, symbols.currency_digits if precision is None else precision)
    whole = _grouped(whole, symbols.currency_group, symbols.group_sizes)
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
    """The first `count` digits of a number, rounded, and the power of ten of the first one."""
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
    return number_text(value).replace("-", symbols.minus).replace(".", symbols.decimal)


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


# --- custom formats ---------------------------------------------------------------------------------------------------

# What .NET takes of a double in a custom format.
_DOUBLE_DIGITS = Context(prec=15, rounding=ROUND_HALF_UP)
_PARTS = re.compile(
    r"(?P<literal>\\.|\\$|'[^']*'?|\"[^\"]*\"?)"
    r"|(?P<exponent>[Ee][+-]?0+)|(?P<digit>[0#])|(?P<point>\.)|(?P<comma>,)|(?P<end>;)|(?P<other>.)",
    re.DOTALL,
)


class _Section(Struct):
    """A section of a custom format, cut into its parts."""

    parts: list[tuple[str, str]] = []
    """(kind, text): digit, point, literal or exponent."""
    whole: str = ""
    """The placeholders before the point."""
    fraction: str = ""
    """The placeholders after the point."""
    groups: bool = False
    shift: int = 0
    """The power of ten by which percent signs and commas at the end of the whole part move the number."""
    exponent: str = ""
    has_point: bool = False

    @property
    def least_whole(self) -> int:
        """Digits that are always written before the point."""
        return len(self.whole.lstrip("#"))

    @property
    def least_fraction(self) -> int:
        """Digits that are always written after the point."""
        return len(self.fraction.rstrip("#"))


def _format_custom(value: int | float | Decimal, fmt: str, symbols: NumberSymbols) -> str:
    """The text of a finite number in a custom format of one to three sections: positive, negative, zero."""
    check_format(fmt)
    number = _DOUBLE_DIGITS.create_decimal(value) if isinstance(value, float) else Decimal(value)
    try:
        return _in_section(number, _sections(fmt, symbols), symbols)
    except DecimalException:
        raise FunctionError(f"the number format {fmt[:20]!r}… asks for too many digits") from None


def _in_section(number: Decimal, sections: list[_Section], symbols: NumberSymbols) -> str:
    index = _choice(number, sections)
    whole, fraction, exponent = _digits(number, sections[index])
    if number and index != _zero_section(sections) and not (whole + fraction).strip("0"):
        # What is rounded to nothing is written as zero.
        number = Decimal(0)
        index = _zero_section(sections)
        whole, fraction, exponent = _digits(number, sections[index])
    sign = symbols.minus if number < 0 and index == 0 and (whole + fraction).strip("0") else ""
    return sign + _written(sections[index], whole, fraction, exponent, symbols)


def _choice(number: Decimal, sections: list[_Section]) -> int:
    if number < 0 and len(sections) > 1 and sections[1].parts:
        return 1
    return _zero_section(sections) if not number else 0


def _zero_section(sections: list[_Section]) -> int:
    return 2 if len(sections) > 2 and sections[2].parts else 0  # noqa: PLR2004


def _sections(fmt: str, symbols: NumberSymbols) -> list[_Section]:
    sections = [_Section()]
    commas = 0
    for match in _PARTS.finditer(fmt):
        section, kind, text = sections[-1], str(match.lastgroup), match.group()
        if kind == "comma":
            commas += 1 if section.whole and not section.has_point else 0
            continue
        if kind == "end":
            section.shift -= 3 * commas
            commas = 0
            sections.append(_Section())
        elif kind == "digit":
            # Commas between digits mean groups, commas after the last one thousands.
            section.groups = section.groups or commas > 0
            commas = 0
            _add_digit(section, text)
        elif kind == "point":
            section.shift -= 3 * commas
            commas = 0
            _add_point(section)
        else:
            _add_other(section, kind, text, symbols)
    sections[-1].shift -= 3 * commas
    return sections


def _add_digit(section: _Section, text: str) -> None:
    if section.has_point:
        section.fraction += text
    else:
        section.whole += text
    section.parts.append(("digit", text))


def _add_point(section: _Section) -> None:
    if not section.has_point:
        section.has_point = True
        section.parts.append(("point", "."))


def _add_other(section: _Section, kind: str, text: str, symbols: NumberSymbols) -> None:
    if kind == "exponent" and not section.exponent and (section.whole or section.fraction):
        section.exponent = text
        section.parts.append(("exponent", text))
    elif kind == "literal":
        section.parts.append(("literal", text[1:] if text[0] == "\\" else text.strip(text[0])))
    elif text in "%‰":
        section.shift += 2 if text == "%" else 3
        section.parts.append(("literal", symbols.percent if text == "%" else symbols.per_mille))
    else:
        section.parts.append(("literal", text))


def _digits(number: Decimal, section: _Section) -> tuple[str, str, int]:
    """The digits before and after the point, without zeros that need not be written, and the power of ten."""
    size = _EXACT.scaleb(abs(number), section.shift) if number else Decimal(0)
    exponent = 0
    if section.exponent and size:
        places = len(section.whole) + len(section.fraction)
        size = Context(prec=max(places, 1), rounding=ROUND_HALF_UP).create_decimal(size)
        exponent = size.adjusted() + 1 - len(section.whole)
        size = _EXACT.scaleb(size, -exponent)
    rounded = _EXACT.quantize(size, Decimal(1).scaleb(-len(section.fraction)))
    whole, _, fraction = f"{rounded:f}".partition(".")
    whole = whole.lstrip("0").rjust(section.least_whole, "0")
    fraction = fraction.rstrip("0").ljust(section.least_fraction, "0")
    return whole, fraction, exponent


def _written(section: _Section, whole: str, fraction: str, exponent: int, symbols: NumberSymbols) -> str:
    sizes = symbols.group_sizes if section.groups else ()
    slots = chain(_slots(whole, len(section.whole), symbols.group, sizes), fraction, repeat(""))
    out: list[str] = []
    for kind, text in section.parts:
        match kind:
            case "digit":
                out.append(next(slots))
            case "point":
                out.append(("" if section.whole else whole) + (symbols.decimal if fraction else ""))
            case "exponent":
                out.append(_exponent_text(text, exponent, symbols))
            case _:
                out.append(text)
    return "".join(out)


def _slots(whole: str, count: int, separator: str, sizes: tuple[int, ...]) -> list[str]:
    """The digits that each placeholder before the point writes: one each, and the first one also all that are left."""
    digits = _with_separators(whole, separator, sizes)
    spare = len(digits) - count
    if spare <= 0 or not count:
        return [""] * -spare + digits if count else []
    return ["".join(digits[: spare + 1]), *digits[spare + 1 :]]


def _exponent_text(text: str, exponent: int, symbols: NumberSymbols) -> str:
    sign = symbols.minus if exponent < 0 else (symbols.plus if "+" in text else "")
    return f"{text[0]}{sign}{str(abs(exponent)).zfill(text.count('0'))}"


def _breaks(length: int, sizes: tuple[int, ...]) -> set[int]:
    """The number of digits after each group separator; the last size repeats, and 0 ends the grouping."""
    breaks: set[int] = set()
    at = 0
    for index in range(length):
        size = sizes[min(index, len(sizes) - 1)] if sizes else 0
        at += size
        if not size or at >= length:
            break
        breaks.add(at)
    return breaks


def _with_separators(whole: str, separator: str, sizes: tuple[int, ...]) -> list[str]:
    """The digits, some followed by a group separator."""
    breaks = _breaks(len(whole), sizes)
    return [digit + (separator if len(whole) - at - 1 in breaks else "") for at, digit in enumerate(whole)]


def _grouped(whole: str, separator: str, sizes: tuple[int, ...]) -> str:
    """Digits with group separators."""
    return "".join(_with_separators(whole, separator, sizes))


# --- reading ----------------------------------------------------------------------------------------------------------

_WHITE = " \t\n\v\f\r"
_SPACES = " \xa0\u202f"
_MAX_DIGITS = 1000


def parse_float(text: str, locale: str | None = None, *, trailing_sign: bool = True) -> float | None:
    """Read the float of a text; None if it is no number. Too large a number is infinite.

    No locale is American English, and an empty one the invariant culture, which alone has a word for `Infinity`.
    """
    text = text.strip(_WHITE)
    special = _special(text.lower(), "infinity" if locale == "" else "∞")
    if special is not None:
        return special
    match = _pattern(*_separators(locale)).fullmatch(text)
    if match is None or (match["after"] and not trailing_sign):
        return None
    plain = _plain(match, locale)
    return None if plain is None else float(plain + (match["exponent"] or ""))


def parse_decimal(text: str) -> Decimal | None:
    """Read the decimal of a text with all its places; None if it is no number or too large. No exponents."""
    match = _pattern(*_separators(None)).fullmatch(text.strip(_WHITE))
    if match is None or match["exponent"]:
        return None
    plain = _plain(match, None)
    if plain is None or len(plain) > _MAX_DIGITS:
        return None
    return fit_decimal(Decimal(plain))


def _special(text: str, infinity: str) -> float | None:
    sign, word = (text[0], text[1:]) if text[:1] in {"-", "+"} else ("", text)
    if word == "nan":
        return nan
    if word == infinity:
        return -inf if sign == "-" else inf
    return None


def _plain(match: re.Match[str], locale: str | None) -> str | None:
    """Sign, digits and point as Python reads them; None if there is no digit, or a sign on both sides."""
    before, whole, fraction, after = (match[name] or "" for name in ("before", "whole", "fraction", "after"))
    if not (whole or fraction) or (before and after):
        return None
    _, groups = _separators(locale)
    digits = translated(whole, {ord(group): None for group in groups})
    return f"{before or after}{digits or '0'}.{fraction}" if fraction else f"{before or after}{digits}"


def _separators(locale: str | None) -> tuple[str, str]:
    """The decimal point of a culture, and the characters that may separate its thousands."""
    if not locale:
        return ".", ","
    from loom.expressions.dotnet.cultures import culture_of

    numbers = culture_of(locale).numbers
    return numbers.decimal, _SPACES if numbers.group in _SPACES else numbers.group


@lru_cache(maxsize=64)
def _pattern(point: str, groups: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<before>[+-]?)(?P<whole>[0-9][0-9{re.escape(groups)}]*)?(?:{re.escape(point)}(?P<fraction>[0-9]*))?"
        r"(?P<exponent>[eE][+-]?[0-9]{1,9})?(?:[ \t-\r]*(?P<after>[+-]))?"
    )

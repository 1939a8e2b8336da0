"""Writing numbers in .NET's custom formats, such as `#,##0.00;(#,##0.00);zero`. Pure.

May import `cultures`, `tokens` and `errors`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from itertools import chain, repeat
from typing import TYPE_CHECKING

from loom.expressions.dotnet.tokens import check_format
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from loom.expressions.dotnet.cultures import NumberSymbols

# What .NET takes of a double in a custom format.
_DOUBLE_DIGITS = Context(prec=15, rounding=ROUND_HALF_UP)
_EXACT = Context(prec=2_500, rounding=ROUND_HALF_UP)

_PARTS = re.compile(
    r"(?P<literal>\\.|\\$|'[^']*'?|\"[^\"]*\"?)"
    r"|(?P<exponent>[Ee][+-]?0+)|(?P<digit>[0#])|(?P<point>\.)|(?P<comma>,)|(?P<end>;)|(?P<other>.)",
    re.DOTALL,
)


@dataclass(slots=True)
class _Section:
    """One section of a format, cut into its parts."""

    parts: list[tuple[str, str]] = field(default_factory=list)
    """(kind, text): digit, point, literal or exponent."""
    whole: str = ""
    """The placeholders before the point."""
    fraction: str = ""
    """Those after it."""
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


def format_custom(value: int | float | Decimal, fmt: str, symbols: NumberSymbols) -> str:
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
    """What each placeholder before the point writes: one digit, and the first also all that have none of their own."""
    digits = _with_separators(whole, separator, sizes)
    spare = len(digits) - count
    if spare <= 0 or not count:
        return [""] * -spare + digits if count else []
    return ["".join(digits[: spare + 1]), *digits[spare + 1 :]]


def _exponent_text(text: str, exponent: int, symbols: NumberSymbols) -> str:
    sign = symbols.minus if exponent < 0 else (symbols.plus if "+" in text else "")
    return f"{text[0]}{sign}{str(abs(exponent)).zfill(text.count('0'))}"


def _breaks(length: int, sizes: tuple[int, ...]) -> set[int]:
    """How many digits follow each group separator; the last size repeats, and 0 ends the grouping."""
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
    """The digits, some with a group separator behind."""
    breaks = _breaks(len(whole), sizes)
    return [digit + (separator if len(whole) - at - 1 in breaks else "") for at, digit in enumerate(whole)]


def grouped(whole: str, separator: str, sizes: tuple[int, ...]) -> str:
    """Digits with group separators."""
    return "".join(_with_separators(whole, separator, sizes))

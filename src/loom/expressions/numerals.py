"""Numbers that are written as text, as .NET reads them in a culture. Pure.

May import `values`, and `dotnet` for a culture that somebody asks for. Thousands separators may stand anywhere after
the first digit; white space may be around the number, and a sign behind it where that is allowed.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal
from functools import lru_cache
from math import inf, nan

from loom.expressions.casing import translated
from loom.expressions.values import DECIMAL_MAX

_WHITE = " \t\n\v\f\r"
_SPACES = " \xa0\u202f"
_MAX_SCALE = 28
# Enough digits for every text that is short enough to be worth reading.
_WIDE = Context(prec=2000, Emax=999_999, Emin=-999_999)
_MAX_DIGITS = 1000


def parse_float(text: str, locale: str | None = None, *, trailing_sign: bool = True) -> float | None:
    """The float that a text stands for, None if it is no number. Too large a number is infinite.

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
    """The decimal that a text stands for, with all its places; None if it is no number or too large. No exponents."""
    match = _pattern(*_separators(None)).fullmatch(text.strip(_WHITE))
    if match is None or match["exponent"]:
        return None
    plain = _plain(match, None)
    if plain is None or len(plain) > _MAX_DIGITS:
        return None
    return fit_decimal(Decimal(plain))


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
    from loom.expressions.dotnet.locales import culture_of

    numbers = culture_of(locale).numbers
    return numbers.decimal, _SPACES if numbers.group in _SPACES else numbers.group


@lru_cache(maxsize=64)
def _pattern(point: str, groups: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<before>[+-]?)(?P<whole>[0-9][0-9{re.escape(groups)}]*)?(?:{re.escape(point)}(?P<fraction>[0-9]*))?"
        r"(?P<exponent>[eE][+-]?[0-9]{1,9})?(?:[ \t-\r]*(?P<after>[+-]))?"
    )

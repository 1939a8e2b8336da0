"""Cultures: names of days and months, patterns of dates, symbols of numbers. Pure but for CLDR's data files.

`culture_of` finds a culture by its name. `en-US` and the invariant culture are built in. All others come out of CLDR by
babel (the extra `locale`), which is imported when first needed. CLDR's patterns become .NET custom formats, the way
.NET reads ICU.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from loom.expressions.errors import FunctionError, not_installed
from loom.expressions.strings import remembered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from babel import Locale


class NumberSymbols(Struct, frozen=True):
    """The symbols with which a culture writes numbers.

    In the patterns, `n` is the number, `$` the currency and `%` the percent sign.
    """

    decimal: str = "."
    group: str = ","
    group_sizes: tuple[int, ...] = (3,)
    minus: str = "-"
    plus: str = "+"
    nan: str = "NaN"
    infinity: str = "Infinity"
    percent: str = "%"
    per_mille: str = "‰"
    percent_pattern: str = "n%"
    currency: str = "¤"
    currency_decimal: str = "."
    currency_group: str = ","
    currency_digits: int = 2
    currency_pattern: str = "$n"
    negative_currency_pattern: str = "-$n"


class Culture(Struct, frozen=True):
    """The names, symbols and patterns (.NET custom formats) with which a culture writes dates and numbers."""

    name: str
    months: tuple[str, ...]
    short_months: tuple[str, ...]
    days: tuple[str, ...]
    """From Sunday."""
    short_days: tuple[str, ...]
    am: str
    pm: str
    era: str
    short_date: str
    long_date: str
    short_time: str
    long_time: str
    month_day: str
    year_month: str
    genitive_months: tuple[str, ...]
    """The names of months beside a day."""
    short_genitive_months: tuple[str, ...]
    date_separator: str = "/"
    time_separator: str = ":"
    numbers: NumberSymbols = NumberSymbols()


@remembered(64)
def culture_of(name: str) -> Culture:
    """The culture of a name such as `fr-FR`, in any case; the empty name is the invariant culture."""
    key = name.strip().replace("_", "-").lower()
    if key in ("", "iv"):
        return INVARIANT
    if key in ("en-us", "en"):
        return EN_US

    return _culture_from_cldr(key)


# --- built in ---------------------------------------------------------------------------------------------------------

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_SHORT_MONTHS = tuple(name[:3] for name in _MONTHS)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
INVARIANT = Culture(
    name="",
    months=_MONTHS,
    short_months=_SHORT_MONTHS,
    days=_DAYS,
    short_days=tuple(name[:3] for name in _DAYS),
    am="AM",
    pm="PM",
    era="A.D.",
    short_date="MM/dd/yyyy",
    long_date="dddd, dd MMMM yyyy",
    short_time="HH:mm",
    long_time="HH:mm:ss",
    month_day="MMMM dd",
    year_month="yyyy MMMM",
    genitive_months=_MONTHS,
    short_genitive_months=_SHORT_MONTHS,
    numbers=NumberSymbols(percent_pattern="n %", currency_pattern="$n", negative_currency_pattern="($n)"),
)
EN_US = Culture(
    name="en-US",
    months=_MONTHS,
    short_months=_SHORT_MONTHS,
    days=_DAYS,
    short_days=INVARIANT.short_days,
    am="AM",
    pm="PM",
    era="A.D.",
    short_date="M/d/yyyy",
    long_date="dddd, MMMM d, yyyy",
    short_time="h:mm tt",
    long_time="h:mm:ss tt",
    month_day="MMMM d",
    year_month="MMMM yyyy",
    genitive_months=_MONTHS,
    short_genitive_months=_SHORT_MONTHS,
    numbers=NumberSymbols(currency="$", infinity="∞"),
)


# --- out of CLDR ------------------------------------------------------------------------------------------------------


def _culture_from_cldr(name: str) -> Culture:
    """The culture of a name such as `fr-FR`."""
    locale = _locale(name)
    data = _data(locale)
    short_date = re.sub(r"(?<!y)yy(?!y)", "yyyy", _pattern(data["date_formats"]["short"].pattern))
    long_time = _pattern(data["time_formats"]["medium"].pattern)
    months, days, periods = data["months"], data["days"]["format"], data["day_periods"]["format"]["wide"]
    skeletons = data["datetime_skeletons"]
    return Culture(
        name=str(locale).replace("_", "-"),
        months=_months(months["stand-alone"]["wide"]),
        short_months=_months(months["stand-alone"]["abbreviated"]),
        days=_days(days["wide"]),
        short_days=_days(days["abbreviated"]),
        am=periods.get("am", "AM"),
        pm=periods.get("pm", "PM"),
        era=data["eras"]["abbreviated"][1],
        short_date=short_date,
        long_date=_pattern(data["date_formats"]["full"].pattern),
        short_time=_pattern(data["time_formats"]["short"].pattern),
        long_time=long_time,
        month_day=_pattern(skeletons["MMMMd"].pattern) if "MMMMd" in skeletons else "MMMM d",
        year_month=_pattern(skeletons["yMMMM"].pattern) if "yMMMM" in skeletons else "MMMM yyyy",
        genitive_months=_months(months["format"]["wide"]),
        short_genitive_months=_months(months["format"]["abbreviated"]),
        date_separator=_separator(short_date, "/"),
        time_separator=_separator(long_time, ":"),
        numbers=_numbers(locale, data),
    )


def _locale(name: str) -> Locale:
    try:
        from babel import Locale, UnknownLocaleError
    except ImportError:
        raise not_installed(f"the culture {name!r}", "locale") from None
    try:
        return Locale.parse(name.strip(), sep="-")
    except (UnknownLocaleError, ValueError, TypeError):
        raise FunctionError(f"there is no culture {name!r}; use a name such as 'en-US' or 'fr-FR'") from None


_CLDR_TABLES = (
    *("months", "days", "day_periods", "eras", "date_formats", "time_formats", "datetime_skeletons"),
    *("number_symbols", "default_numbering_system", "decimal_formats", "percent_formats", "currency_formats"),
)


def _data(locale: Locale) -> Mapping[str, Any]:
    """The locale's tables, in a copy: babel notes what an alias leads to in tables that other locales share."""
    from babel.localedata import LocaleDataDict, load

    tables = load(str(locale))
    return LocaleDataDict({name: deepcopy(tables[name]) for name in _CLDR_TABLES})


def _months(names: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(names[month] for month in range(1, 13))


def _days(names: Mapping[int, str]) -> tuple[str, ...]:
    """List the names of days from Sunday; CLDR's Python tables count from Monday."""
    return tuple(names[day] for day in (6, 0, 1, 2, 3, 4, 5))


_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_LETTERS = {"L": "M", "a": "tt", "b": "tt", "B": "tt", "k": "H", "K": "h", "S": "f", "G": "g", "y": "yyyy", "u": "yyyy"}
_LONG_NAME = 4


def _pattern(cldr: str) -> str:
    """The .NET custom format of a CLDR pattern."""
    out = []
    for part in _PARTS.finditer(cldr.replace("\u202f", " ")):
        run, letter = part.group(), part.group(2)
        if letter is None:
            out.append(_literal(part.group(1).replace("''", "'") or "'" if run[0] == "'" else run))
        elif letter in "Ec":
            out.append("dddd" if len(run) == _LONG_NAME else "ddd")
        elif run in ("yy", "M", "MM", "MMM", "MMMM", "d", "dd", "h", "hh", "H", "HH", "m", "mm", "s", "ss"):
            out.append(run)
        else:
            replacement = _LETTERS.get(letter, "")
            out.append(replacement if len(replacement) > 1 else replacement * len(run))
    return "".join(out)


def _literal(text: str) -> str:
    """Literal text, in quotes if it could be taken for anything else."""
    if any(char.isalpha() or char in "'\"\\%" for char in text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text


def _separator(pattern: str, default: str) -> str:
    """Find the separator between the first two parts of a pattern."""
    match = re.match(r"[^A-Za-z]*(?:tt\s*)?[A-Za-z]+([^A-Za-z\s']+\s*)[A-Za-z]", pattern)
    return match.group(1) if match else default


def _numbers(locale: Locale, data: Mapping[str, Any]) -> NumberSymbols:
    systems = data["number_symbols"]
    symbols = systems["latn" if "latn" in systems else data["default_numbering_system"]]
    currency, digits = _currency(locale)
    positive, _, negative = data["currency_formats"]["standard"].pattern.partition(";")
    pattern = _number_pattern(positive)
    return NumberSymbols(
        decimal=symbols["decimal"],
        group=symbols["group"],
        group_sizes=_group_sizes(data["decimal_formats"][None].pattern),
        minus=symbols.get("minusSign", "-"),
        plus=symbols.get("plusSign", "+"),
        nan=symbols.get("nan", "NaN"),
        infinity=symbols.get("infinity", "∞"),
        percent=symbols.get("percentSign", "%"),
        per_mille=symbols.get("perMille", "‰"),
        percent_pattern=_number_pattern(data["percent_formats"][None].pattern),
        currency=currency,
        currency_decimal=symbols.get("currencyDecimal", symbols["decimal"]),
        currency_group=symbols.get("currencyGroup", symbols["group"]),
        currency_digits=digits,
        currency_pattern=pattern,
        negative_currency_pattern=_number_pattern(negative) if negative else f"-{pattern}",
    )


def _currency(locale: Locale) -> tuple[str, int]:
    """The symbol of the money of the land, and the usual number of its digits."""
    from babel.core import get_global
    from babel.numbers import get_currency_precision, get_currency_symbol, get_territory_currencies

    territory = locale.territory
    if territory is None:
        territory = str(get_global("likely_subtags").get(str(locale), "")).rpartition("_")[2]
    codes = get_territory_currencies(territory) if territory else []
    if not codes:
        return "¤", 2
    return get_currency_symbol(codes[0], locale), get_currency_precision(codes[0])


def _number_pattern(cldr: str) -> str:
    """`$n`, `n %` and their like of a CLDR number pattern."""
    return re.sub(r"[#0][#0,.]*", "n", cldr, count=1).replace("¤", "$").replace("'", "")


def _group_sizes(cldr: str) -> tuple[int, ...]:
    groups = cldr.partition(";")[0].partition(".")[0].split(",")[1:]
    return tuple(len(group) for group in reversed(groups)) or (0,)

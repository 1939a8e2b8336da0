"""Cultures: names of days and months, patterns and number symbols. Pure; imports nothing of Loom.

`en-US` and the invariant culture are built in here; `locales` finds a culture by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NumberSymbols:
    """How a culture writes numbers. In the patterns, `n` is the number, `$` the currency and `%` the percent sign."""

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


@dataclass(frozen=True, slots=True)
class Culture:
    """How a culture writes dates and numbers. The patterns are .NET custom formats."""

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
    numbers: NumberSymbols = field(default_factory=NumberSymbols)


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

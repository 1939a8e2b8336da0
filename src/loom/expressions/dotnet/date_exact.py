"""Reading dates in a given .NET format. Pure; may import the other modules of `dotnet`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom.expressions.dotnet.date_format import (
    ABBREVIATED,
    LETTERS,
    MAX_FRACTION_DIGITS,
    NUMERIC,
    RFC1123,
    UNIVERSAL,
    custom_pattern,
)
from loom.expressions.dotnet.timestamps import Timestamp, full_year, in_utc, ticks_of, ticks_of_time
from loom.expressions.dotnet.tokens import Token, tokens_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.expressions.dotnet.cultures import Culture


def parse_exact(text: str, fmt: str, culture: Culture) -> Timestamp:
    """The timestamp of a text that must be in the format, letter by letter; names in any case."""
    try:
        moment = read_in_format(text, fmt or "o", culture)
    except ValueError as error:
        raise FunctionError(f"the value {text[:200]!r} of its argument 'value' is no timestamp: {error}") from None
    if moment is None:
        raise FunctionError(f"the value {text[:200]!r} of its argument 'value' is not in the format {fmt!r}")
    return moment


def read_in_format(text: str, fmt: str, culture: Culture) -> Timestamp | None:
    """The same; None if the text is not in the format, ValueError if there is no such day or time."""
    pattern, culture = custom_pattern(fmt, culture)
    regex, fields = _regex_of(pattern, culture)
    match = re.fullmatch(regex, text, re.IGNORECASE)
    if match is None:
        return None
    found = {field: value for field, value in zip(fields, match.groups(), strict=True) if value}
    return _timestamp(found, culture, in_zone=pattern in (RFC1123, UNIVERSAL))


def _regex_of(pattern: str, culture: Culture) -> tuple[str, list[str]]:
    """A regular expression of one group per field. No field comes twice, so it never has much to try."""
    parts: list[str] = []
    fields: list[str] = []
    for token in tokens_of(pattern, LETTERS):
        if token.letter in ("", ":", "/"):
            separator = {":": culture.time_separator, "/": culture.date_separator}.get(token.letter)
            parts.append(re.escape(token.text if separator is None else separator * token.length))
            continue
        field, expression = _FIELDS[token.letter](token, culture)
        if field in fields:
            raise FunctionError(f"the format {pattern!r} has {token.letter!r} twice")
        fields.append(field)
        parts.append(f"({expression})")
    return "".join(parts), fields


def _number(token: Token) -> str:
    return "[0-9]{1,2}" if token.length == 1 else "[0-9]{2}"


def _one_of(names: Sequence[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(set(names), key=len, reverse=True) if name)


def _day(token: Token, culture: Culture) -> tuple[str, str]:
    if token.length <= NUMERIC:
        return "day", _number(token)
    return "weekday", _one_of(culture.short_days if token.length == ABBREVIATED else culture.days)


def _month(token: Token, culture: Culture) -> tuple[str, str]:
    if token.length <= NUMERIC:
        return "month", _number(token)
    if token.length == ABBREVIATED:
        return "month", _one_of(culture.short_months + culture.short_genitive_months)
    return "month", _one_of(culture.months + culture.genitive_months)


def _year(token: Token, _: Culture) -> tuple[str, str]:
    return "year", _number(token) if token.length <= NUMERIC else f"[0-9]{{{min(token.length, 9)}}}"


def _fraction(token: Token, _: Culture) -> tuple[str, str]:
    least = token.length if token.letter == "f" else 0
    if token.length > MAX_FRACTION_DIGITS:
        raise FunctionError("a date format has at most seven digits of a second")
    return "fraction", f"[0-9]{{{least},{token.length}}}"


_FIELDS: dict[str, Callable[[Token, Culture], tuple[str, str]]] = {
    "d": _day,
    "M": _month,
    "y": _year,
    "f": _fraction,
    "F": _fraction,
    "h": lambda token, _: ("hour12", _number(token)),
    "H": lambda token, _: ("hour", _number(token)),
    "m": lambda token, _: ("minute", _number(token)),
    "s": lambda token, _: ("second", _number(token)),
    "t": lambda token, culture: (
        "period",
        _one_of([culture.am, culture.pm] if token.length > 1 else [culture.am[:1], culture.pm[:1]]),
    ),
    "g": lambda _token, culture: ("era", _one_of([culture.era])),
    "K": lambda _token, _culture: ("zone", r"Z|[+-][0-9]{2}:[0-9]{2}|"),
    "z": lambda token, _: (
        "zone",
        (r"[+-][0-9]{1,2}", r"[+-][0-9]{2}", r"[+-][0-9]{2}:[0-9]{2}")[min(token.length, 3) - 1],
    ),
}


def _timestamp(found: dict[str, str], culture: Culture, in_zone: bool) -> Timestamp:
    if "year" not in found:
        raise ValueError("the format has no year")
    hour = int(found.get("hour", "0"))
    if "hour12" in found:
        hour = _hour_of_day(int(found["hour12"]), found.get("period", ""), culture)
    time = ticks_of_time(hour, int(found.get("minute", 0)), int(found.get("second", 0)), found.get("fraction", ""))
    day = int(found.get("day", 1))
    ticks = ticks_of(full_year(found["year"]), _month_number(found.get("month", "1"), culture), day, time)
    weekday = culture.days[Timestamp(ticks, utc=False).day.isoweekday() % 7]
    if "weekday" in found and not _is_short_for(found["weekday"], weekday, culture):
        raise ValueError(f"that day is a {weekday}")
    return in_utc(ticks, "Z" if in_zone else found.get("zone"))


def _is_short_for(name: str, weekday: str, culture: Culture) -> bool:
    short = culture.short_days[culture.days.index(weekday)]
    return name.casefold() in (weekday.casefold(), short.casefold())


def _hour_of_day(hour: int, period: str, culture: Culture) -> int:
    if not 1 <= hour <= 12:  # noqa: PLR2004
        raise ValueError(f"{hour} is no hour of twelve")
    afternoon = period != "" and culture.pm.casefold().startswith(period.casefold())
    return hour % 12 + (12 if afternoon else 0)


def _month_number(text: str, culture: Culture) -> int:
    if text.isdigit():
        return int(text)
    name = text.casefold()
    for months in (culture.months, culture.genitive_months, culture.short_months, culture.short_genitive_months):
        for number, month in enumerate(months, 1):
            if month.casefold() == name:
                return number
    raise ValueError(f"{text!r} is no month")

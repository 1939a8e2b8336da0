"""Dates as text in .NET's formats: written, read in a given format, and read as people of a culture write them. Pure.

The free reader takes the time and the names of month and day out of the text. It arranges the numbers that are left in
the order of the culture. It refuses a text without a year: only a clock knows what year it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from loom.expressions.dotnet.cultures import EN_US, INVARIANT, Culture
from loom.expressions.dotnet.timestamps import (
    Timestamp,
    full_year,
    in_utc,
    parse_iso,
    round_trip_text,
    ticks_of,
    ticks_of_time,
)
from loom.expressions.dotnet.tokens import Token, tokens_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# --- formats ----------------------------------------------------------------------------------------------------------

_LETTERS = "dfFghHKmMstyz:/"
_NUMERIC, _ABBREVIATED = 2, 3
"""Up to two letters are a number, three a short name, more a long one."""
_MAX_FRACTION_DIGITS = 7
_RFC1123 = "ddd, dd MMM yyyy HH':'mm':'ss 'GMT'"
_SORTABLE = "yyyy'-'MM'-'dd'T'HH':'mm':'ss"
_UNIVERSAL = "yyyy'-'MM'-'dd HH':'mm':'ss'Z'"
_ROUND_TRIP = "yyyy'-'MM'-'dd'T'HH':'mm':'ss'.'fffffffK"
_FIXED = {"r": _RFC1123, "R": _RFC1123, "s": _SORTABLE, "u": _UNIVERSAL, "o": _ROUND_TRIP, "O": _ROUND_TRIP}
_OF_CULTURE: dict[str, Callable[[Culture], str]] = {
    "d": lambda culture: culture.short_date,
    "D": lambda culture: culture.long_date,
    "f": lambda culture: f"{culture.long_date} {culture.short_time}",
    "F": lambda culture: f"{culture.long_date} {culture.long_time}",
    "U": lambda culture: f"{culture.long_date} {culture.long_time}",
    "g": lambda culture: f"{culture.short_date} {culture.short_time}",
    "G": lambda culture: f"{culture.short_date} {culture.long_time}",
    "m": lambda culture: culture.month_day,
    "M": lambda culture: culture.month_day,
    "t": lambda culture: culture.short_time,
    "T": lambda culture: culture.long_time,
    "y": lambda culture: culture.year_month,
    "Y": lambda culture: culture.year_month,
}


def _custom_pattern(fmt: str, culture: Culture) -> tuple[str, Culture]:
    """The custom pattern that a format means, and the culture to write it in: one character is a standard format."""
    if len(fmt) != 1:
        return fmt, culture
    if fmt in _FIXED:
        return _FIXED[fmt], INVARIANT
    if fmt in _OF_CULTURE:
        return _OF_CULTURE[fmt](culture), culture
    raise FunctionError(
        f"there is no date format {fmt!r}; a single letter is one of d D f F g G M o R s t T u U y, "
        f"and '%{fmt}' is the custom format of one letter"
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def format_timestamp(moment: Timestamp, fmt: str, culture: Culture) -> str:
    """The text of a timestamp in a standard or custom format; an empty format is `o`."""
    if fmt in ("", "o", "O"):
        return round_trip_text(moment)
    pattern, culture = _custom_pattern(fmt, culture)
    tokens = list(tokens_of(pattern, _LETTERS))
    out: list[str] = []
    for index, token in enumerate(tokens):
        if token.letter == "":
            out.append(token.text)
        elif token.letter == "F":
            _append_trimmed_fraction(out, moment, token)
        elif token.letter == "M":
            out.append(_write_month(moment, token.length, culture, tokens, index))
        else:
            out.append(_DATE_WRITERS[token.letter](moment, token.length, culture))
    return "".join(out)


def _append_trimmed_fraction(out: list[str], moment: Timestamp, token: Token) -> None:
    digits = _write_fraction(moment, token.length).rstrip("0")
    if digits:
        out.append(digits)
    elif out and out[-1] == ".":
        out.pop()


def _write_month(moment: Timestamp, count: int, culture: Culture, tokens: Sequence[Token], index: int) -> str:
    month = moment.day.month
    if count <= _NUMERIC:
        return f"{month:0{count}}"
    # Beside the number of a day, some languages write the month in the genitive.
    of_day = any(token.letter == "d" and token.length <= _NUMERIC for token in _neighbours(tokens, index))
    if count == _ABBREVIATED:
        return (culture.short_genitive_months if of_day else culture.short_months)[month - 1]
    return (culture.genitive_months if of_day else culture.months)[month - 1]


def _neighbours(tokens: Sequence[Token], index: int) -> list[Token]:
    """The tokens with letters right before and after one."""
    before = next((token for token in reversed(tokens[:index]) if token.letter), None)
    after = next((token for token in tokens[index + 1 :] if token.letter), None)
    return [token for token in (before, after) if token is not None]


def _write_day(moment: Timestamp, count: int, culture: Culture) -> str:
    if count <= _NUMERIC:
        return f"{moment.day.day:0{count}}"
    weekday = moment.day.isoweekday() % 7
    return (culture.short_days if count == _ABBREVIATED else culture.days)[weekday]


def _write_fraction(moment: Timestamp, count: int, _: Culture | None = None) -> str:
    if count > _MAX_FRACTION_DIGITS:
        raise FunctionError("a date format has at most seven digits of a second")
    return f"{moment.fraction:07}"[:count]


def _write_year(moment: Timestamp, count: int, _: Culture) -> str:
    year = moment.day.year
    return f"{year % 100:0{count}}" if count <= _NUMERIC else f"{year:0{count}}"


_NOON = 12


def _write_period(moment: Timestamp, count: int, culture: Culture) -> str:
    period = culture.am if moment.hour < _NOON else culture.pm
    return period[:1] if count == 1 else period


def _two(value: int, count: int) -> str:
    return f"{value:0{min(count, 2)}}"


_DATE_WRITERS: dict[str, Callable[[Timestamp, int, Culture], str]] = {
    "d": _write_day,
    "f": _write_fraction,
    "g": lambda _moment, _count, culture: culture.era,
    "h": lambda moment, count, _: _two((moment.hour + 11) % 12 + 1, count),
    "H": lambda moment, count, _: _two(moment.hour, count),
    "K": lambda moment, count, _: "Z" * count if moment.utc else "",
    "m": lambda moment, count, _: _two(moment.minute, count),
    "s": lambda moment, count, _: _two(moment.second, count),
    "t": _write_period,
    "y": _write_year,
    # Timestamps are in UTC or in no zone, and then .NET takes the zone of the host, which is UTC here.
    "z": lambda _moment, count, _: ("+0", "+00", "+00:00")[min(count, 3) - 1],
    ":": lambda _moment, count, culture: culture.time_separator * count,
    "/": lambda _moment, count, culture: culture.date_separator * count,
}


# --- reading in a given format ----------------------------------------------------------------------------------------


def parse_exact(text: str, fmt: str, culture: Culture) -> Timestamp:
    """The timestamp of a text that must be in the format, letter by letter; names in any case."""
    try:
        moment = _read_in_format(text, fmt or "o", culture)
    except ValueError as error:
        raise FunctionError(f"the value {text[:200]!r} of its argument 'value' is no timestamp: {error}") from None
    if moment is None:
        raise FunctionError(f"the value {text[:200]!r} of its argument 'value' is not in the format {fmt!r}")
    return moment


def _read_in_format(text: str, fmt: str, culture: Culture) -> Timestamp | None:
    """Read a text in a format; None if it is not in the format, ValueError if there is no such day or time."""
    pattern, culture = _custom_pattern(fmt, culture)
    regex, fields = _regex_of(pattern, culture)
    match = re.fullmatch(regex, text, re.IGNORECASE)
    if match is None:
        return None
    found = {field: value for field, value in zip(fields, match.groups(), strict=True) if value}
    return _timestamp(found, culture, in_zone=pattern in (_RFC1123, _UNIVERSAL))


def _regex_of(pattern: str, culture: Culture) -> tuple[str, list[str]]:
    """A regular expression of one group per field. No field comes twice, so it never has much to try."""
    parts: list[str] = []
    fields: list[str] = []
    for token in tokens_of(pattern, _LETTERS):
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


def _match_number(token: Token) -> str:
    return "[0-9]{1,2}" if token.length == 1 else "[0-9]{2}"


def _one_of(names: Sequence[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(set(names), key=len, reverse=True) if name)


def _match_day(token: Token, culture: Culture) -> tuple[str, str]:
    if token.length <= _NUMERIC:
        return "day", _match_number(token)
    return "weekday", _one_of(culture.short_days if token.length == _ABBREVIATED else culture.days)


def _match_month(token: Token, culture: Culture) -> tuple[str, str]:
    if token.length <= _NUMERIC:
        return "month", _match_number(token)
    if token.length == _ABBREVIATED:
        return "month", _one_of(culture.short_months + culture.short_genitive_months)
    return "month", _one_of(culture.months + culture.genitive_months)


def _match_year(token: Token, _: Culture) -> tuple[str, str]:
    return "year", _match_number(token) if token.length <= _NUMERIC else f"[0-9]{{{min(token.length, 9)}}}"


def _match_fraction(token: Token, _: Culture) -> tuple[str, str]:
    least = token.length if token.letter == "f" else 0
    if token.length > _MAX_FRACTION_DIGITS:
        raise FunctionError("a date format has at most seven digits of a second")
    return "fraction", f"[0-9]{{{least},{token.length}}}"


_FIELDS: dict[str, Callable[[Token, Culture], tuple[str, str]]] = {
    "d": _match_day,
    "M": _match_month,
    "y": _match_year,
    "f": _match_fraction,
    "F": _match_fraction,
    "h": lambda token, _: ("hour12", _match_number(token)),
    "H": lambda token, _: ("hour", _match_number(token)),
    "m": lambda token, _: ("minute", _match_number(token)),
    "s": lambda token, _: ("second", _match_number(token)),
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


# --- reading what people of a culture write ---------------------------------------------------------------------------

_LONGEST_TEXT = 200
_TIME = re.compile(
    r"(?<!\d)(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,30}))?)?(?!\d)\s*"
    r"([ap]\.?m\.?(?![a-z]))?\s*(z(?![a-z])|gmt|utc|[+-]\d{1,2}:?\d{2})?",
    re.ASCII,
)
_SEPARATORS = re.compile(r"[\s,./\-'\u200e\u200f،年月日년월일]*")


def parse_timestamp(text: str, name: str = "timestamp") -> Timestamp:
    """The timestamp of a text in ISO 8601 or in the invariant culture's forms, `MM/dd/yyyy HH:mm:ss` among them."""
    return parse_date_text(text, INVARIANT, name)


def parse_date_text(text: str, culture: Culture, name: str = "timestamp") -> Timestamp:
    """The timestamp of a text in ISO 8601 or as a culture writes dates."""
    try:
        return parse_iso(text) or _parse_form(text, culture) or _parse_words(text, culture)
    except ValueError as error:
        shown = text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
        raise FunctionError(f"the value {shown!r} of its argument '{name}' is no timestamp: {error}") from None


def _parse_form(text: str, culture: Culture) -> Timestamp | None:
    """The timestamp of a text in one of the culture's own patterns, if it is; the built-in ones need no such help."""
    if culture in (INVARIANT, EN_US) or len(text) > _LONGEST_TEXT:
        return None
    return next((moment for form in "dDGFgfy" if (moment := _read_in_format(text, form, culture))), None)


def _parse_words(text: str, culture: Culture) -> Timestamp:
    if len(text) > _LONGEST_TEXT:
        raise ValueError("it is too long")
    rest = text.casefold()
    for period, sign in ((culture.am, "am"), (culture.pm, "pm")):
        rest = re.sub(rf"(?<!\w){re.escape(period.casefold())}(?!\w)", sign, rest) if period else rest
    rest, time, zone = _take_time(rest)
    rest, month = _take_name(rest, _month_names(culture))
    rest, weekday = _take_name(rest, _day_names(culture))
    for word in _filler_words(culture):
        rest = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", " ", rest)
    numbers = re.findall(r"[0-9]+", rest)
    if not _SEPARATORS.fullmatch(re.sub(r"[0-9]+", " ", rest)):
        raise ValueError("expected ISO 8601 or a date such as '03/15/2018 12:00'")
    year, month, day = _arranged(numbers, month, culture)
    ticks = ticks_of(year, month, day, time)
    if weekday is not None and Timestamp(ticks, utc=False).day.isoweekday() % 7 != weekday - 1:
        raise ValueError(f"that day is no {culture.days[weekday - 1]}")
    return in_utc(ticks, zone)


def _take_time(text: str) -> tuple[str, int, str | None]:
    """The text without its time of day; the ticks of it; and its zone as `Z` or an offset."""
    match = _TIME.search(text)
    if match is None:
        return text, 0, None
    hour, minute, second, fraction, period, zone = match.groups()
    hours = int(hour)
    if period:
        if not 1 <= hours <= 12:  # noqa: PLR2004
            raise ValueError(f"{hours} is no hour with {period!r}")
        hours = hours % 12 + (12 if period.startswith("p") else 0)
    time = ticks_of_time(hours, int(minute), int(second or 0), fraction or "")
    before = re.sub(r"(?<=\d)t$", " ", text[: match.start()])
    return f"{before} {text[match.end() :]}", time, "Z" if zone in ("z", "gmt", "utc") else zone


_Names = tuple[tuple[re.Pattern[str], int], ...]
"""Patterns of names, the longest first, and the place of each in its list, from 1."""


@lru_cache(maxsize=16)
def _month_names(culture: Culture) -> _Names:
    bare = tuple(name.rstrip(".") for name in culture.short_genitive_months)
    lists = (culture.months, culture.genitive_months, culture.short_months, culture.short_genitive_months, bare)
    return _names_of(lists)


@lru_cache(maxsize=16)
def _day_names(culture: Culture) -> _Names:
    return _names_of((culture.days, culture.short_days))


def _names_of(lists: Sequence[Sequence[str]]) -> _Names:
    # A name that begins with a digit is a number to us: `2月`.
    places = {name.casefold(): place for names in lists for place, name in enumerate(names, 1) if name[:1].isalpha()}
    longest_first = sorted(places.items(), key=lambda entry: -len(entry[0]))
    return tuple((re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), place) for name, place in longest_first)


def _take_name(text: str, names: _Names) -> tuple[str, int | None]:
    """The text without the longest of the names that is in it, and the place of that name."""
    for pattern, place in names:
        match = pattern.search(text)
        if match:
            return f"{text[: match.start()]} {text[match.end() :]}", place
    return text, None


@lru_cache(maxsize=16)
def _filler_words(culture: Culture) -> list[str]:
    """List the words in the culture's own patterns beside letters, such as the `de` of `20 de octubre de 2010`."""
    patterns = (culture.long_date, culture.month_day, culture.year_month, culture.short_date)
    literals = (token.text for pattern in patterns for token in tokens_of(pattern, _LETTERS) if token.letter == "")
    words = {word for literal in literals for word in literal.casefold().split()}
    return sorted((word for word in words if any(char.isalpha() for char in word)), key=len, reverse=True)


def _arranged(numbers: list[str], month: int | None, culture: Culture) -> tuple[int, int, int]:
    """Year, month and day of the numbers, in the culture's order unless a year of four digits comes first."""
    order = [letter for letter in dict.fromkeys(culture.short_date) if letter in "yMd"]
    if month is not None:
        order.remove("M")
    found: dict[str, str] = {}
    if len(numbers) == 1 and month is not None and len(numbers[0]) > 2:  # noqa: PLR2004
        found = {"y": numbers[0], "d": "1"}
    elif len(numbers) == len(order):
        if len(numbers[0]) > 2:  # noqa: PLR2004
            order = [letter for letter in "yMd" if letter in order]
        elif len(numbers[-1]) > 2:  # noqa: PLR2004
            order = [letter for letter in order if letter != "y"] + ["y"]
        found = dict(zip(order, numbers, strict=True))
    if not found:
        raise ValueError("expected a year, a month and a day")
    return full_year(found["y"]), month or int(found["M"]), int(found["d"])

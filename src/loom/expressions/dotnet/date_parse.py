"""Reading dates as people of a culture write them. Pure; may import the other modules of `dotnet`.

The reader takes what it knows out of the text, the time, the names of month and day, and arranges the numbers that
are left in the order of the culture. A text without a year is refused: what year it is, only a clock knows.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from loom.expressions.dotnet.cultures import EN_US, INVARIANT, Culture
from loom.expressions.dotnet.date_exact import read_in_format
from loom.expressions.dotnet.date_format import LETTERS
from loom.expressions.dotnet.timestamps import Timestamp, full_year, in_utc, parse_iso, ticks_of, ticks_of_time
from loom.expressions.dotnet.tokens import tokens_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return next((moment for form in "dDGFgfy" if (moment := read_in_format(text, form, culture))), None)


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


Names = tuple[tuple[re.Pattern[str], int], ...]
"""Patterns of names, the longest first, and the place of each in its list, from 1."""


@lru_cache(maxsize=16)
def _month_names(culture: Culture) -> Names:
    bare = tuple(name.rstrip(".") for name in culture.short_genitive_months)
    lists = (culture.months, culture.genitive_months, culture.short_months, culture.short_genitive_months, bare)
    return _names_of(lists)


@lru_cache(maxsize=16)
def _day_names(culture: Culture) -> Names:
    return _names_of((culture.days, culture.short_days))


def _names_of(lists: Sequence[Sequence[str]]) -> Names:
    # A name that begins with a digit is a number to us: `2月`.
    places = {name.casefold(): place for names in lists for place, name in enumerate(names, 1) if name[:1].isalpha()}
    longest_first = sorted(places.items(), key=lambda entry: -len(entry[0]))
    return tuple((re.compile(rf"(?<!\w){re.escape(name)}(?!\w)"), place) for name, place in longest_first)


def _take_name(text: str, names: Names) -> tuple[str, int | None]:
    """The text without the longest of the names that is in it, and the place of that name."""
    for pattern, place in names:
        match = pattern.search(text)
        if match:
            return f"{text[: match.start()]} {text[match.end() :]}", place
    return text, None


@lru_cache(maxsize=16)
def _filler_words(culture: Culture) -> list[str]:
    """What the culture's own patterns have beside letters, such as the `de` of `20 de octubre de 2010`."""
    patterns = (culture.long_date, culture.month_day, culture.year_month, culture.short_date)
    literals = (token.text for pattern in patterns for token in tokens_of(pattern, LETTERS) if token.letter == "")
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

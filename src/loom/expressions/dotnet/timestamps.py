"""Moments and lengths of time as .NET keeps them: timestamps, time spans and ISO 8601 durations. Pure.

A timestamp counts ticks of 100 ns since the year 1 and knows whether it is in UTC. Days and months come from the
proleptic Gregorian calendar of `datetime.date`. A time span is a number of ticks, `[-][d.]hh:mm:ss[.fffffff]` as text.
"""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from loom.expressions.dotnet.tokens import Token, tokens_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.expressions.dotnet.cultures import Culture


# --- timestamps -------------------------------------------------------------------------------------------------------

TICKS_PER_SECOND = 10_000_000
TICKS_PER_MINUTE = 60 * TICKS_PER_SECOND
TICKS_PER_HOUR = 60 * TICKS_PER_MINUTE
TICKS_PER_DAY = 24 * TICKS_PER_HOUR
MAX_TICKS = date.max.toordinal() * TICKS_PER_DAY - 1
EPOCH_TICKS = (date(1970, 1, 1).toordinal() - 1) * TICKS_PER_DAY


class Timestamp(NamedTuple):
    """A moment on the calendar. Without a zone it is what a clock showed somewhere."""

    ticks: int
    utc: bool

    @property
    def day(self) -> date:
        """The calendar day."""
        return date.fromordinal(self.ticks // TICKS_PER_DAY + 1)

    @property
    def hour(self) -> int:
        """The hour, 0 to 23."""
        return self.ticks // TICKS_PER_HOUR % 24

    @property
    def minute(self) -> int:
        """The minute, 0 to 59."""
        return self.ticks // TICKS_PER_MINUTE % 60

    @property
    def second(self) -> int:
        """The second, 0 to 59."""
        return self.ticks // TICKS_PER_SECOND % 60

    @property
    def fraction(self) -> int:
        """Ticks within the second."""
        return self.ticks % TICKS_PER_SECOND

    def plus(self, ticks: int) -> Timestamp:
        """The moment some ticks later."""
        return timestamp(self.ticks + ticks, self.utc)

    def plus_months(self, months: int) -> Timestamp:
        """The same day and time some months later; the day is clipped to the end of its month."""
        day = self.day
        index = day.year * 12 + day.month - 1 + months
        year, month = index // 12, index % 12 + 1
        if not 1 <= year <= date.max.year:
            raise FunctionError(f"{months} months from {day.isoformat()} is outside the years 1 to 9999")
        clipped = date(year, month, min(day.day, days_in_month(year, month)))
        return self._replace(ticks=(clipped.toordinal() - 1) * TICKS_PER_DAY + self.ticks % TICKS_PER_DAY)


def timestamp(ticks: int, utc: bool) -> Timestamp:
    """A timestamp, if it lies in the years 1 to 9999."""
    if not 0 <= ticks <= MAX_TICKS:
        raise FunctionError("the time is outside the years 1 to 9999")
    return Timestamp(ticks, utc)


def days_in_month(year: int, month: int) -> int:
    """The number of days in a month, 28 to 31."""
    if month == 12:  # noqa: PLR2004
        return 31
    return (date(year, month + 1, 1) - date(year, month, 1)).days


def ticks_of(year: int, month: int, day: int, time: int = 0) -> int:
    """The ticks of a calendar day and a time in it; raises ValueError if there is no such day."""
    return (date(year, month, day).toordinal() - 1) * TICKS_PER_DAY + time


def ticks_of_time(hour: int, minute: int, second: int, fraction: str = "") -> int:
    """The ticks of a time of day; raises ValueError if there is no such time. Fractions beyond 100 ns are rounded."""
    if not (hour < 24 and minute < 60 and second < 60):  # noqa: PLR2004
        raise ValueError(f"{hour:02}:{minute:02}:{second:02} is no time of day")
    whole = hour * TICKS_PER_HOUR + minute * TICKS_PER_MINUTE + second * TICKS_PER_SECOND
    return whole + (int((fraction + "0" * 8)[:8]) + 5) // 10


def full_year(digits: str) -> int:
    """The year of its digits: of two digits, one from 1950 to 2049."""
    year = int(digits)
    if len(digits) > 2:  # noqa: PLR2004
        return year
    century = _TWO_DIGIT_YEAR_MAX // 100 * 100
    return century + year - (100 if century + year > _TWO_DIGIT_YEAR_MAX else 0)


_TWO_DIGIT_YEAR_MAX = 2049


# --- timestamps as ISO 8601 text --------------------------------------------------------------------------------------


@cache
def _iso() -> re.Pattern[str]:
    """Compile the pattern of a timestamp, on first use: flows without dates need none."""
    return re.compile(
        r"\s*(\d{4})-(\d{1,2})(?:-(\d{1,2}))?"
        r"(?:([TtZz]|\s+)(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,30}))?)?)?"
        r"\s*([Zz]|[+-]\d{1,2}(?::?\d{2})?)?\s*",
        re.ASCII,
    )


def parse_iso(text: str) -> Timestamp | None:
    """The timestamp that an ISO 8601 text means, turned into UTC if it has an offset. None: the text has another form.

    Raises ValueError if it has that form, but there is no such day or time.
    """
    match = _iso().fullmatch(text)
    if match is None:
        return None
    year, month, day, between, hour, minute, second, fraction, zone = match.groups()
    time = ticks_of_time(int(hour or 0), int(minute or 0), int(second or 0), fraction or "")
    # `1970-01-01Z00:00:00` is what many people write, and .NET reads it.
    zone = zone or ("Z" if between in ("Z", "z") else None)
    return in_utc(ticks_of(int(year), int(month), int(day or 1), time), zone)


def in_utc(ticks: int, zone: str | None) -> Timestamp:
    """A clock reading with its zone as written, `Z` or an offset, in UTC. Without one it stays as it is."""
    if zone is None:
        return timestamp(ticks, utc=False)
    return timestamp(ticks - _offset_ticks(zone), utc=True)


_MAX_OFFSET = 14 * TICKS_PER_HOUR


def _offset_ticks(zone: str) -> int:
    """The ticks by which a zone such as `Z`, `+2`, `+0200` or `-08:00` is ahead of UTC; ValueError beyond 14 hours."""
    if zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) <= 2 else (digits[:-2], digits[-2:])  # noqa: PLR2004
    ahead = int(hours) * TICKS_PER_HOUR + int(minutes) * TICKS_PER_MINUTE
    if ahead > _MAX_OFFSET or int(minutes) > 59:  # noqa: PLR2004
        raise ValueError(f"{zone} is no offset from UTC")
    return -ahead if zone[0] == "-" else ahead


def timestamp_text(seconds_since_epoch: float) -> str:
    """The timestamp of an instant, with seven digits and `Z`: `2026-01-02T03:04:05.0000000Z`."""
    # Whole microseconds: a float of today's date holds no more, and the rest would be noise.
    ticks = EPOCH_TICKS + round(seconds_since_epoch * 1_000_000) * 10
    return round_trip_text(timestamp(ticks, utc=True))


def epoch_seconds(text: str) -> float:
    """The instant that an ISO 8601 timestamp means, in seconds since 1970; without a zone it is read as UTC."""
    try:
        moment = parse_iso(text)
    except ValueError as error:
        raise FunctionError(f"the timestamp {text!r} is wrong: {error}") from None
    if moment is None:
        raise FunctionError(f"{text!r} is no ISO 8601 timestamp such as '2026-01-02T03:04:05Z'")
    return (moment.ticks - EPOCH_TICKS) / TICKS_PER_SECOND


def round_trip_text(moment: Timestamp) -> str:
    """The format `o`: all seven digits, and `Z` if it is in UTC."""
    clock = f"{moment.hour:02}:{moment.minute:02}:{moment.second:02}.{moment.fraction:07}"
    return f"{moment.day.isoformat()}T{clock}{'Z' if moment.utc else ''}"


# --- time spans -------------------------------------------------------------------------------------------------------


@cache
def _span() -> re.Pattern[str]:
    """Compile the pattern of a time span, on first use."""
    return re.compile(
        r"\s*(-)?(?:(\d{1,8})|(?:(\d{1,8})(?:\.|:(?=\d{1,2}:\d{1,2}:)))?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?)\s*",
        re.ASCII,
    )


def parse_timespan(text: str) -> int:
    """The ticks of a time span such as `1.02:03:04.5`, `02:03` or `14` (days)."""
    match = _span().fullmatch(text)
    if match is None:
        raise FunctionError(f"{text!r} is no time span such as '1.02:03:04'")
    minus, only_days, days, hours, minutes, seconds, fraction = match.groups()
    if int(hours or 0) > 23 or int(minutes or 0) > 59 or int(seconds or 0) > 59:  # noqa: PLR2004
        raise FunctionError(f"the time span {text!r} has more than 23 hours, 59 minutes or 59 seconds beside its days")
    ticks = (
        int(only_days or days or 0) * TICKS_PER_DAY
        + int(hours or 0) * TICKS_PER_HOUR
        + int(minutes or 0) * TICKS_PER_MINUTE
        + int(seconds or 0) * TICKS_PER_SECOND
        + int((fraction or "").ljust(7, "0"))
    )
    return -ticks if minus else ticks


def timespan_text(ticks: int) -> str:
    """The constant form of a time span: `[-][d.]hh:mm:ss[.fffffff]`."""
    size = abs(ticks)
    days = f"{size // TICKS_PER_DAY}." if size >= TICKS_PER_DAY else ""
    fraction = f".{size % TICKS_PER_SECOND:07}" if size % TICKS_PER_SECOND else ""
    return f"{'-' if ticks < 0 else ''}{days}{_clock_text(size)}{fraction}"


def format_timespan(ticks: int, fmt: str, culture: Culture) -> str:
    """The text of a time span in a standard (`c`, `t`, `T`, `g`, `G`) or custom format. Custom formats show no sign."""
    if fmt in ("", "c", "t", "T"):
        return timespan_text(ticks)
    if fmt in ("g", "G"):
        return _general_timespan(ticks, fmt == "G", culture)
    if len(fmt) == 1:
        raise FunctionError(f"there is no time span format {fmt!r}; a single letter is one of c g G")
    return "".join(_timespan_part(abs(ticks), token) for token in tokens_of(fmt, "dhmsfF"))


def _general_timespan(ticks: int, long: bool, culture: Culture) -> str:
    size, point = abs(ticks), culture.numbers.decimal
    sign, days, hours = "-" if ticks < 0 else "", size // TICKS_PER_DAY, size // TICKS_PER_HOUR % 24
    fraction = f"{size % TICKS_PER_SECOND:07}"
    if long:
        return f"{sign}{days}:{_clock_text(size)}{point}{fraction}"
    fraction = fraction.rstrip("0")
    return f"{sign}{f'{days}:' if days else ''}{hours}{_clock_text(size)[2:]}{point + fraction if fraction else ''}"


def _clock_text(size: int) -> str:
    hours, minutes = size // TICKS_PER_HOUR % 24, size // TICKS_PER_MINUTE % 60
    return f"{hours:02}:{minutes:02}:{size // TICKS_PER_SECOND % 60:02}"


_TIMESPAN_UNITS: dict[str, Callable[[int], int]] = {
    "d": lambda size: size // TICKS_PER_DAY,
    "h": lambda size: size // TICKS_PER_HOUR % 24,
    "m": lambda size: size // TICKS_PER_MINUTE % 60,
    "s": lambda size: size // TICKS_PER_SECOND % 60,
}
_TIMESPAN_WIDTHS = {"d": 8, "h": 2, "m": 2, "s": 2, "f": 7, "F": 7}


def _timespan_part(size: int, token: Token) -> str:
    if token.letter == "":
        if token.length == 0:
            # Unlike in date formats, separators are no literals unless they are marked as such.
            raise FunctionError(f"write {token.text!r} as '\\{token.text}' or in quotes in a time span format")
        return token.text
    if token.length > _TIMESPAN_WIDTHS[token.letter]:
        raise FunctionError(f"a time span format has no {token.text!r}")
    if token.letter in "fF":
        digits = f"{size % TICKS_PER_SECOND:07}"[: token.length]
        return digits if token.letter == "f" else digits.rstrip("0")
    return f"{_TIMESPAN_UNITS[token.letter](size):0{token.length}}"


# --- ISO 8601 durations -----------------------------------------------------------------------------------------------


@cache
def _duration() -> re.Pattern[str]:
    """Compile the pattern of an ISO 8601 duration, on first use."""
    return re.compile(
        r"([+-])?P(?:(\d+(?:[.,]\d+)?)Y)?(?:(\d+(?:[.,]\d+)?)M)?(?:(\d+(?:[.,]\d+)?)W)?(?:(\d+(?:[.,]\d+)?)D)?"
        r"(T(?:(\d+(?:[.,]\d+)?)H)?(?:(\d+(?:[.,]\d+)?)M)?(?:(\d+(?:[.,]\d+)?)S)?)?",
        re.ASCII,
    )


_DAY = 86_400.0
_DATE_UNITS = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY)
_TIME_UNITS = (3_600.0, 60.0, 1.0)
_LONGEST_TEXT = 100


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `PT900M`, `P14D`, `P1DT2H` or `PT0.5S`; a month is 30 days, a year 365."""
    match = _duration().fullmatch(text.strip().upper()) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise _no_duration(text)
    sign, *dates, time, hours, minutes, seconds = match.groups()
    times = (hours, minutes, seconds)
    if not any(part is not None for part in (*dates, *times)) or (time is not None and not any(times)):
        raise _no_duration(text)
    parts = zip((*dates, *times), _DATE_UNITS + _TIME_UNITS, strict=True)
    total = sum(float(part.replace(",", ".")) * unit for part, unit in parts if part is not None)
    return -total if sign == "-" else total


def _no_duration(text: str) -> FunctionError:
    return FunctionError(f"{text[:_LONGEST_TEXT]!r} is no ISO 8601 duration such as 'PT30S', 'PT1H' or 'P14D'")

"""The functions of dates, times and time spans. Pure.

The last argument of most is a .NET format, `o` by default. Timestamps with an offset are turned into UTC as they are
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.dotnet.cultures import EN_US, culture_of
from loom.expressions.dotnet.date_text import format_timestamp, parse_date_text, parse_exact, parse_timestamp
from loom.expressions.dotnet.timestamps import (
    TICKS_PER_DAY,
    TICKS_PER_HOUR,
    TICKS_PER_MINUTE,
    TICKS_PER_SECOND,
    Timestamp,
    format_timespan,
    parse_timespan,
    timespan_text,
)
from loom.expressions.dotnet.zones import from_utc, to_utc, zone_of
from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import function, want_integer, want_string

if TYPE_CHECKING:
    from loom.expressions.environment import Environment

_TICKS = {
    "second": TICKS_PER_SECOND,
    "minute": TICKS_PER_MINUTE,
    "hour": TICKS_PER_HOUR,
    "day": TICKS_PER_DAY,
    "week": 7 * TICKS_PER_DAY,
}
_MONTHS = {"month": 1, "year": 12}


def _read(value: Any, name: str = "timestamp") -> Timestamp:
    return parse_timestamp(want_string(name, value), name)


def _written(moment: Timestamp, fmt: Any) -> str:
    return format_timestamp(moment, want_string("format", fmt), EN_US)


def _moved(moment: Timestamp, count: Any, unit: Any, sign: int = 1) -> Timestamp:
    amount = sign * want_integer("interval", count)
    name = want_string("timeUnit", unit).strip().lower()
    if name in _TICKS:
        return moment.plus(amount * _TICKS[name])
    if name in _MONTHS:
        return moment.plus_months(amount * _MONTHS[name])
    raise FunctionError(
        f"there is no time unit {unit!r}; use 'Second', 'Minute', 'Hour', 'Day', 'Week', 'Month' or 'Year'"
    )


@function("utcNow", 0, 1, asks=True)
def utc_now(env: Environment, fmt: Any = "o") -> str:
    """The time of the run, in UTC."""
    return _written(_read(env.utc_now()), fmt)


@function("addDays", 2, 3)
def add_days(timestamp: Any, days: Any, fmt: Any = "o") -> str:
    """The time some days later."""
    return _written(_read(timestamp).plus(want_integer("days", days) * TICKS_PER_DAY), fmt)


@function("addHours", 2, 3)
def add_hours(timestamp: Any, hours: Any, fmt: Any = "o") -> str:
    """The time some hours later."""
    return _written(_read(timestamp).plus(want_integer("hours", hours) * TICKS_PER_HOUR), fmt)


@function("addMinutes", 2, 3)
def add_minutes(timestamp: Any, minutes: Any, fmt: Any = "o") -> str:
    """The time some minutes later."""
    return _written(_read(timestamp).plus(want_integer("minutes", minutes) * TICKS_PER_MINUTE), fmt)


@function("addSeconds", 2, 3)
def add_seconds(timestamp: Any, seconds: Any, fmt: Any = "o") -> str:
    """The time some seconds later."""
    return _written(_read(timestamp).plus(want_integer("seconds", seconds) * TICKS_PER_SECOND), fmt)


@function("addToTime", 3, 4)
def add_to_time(timestamp: Any, interval: Any, unit: Any, fmt: Any = "o") -> str:
    """The time some units later; ends of months are clipped."""
    return _written(_moved(_read(timestamp), interval, unit), fmt)


@function("subtractFromTime", 3, 4)
def subtract_from_time(timestamp: Any, interval: Any, unit: Any, fmt: Any = "o") -> str:
    """The time some units earlier; ends of months are clipped."""
    return _written(_moved(_read(timestamp), interval, unit, -1), fmt)


@function("getFutureTime", 2, 3, asks=True)
def get_future_time(env: Environment, interval: Any, unit: Any, fmt: Any = "o") -> str:
    """The time some units from now."""
    return _written(_moved(_read(env.utc_now()), interval, unit), fmt)


@function("getPastTime", 2, 3, asks=True)
def get_past_time(env: Environment, interval: Any, unit: Any, fmt: Any = "o") -> str:
    """The time some units ago."""
    return _written(_moved(_read(env.utc_now()), interval, unit, -1), fmt)


@function("convertFromUtc", 2, 3)
def convert_from_utc(timestamp: Any, destination: Any, fmt: Any = "o") -> str:
    """The reading of a clock in a zone at a time of UTC; without a suffix."""
    zone = zone_of(want_string("destinationTimeZone", destination))
    return _written(from_utc(_read(timestamp), zone), fmt)


@function("convertToUtc", 2, 3)
def convert_to_utc(timestamp: Any, source: Any, fmt: Any = "o") -> str:
    """The time of UTC at which a clock in a zone shows the time."""
    zone = zone_of(want_string("sourceTimeZone", source))
    return _written(to_utc(_read(timestamp), zone), fmt)


@function("convertTimeZone", 3, 4)
def convert_time_zone(timestamp: Any, source: Any, destination: Any, fmt: Any = "o") -> str:
    """The reading of a clock in one zone when one in another shows the time; without a suffix."""
    here = zone_of(want_string("sourceTimeZone", source))
    there = zone_of(want_string("destinationTimeZone", destination))
    return _written(from_utc(to_utc(_read(timestamp), here), there), fmt)


@function("dateDifference", 2)
def date_difference(start: Any, end: Any) -> str:
    """The time span from the first to the second."""
    return timespan_text(_read(end, "endTimestamp").ticks - _read(start, "startTimestamp").ticks)


@function("dayOfMonth", 1)
def day_of_month(timestamp: Any) -> int:
    """The day of the month, 1 to 31."""
    return _read(timestamp).day.day


@function("dayOfWeek", 1)
def day_of_week(timestamp: Any) -> int:
    """The day of the week, 0 (Sunday) to 6."""
    return _read(timestamp).day.isoweekday() % 7


@function("dayOfYear", 1)
def day_of_year(timestamp: Any) -> int:
    """The day of the year, 1 to 366."""
    return _read(timestamp).day.timetuple().tm_yday


@function("startOfDay", 1, 2)
def start_of_day(timestamp: Any, fmt: Any = "o") -> str:
    """The midnight before the time."""
    moment = _read(timestamp)
    return _written(moment.plus(-(moment.ticks % TICKS_PER_DAY)), fmt)


@function("startOfHour", 1, 2)
def start_of_hour(timestamp: Any, fmt: Any = "o") -> str:
    """The full hour before the time."""
    moment = _read(timestamp)
    return _written(moment.plus(-(moment.ticks % TICKS_PER_HOUR)), fmt)


@function("startOfMonth", 1, 2)
def start_of_month(timestamp: Any, fmt: Any = "o") -> str:
    """The first midnight of the month."""
    moment = _read(timestamp)
    since = (moment.day.day - 1) * TICKS_PER_DAY + moment.ticks % TICKS_PER_DAY
    return _written(moment.plus(-since), fmt)


@function("formatDateTime", 1, 3)
def format_date_time(timestamp: Any, fmt: Any = "o", locale: Any = "en-US") -> str:
    """The time in a format of a culture."""
    culture = culture_of(want_string("locale", locale))
    return format_timestamp(_read(timestamp), want_string("format", fmt), culture)


@function("parseDateTime", 1, 3)
def parse_date_time(text: Any, locale: Any = "en-US", fmt: Any = None) -> str:
    """The timestamp that a text means in a culture, or in a format of it."""
    culture = culture_of(want_string("locale", locale))
    value = want_string("value", text)
    if fmt is None:
        return _written(parse_date_text(value, culture, "value"), "o")
    return _written(parse_exact(value, want_string("format", fmt), culture), "o")


@function("ticks", 1)
def ticks(timestamp: Any) -> int:
    """The number of 100 ns since the year 1."""
    return _read(timestamp).ticks


@function("formatTimeSpan", 2, 3)
def format_time_span(span: Any, fmt: Any, culture: Any = "en-US") -> str:
    """A time span such as `1.02:03:04` in a format of a culture."""
    ticks = parse_timespan(want_string("timeSpan", span))
    return format_timespan(ticks, want_string("format", fmt), culture_of(want_string("culture", culture)))

"""Cron expressions: five fields, and when one is due next on the clock of a time zone.

Daylight saving is treated as recurrences treat it. A time that the clock skips is moved forward by what it skips. A
time that it shows twice is taken the first time; if the hours are `*`, both times, so that "every five minutes" stays
every five minutes.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from loom.expressions.dotnet.zones import zone_of
from loom.expressions.errors import FunctionError
from loom.expressions.strings import remembered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.expressions.dotnet.zones import Zone

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_SUNDAY = 7
"""Another number of Sunday, beside 0."""
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@cache
def _part() -> re.Pattern[str]:
    """Compile the pattern of a part, on first use: few flows have a cron."""
    return re.compile(r"(\*|[a-z]+|\d+)(?:-([a-z]+|\d+))?(?:/(\d+))?", re.ASCII)


_LEAP_YEAR = 2024
_MOST_DAYS = 3_000
"""From one 29 February to the next are at most eight years."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
_NEAR = timedelta(hours=25)
"""No zone has moved its clock further than by a day."""


class Cron(NamedTuple):
    """A cron expression, read."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """From Sunday, 0."""
    either_day: bool
    """Both kinds of days are restricted: a day is right if either says so."""
    every_hour: bool

    def has_day(self, day: datetime) -> bool:
        """Tell whether the expression is due on a day."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


def check_cron(text: object) -> list[str]:
    """List the problems of a cron expression, a sentence each; empty if it is sound."""
    if not isinstance(text, str):
        return [f"cron must be a text such as '*/5 * * * *', not {text!r}"]
    try:
        parse_cron(text)
    except ValueError as error:
        return [f"cron {text!r} is wrong: {error}"]
    return []


@remembered(256)
def parse_cron(text: str) -> Cron:
    """Read an expression; a ValueError says what is wrong, and in which field."""
    fields = _MACROS.get(text.strip().lower(), text).lower().split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"it needs five fields (minute, hour, day of month, month, day of week), not {len(fields)}")
    minutes, hours, days, months, weekdays = (
        _numbers(field, *about) for field, about in zip(fields, _FIELDS, strict=True)
    )
    weekdays = {day % _SUNDAY for day in weekdays}
    either_day = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not either_day and not any(min(days) <= monthrange(_LEAP_YEAR, month)[1] for month in months):
        raise ValueError(f"no month that it names has a day {min(days)}")
    return Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekdays),
        either_day,
        fields[1].startswith("*"),
    )


def _numbers(field: str, name: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        parts = _part().fullmatch(part)
        if parts is None or (parts[1] == "*" and parts[2]):
            raise ValueError(f"the {name} {part!r} is no number, range or step such as 5, 1-5, */10")
        first, last = low, high if name != "day of week" else high - 1
        if parts[1] != "*":
            first = _number(parts[1], name, low, high, names)
            # A start with a step goes on to the end of the field: 10/15 is 10, 25, 40, 55.
            last = _number(parts[2], name, low, high, names) if parts[2] else last if parts[3] else first
        step = int(parts[3]) if parts[3] else 1
        if step < 1:
            raise ValueError(f"the step of the {name} {part!r} must be at least 1")
        if first > last:
            raise ValueError(f"the {name} {part!r} ends before it begins")
        found.update(range(first, last + 1, step))
    return found


def _number(text: str, name: str, low: int, high: int, names: dict[str, int]) -> int:
    number = names.get(text, int(text[:9]) if text.isdecimal() else None)
    if number is None or not low <= number <= high:
        known = f"{low} to {high}" + (f" or {next(iter(names))} to {list(names)[-1]}" if names else "")
        raise ValueError(f"the {name} {text!r} must be {known}")
    return number


def next_cron(text: str, after: float, time_zone: str | None = None) -> float | None:
    """Find the first due time later than `after`, in seconds since 1970; None after the year 9999."""
    cron = parse_cron(text)
    try:
        zone = zone_of(time_zone or "UTC")
    except FunctionError as error:
        raise ValueError(str(error)) from None
    now = (_EPOCH + timedelta(microseconds=round(after * 1_000_000))).astimezone(zone)
    local = now.replace(tzinfo=None, fold=0)
    try:
        due = next(_times(cron, local + timedelta(minutes=1), _MOST_DAYS), None)
        if due is None:
            return None
        if _is_steady(local, zone) and _is_steady(due, zone):
            return _instants(due, zone)[0]
        return _near_a_change(cron, local, zone, after)
    except OverflowError:
        return None


def _times(cron: Cron, start: datetime, most_days: int) -> Iterator[datetime]:
    """Yield the clock times at which the expression is due, from the minute of `start` on."""
    first = start.replace(second=0, microsecond=0)
    day = first.replace(hour=0, minute=0)
    for _ in range(most_days):
        if cron.has_day(day):
            for hour in cron.hours:
                if day < first and hour < first.hour:
                    continue
                for minute in cron.minutes:
                    time = day.replace(hour=hour, minute=minute)
                    if time >= first:
                        yield time
        day += timedelta(days=1)


def _is_steady(local: datetime, zone: Zone) -> bool:
    """Tell whether the zone's clock keeps its offset around a local time."""
    offsets = {(local + near).replace(tzinfo=zone).utcoffset() for near in (-_NEAR, timedelta(0), _NEAR)}
    return len(offsets) == 1


def _near_a_change(cron: Cron, local: datetime, zone: Zone, after: float) -> float | None:
    """Find the next due time near a change of the clock, where local times do not come in order."""
    best: float | None = None
    enough: datetime | None = None
    for time in _times(cron, local - _NEAR, _MOST_DAYS):
        if enough is not None and time > enough:
            break
        for due in _instants(time, zone)[: 2 if cron.every_hour else 1]:
            if due > after and (best is None or due < best):
                best, enough = due, enough or time + _NEAR
    return best


def _instants(local: datetime, zone: Zone) -> list[float]:
    """List the instants at which the clock shows a time: one or two. A skipped time has the offset before the gap."""
    early, late = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    first, second = ((each - _EPOCH) // timedelta(microseconds=1) / 1_000_000 for each in (early, late))
    return [first, second] if second > first else [first]

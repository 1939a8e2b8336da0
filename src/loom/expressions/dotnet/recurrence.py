"""When a recurrence is due next: Logic Apps' frequency, interval, start, end, zone and schedule. Pure.

Everything is counted from `startTime`. A recurrence without one is counted from `after`, so a scheduler stores the
first time as `startTime` to keep the recurrence steady. The calendar's periods (hours, days, weeks, months, years) are
numbered; times in them are what a clock on the wall shows, without a zone.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.expressions.dotnet.timestamps import days_in_month, epoch_seconds, parse_iso
from loom.expressions.dotnet.zones import UTC, zone_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from loom.expressions.dotnet.zones import Zone


_SECONDS = {"second": 1, "minute": 60, "hour": 3_600}
_FREQUENCIES = ("second", "minute", "hour", "day", "week", "month", "year")
_LISTS = {"hours": (0, 23), "minutes": (0, 59), "monthDays": (-31, 31)}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MAX_INTERVAL = 9_999_999
_MOST_PERIODS = {"hour": 10_000, "day": 5_000}
_MOST_OTHER_PERIODS = 500
"""Periods to look at. A schedule that names no time in them names none: the 31st of every 12th month from June on."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017


class _Schedule(NamedTuple):
    """The lists of a recurrence's schedule, sorted; an empty list was not given."""

    hours: list[int]
    minutes: list[int]
    month_days: list[int]
    """From 1, or from -1, the last day of a month."""
    weekdays: list[int]
    """From 0, Monday."""


class _Plan(NamedTuple):
    """A recurrence, read."""

    frequency: str
    interval: int
    zone: Zone
    anchor: datetime
    """From when the periods are counted, as the zone's clock shows it, without a zone."""
    start: float | None
    end: float | None
    schedule: _Schedule | None


def check_recurrence(recurrence: Any) -> list[str]:
    """List what is wrong with a recurrence, each in a sentence; an empty list if it can be kept."""
    if not isinstance(recurrence, dict):
        return [f"the recurrence must be an object, not {recurrence!r}"]
    problems = []
    frequency = recurrence.get("frequency")
    if not isinstance(frequency, str) or frequency.lower() not in _FREQUENCIES:
        problems.append(f"frequency must be Second, Minute, Hour, Day, Week, Month or Year, not {frequency!r}")
    interval = _whole(recurrence.get("interval", 1))
    if interval is None or not 1 <= interval <= _MAX_INTERVAL:
        problems.append(f"interval must be an integer from 1 to {_MAX_INTERVAL:,}, not {recurrence.get('interval')!r}")
    for name in ("startTime", "endTime"):
        problems += _problems_of_time(name, recurrence.get(name))
    zone = recurrence.get("timeZone")
    if zone is not None:
        problems += _problems_of_zone(zone)
    schedule = recurrence.get("schedule")
    if schedule is not None:
        problems += _problems_of_schedule(schedule, str(frequency).lower())
    return problems


def next_occurrence(recurrence: dict[str, Any], after: float) -> float | None:
    """The first time it is due later than `after`, in seconds since 1970; None if there is none any more.

    Seconds, minutes and hours without a schedule are counted as they pass; all else follows the clock of the zone. A
    time that this clock skips is moved forward by what it skips, and one that it shows twice is taken the first time.
    """
    problems = check_recurrence(recurrence)
    if problems:
        raise FunctionError(f"the recurrence cannot be kept: {'; '.join(problems)}")
    plan = _read(recurrence, after)
    due = (
        _next_passing(plan, after) if plan.schedule is None and plan.frequency in _SECONDS else _next_local(plan, after)
    )
    return None if due is None or (plan.end is not None and due > plan.end) else due


# --- the next time ----------------------------------------------------------------------------------------------------


def _read(recurrence: dict[str, Any], after: float) -> _Plan:
    zone = zone_of(recurrence["timeZone"]) if recurrence.get("timeZone") else UTC
    start, end = (_instant(recurrence.get(name), zone) for name in ("startTime", "endTime"))
    anchor = _local(after if start is None else start, zone)
    frequency = recurrence["frequency"].lower()
    listed = recurrence.get("schedule") or {}
    lists = {name: listed[name] for name in (*_LISTS, "weekDays") if listed.get(name) not in (None, [])}
    schedule = None
    if lists:
        numbers = {name: sorted({int(item) for item in lists[name]}) for name in _LISTS if name in lists}
        weekdays = sorted({_WEEKDAYS.index(day.lower()) for day in lists.get("weekDays", ())})
        schedule = _Schedule(
            hours=numbers.get("hours", []),
            minutes=numbers.get("minutes", []),
            month_days=numbers.get("monthDays", []),
            weekdays=weekdays,
        )
    return _Plan(frequency, int(recurrence.get("interval", 1)), zone, anchor, start, end, schedule)


def _next_passing(plan: _Plan, after: float) -> float:
    """Counted in microseconds, so that no step is lost to rounding."""
    origin = round((after if plan.start is None else plan.start) * 1_000_000)
    if plan.start is not None and plan.start > after:
        return plan.start
    step = plan.interval * _SECONDS[plan.frequency] * 1_000_000
    count = max(0, (round(after * 1_000_000) - origin) // step)
    while (origin + count * step) / 1_000_000 <= after:
        count += 1
    return (origin + count * step) / 1_000_000


def _next_local(plan: _Plan, after: float) -> float | None:
    earliest = after if plan.start is None else max(after, plan.start)
    first = _period_of(plan.frequency, plan.anchor)
    now = _period_of(plan.frequency, _local(earliest, plan.zone))
    # One period early, for a time that the clock skipped may have moved on from there.
    count = max(0, (now - first) // plan.interval - 1)
    due = _due_in(plan, first, count)
    for index in range(count, count + _MOST_PERIODS.get(plan.frequency, _MOST_OTHER_PERIODS)):
        # Together with the next period: a moved time may come after that one's first.
        following = _due_in(plan, first, index + 1)
        later = [at for at in (*due, *following) if at > after and (plan.start is None or at >= plan.start)]
        if later:
            return min(later)
        due = following
    return None


def _due_in(plan: _Plan, first: int, index: int) -> list[float]:
    try:
        times = _times_in(plan.frequency, first + index * plan.interval, plan.anchor, plan.schedule)
        return [_seconds(time, plan.zone) for time in times]
    except (ValueError, OverflowError):  # beyond the year 9999
        return []


def _local(at: float, zone: Zone) -> datetime:
    return (_EPOCH + timedelta(microseconds=round(at * 1_000_000))).astimezone(zone).replace(tzinfo=None, fold=0)


def _seconds(local: datetime, zone: Zone) -> float:
    # In a gap, the offset before it applies (fold 0), which moves the time forward by the length of the gap.
    return (local.replace(tzinfo=zone, fold=0) - _EPOCH) // timedelta(microseconds=1) / 1_000_000


def _instant(text: str | None, zone: Zone) -> float | None:
    """A start or end: an instant if it says its zone, else what the zone's clock shows."""
    if text is None:
        return None
    moment = parse_iso(text)
    at = epoch_seconds(text)
    if moment is not None and moment.utc:
        return at
    return _seconds((_EPOCH + timedelta(microseconds=round(at * 1_000_000))).replace(tzinfo=None), zone)


# --- periods of the calendar ------------------------------------------------------------------------------------------


def _period_of(frequency: str, at: datetime) -> int:
    """The number of the hour, day, week (from Monday), month or year that a time lies in."""
    match frequency:
        case "hour":
            return at.toordinal() * 24 + at.hour
        case "day":
            return at.toordinal()
        case "week":
            return (at.toordinal() - 1) // 7
        case "month":
            return at.year * 12 + at.month - 1
        case _:
            return at.year


def _times_in(frequency: str, period: int, anchor: datetime, schedule: _Schedule | None) -> list[datetime]:
    """The times in a period: what the schedule lists, else the one at which the anchor is in its own period.

    Raises ValueError or OverflowError if the period is beyond the calendar.
    """
    if schedule is None:
        return [datetime.combine(day, anchor.time()) for day in _days_like(frequency, period, anchor)]
    days = _days_of_schedule(frequency, period, anchor, schedule)
    minutes = schedule.minutes or [anchor.minute]
    if frequency == "hour":
        hour = period % 24
        hours = [hour] if not schedule.hours or hour in schedule.hours else []
    else:
        hours = schedule.hours or [anchor.hour]
    return [datetime.combine(day, time(hour, minute)) for day in days for hour in hours for minute in minutes]


def _days_like(frequency: str, period: int, anchor: datetime) -> list[date]:
    """The day of a period on which the anchor is in its own; clipped to the end of its month."""
    match frequency:
        case "day":
            return [date.fromordinal(period)]
        case "week":
            return [date.fromordinal(period * 7 + 1) + timedelta(days=anchor.weekday())]
        case "month":
            return [_clipped(period // 12, period % 12 + 1, anchor.day)]
        case _:
            return [_clipped(period, anchor.month, anchor.day)]


def _clipped(year: int, month: int, day: int) -> date:
    return date(year, month, min(day, days_in_month(year, month)))


def _days_of_schedule(frequency: str, period: int, anchor: datetime, schedule: _Schedule) -> list[date]:
    match frequency:
        case "hour":
            days = [date.fromordinal(period // 24)]
        case "day":
            days = [date.fromordinal(period)]
        case "week" if schedule.weekdays:
            monday = date.fromordinal(period * 7 + 1)
            days = [monday + timedelta(days=number) for number in range(7)]
        case "month" | "year" if schedule.weekdays or schedule.month_days:
            year, month = (period // 12, period % 12 + 1) if frequency == "month" else (period, anchor.month)
            days = [date(year, month, day) for day in range(1, days_in_month(year, month) + 1)]
        case _:
            days = _days_like(frequency, period, anchor)
    return [day for day in days if _is_named(day, schedule)]


def _is_named(day: date, schedule: _Schedule) -> bool:
    if schedule.weekdays and day.weekday() not in schedule.weekdays:
        return False
    if not schedule.month_days:
        return True
    from_the_end = day.day - days_in_month(day.year, day.month) - 1
    return day.day in schedule.month_days or from_the_end in schedule.month_days


# --- checks -----------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> int | None:
    """An integer, also if it is written as text, as designers do."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and value.isascii():
        return int(value[:10])
    return None


def _problems_of_time(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    try:
        if isinstance(value, str) and parse_iso(value) is not None:
            return []
    except (ValueError, FunctionError) as error:
        return [f"{name} {value!r} is wrong: {error}"]
    return [f"{name} must be a timestamp such as '2026-01-02T03:04:05Z', not {value!r}"]


def _problems_of_zone(zone: Any) -> list[str]:
    if not isinstance(zone, str):
        return [f"timeZone must be the name of a time zone, not {zone!r}"]
    try:
        zone_of(zone)
    except FunctionError as error:
        return [f"timeZone: {error}"]
    return []


def _problems_of_schedule(schedule: Any, frequency: str) -> list[str]:
    if not isinstance(schedule, dict):
        return [f"schedule must be an object, not {schedule!r}"]
    problems = [f"schedule.{name} is unknown" for name in schedule if name not in (*_LISTS, "weekDays")]
    if frequency in ("second", "minute"):
        problems.append(f"schedule does not go with frequency {frequency.capitalize()}; use Hour or longer")
    for name, (low, high) in _LISTS.items():
        values = schedule.get(name) or []
        numbers = [_whole(value) for value in values] if isinstance(values, list) else [None]
        if any(number is None or not low <= number <= high or (low < 0 and number == 0) for number in numbers):
            problems.append(f"schedule.{name} must be a list of integers from {low} to {high}, not {values!r}")
    days = schedule.get("weekDays") or []
    if not isinstance(days, list) or any(not isinstance(day, str) or day.lower() not in _WEEKDAYS for day in days):
        problems.append(f"schedule.weekDays must be a list of Monday to Sunday, not {days!r}")
    return problems

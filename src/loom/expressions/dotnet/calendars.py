"""Periods of the calendar, numbered, and the times in them that a schedule names. Pure; may import `timestamps`.

All times here are what a clock on the wall shows, without a zone.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import NamedTuple

from loom.expressions.dotnet.timestamps import days_in_month


class Schedule(NamedTuple):
    """What a recurrence's schedule lists, sorted; an empty list was not given."""

    hours: list[int]
    minutes: list[int]
    month_days: list[int]
    """From 1, or from -1, the last day of a month."""
    weekdays: list[int]
    """From 0, Monday."""


def period_of(frequency: str, at: datetime) -> int:
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


def times_in(frequency: str, period: int, anchor: datetime, schedule: Schedule | None) -> list[datetime]:
    """The times in a period: those of the schedule, else the one at which the anchor is in its own period.

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


def _days_of_schedule(frequency: str, period: int, anchor: datetime, schedule: Schedule) -> list[date]:
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


def _is_named(day: date, schedule: Schedule) -> bool:
    if schedule.weekdays and day.weekday() not in schedule.weekdays:
        return False
    if not schedule.month_days:
        return True
    from_the_end = day.day - days_in_month(day.year, day.month) - 1
    return day.day in schedule.month_days or from_the_end in schedule.month_days

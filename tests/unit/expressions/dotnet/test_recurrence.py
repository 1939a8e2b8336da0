"""When recurrences are due: examples, and a scan of every minute as the second opinion."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.expressions.dotnet.recurrence import check_recurrence, next_occurrence
from loom.expressions.dotnet.timestamps import epoch_seconds, timestamp_text
from loom.expressions.errors import FunctionError

BERLIN = "W. Europe Standard Time"


def due(recurrence: dict[str, Any], after: str, count: int) -> list[str]:
    """The next times, without their fractions and `Z`."""
    times = []
    at = epoch_seconds(after)
    for _ in range(count):
        following = next_occurrence(recurrence, at)
        if following is None:
            times.append("never")
            break
        assert following > at
        at = following
        times.append(timestamp_text(at)[:19])
    return times


def test_seconds_minutes_and_hours_pass_from_the_start() -> None:
    recurrence = {"frequency": "Hour", "interval": 6, "startTime": "2024-01-01T01:30:00Z"}
    assert due(recurrence, "2023-12-01", 2) == ["2024-01-01T01:30:00", "2024-01-01T07:30:00"]
    assert due(recurrence, "2024-01-02T01:29:59Z", 2) == ["2024-01-02T01:30:00", "2024-01-02T07:30:00"]


def test_without_a_start_it_is_counted_from_the_last_time() -> None:
    assert due({"frequency": "minute", "interval": 15}, "2024-01-01T09:00:07Z", 2) == [
        "2024-01-01T09:15:07",
        "2024-01-01T09:30:07",
    ]
    assert due({"frequency": "Day"}, "2024-01-01T09:00:07Z", 1) == ["2024-01-02T09:00:07"]


def test_ends_of_months_are_clipped_and_come_back() -> None:
    recurrence = {"frequency": "Month", "interval": 1, "startTime": "2024-01-31T09:00:00Z"}
    assert due(recurrence, "2024-01-31T09:00:00Z", 3) == [
        "2024-02-29T09:00:00",
        "2024-03-31T09:00:00",
        "2024-04-30T09:00:00",
    ]
    yearly = {"frequency": "Year", "startTime": "2024-02-29T00:00:00Z"}
    assert due(yearly, "2024-02-29T00:00:00Z", 4)[-1] == "2028-02-29T00:00:00"


def test_a_schedule_of_week_days() -> None:
    recurrence = {
        "frequency": "Week",
        "interval": 2,
        "startTime": "2024-01-03T00:00:00Z",
        "schedule": {"weekDays": ["Monday", "friday"], "hours": ["9", 17], "minutes": [30]},
    }
    assert due(recurrence, "2024-01-01", 4) == [
        "2024-01-05T09:30:00",
        "2024-01-05T17:30:00",
        "2024-01-15T09:30:00",
        "2024-01-15T17:30:00",
    ]


def test_a_schedule_of_month_days_counts_from_both_ends() -> None:
    recurrence = {
        "frequency": "Month",
        "startTime": "2024-01-01T06:00:00Z",
        "endTime": "2024-03-01T00:00:00Z",
        "schedule": {"monthDays": [15, -1]},
    }
    assert due(recurrence, "2024-01-20", 9) == [
        "2024-01-31T06:00:00",
        "2024-02-15T06:00:00",
        "2024-02-29T06:00:00",
        "never",
    ]


def test_daily_times_follow_the_clock_of_the_zone() -> None:
    recurrence = {"frequency": "Day", "timeZone": BERLIN, "startTime": "2024-03-30T09:00:00"}
    assert due(recurrence, "2024-03-01", 3) == ["2024-03-30T08:00:00", "2024-03-31T07:00:00", "2024-04-01T07:00:00"]


def test_a_skipped_time_moves_forward_and_a_double_one_comes_once() -> None:
    recurrence = {"frequency": "Day", "timeZone": BERLIN, "schedule": {"hours": [2], "minutes": [30]}}
    assert due(recurrence, "2024-03-30T12:00:00Z", 2) == ["2024-03-31T01:30:00", "2024-04-01T00:30:00"]
    assert due(recurrence, "2024-10-26T12:00:00Z", 2) == ["2024-10-27T00:30:00", "2024-10-28T01:30:00"]


def test_a_start_with_its_own_zone_is_that_instant() -> None:
    recurrence = {"frequency": "Day", "timeZone": "India Standard Time", "startTime": "2024-11-26T13:00:00Z"}
    assert due(recurrence, "2024-01-01", 1) == ["2024-11-26T13:00:00"]


def test_a_schedule_that_is_never_met_ends() -> None:
    recurrence = {"frequency": "Month", "interval": 12, "startTime": "2024-06-01", "schedule": {"monthDays": [31]}}
    assert next_occurrence(recurrence, 0.0) is None


@pytest.mark.parametrize(
    ("recurrence", "problem"),
    [
        ("every day", "the recurrence"),
        ({}, "frequency"),
        ({"frequency": "Fortnight"}, "frequency"),
        ({"frequency": "Day", "interval": 0}, "interval"),
        ({"frequency": "Day", "interval": 1.5}, "interval"),
        ({"frequency": "Day", "startTime": "soon"}, "startTime"),
        ({"frequency": "Day", "endTime": "2024-02-30"}, "endTime"),
        ({"frequency": "Day", "timeZone": "Moon"}, "timeZone"),
        ({"frequency": "Day", "schedule": []}, "schedule"),
        ({"frequency": "Day", "schedule": {"hours": [24]}}, "schedule.hours"),
        ({"frequency": "Day", "schedule": {"minutes": "5"}}, "schedule.minutes"),
        ({"frequency": "Week", "schedule": {"weekDays": ["Mon"]}}, "schedule.weekDays"),
        ({"frequency": "Month", "schedule": {"monthDays": [0]}}, "schedule.monthDays"),
        ({"frequency": "Day", "schedule": {"hour": [1]}}, "schedule.hour"),
        ({"frequency": "Minute", "schedule": {"hours": [1]}}, "schedule"),
    ],
)
def test_what_cannot_be_kept_is_named(recurrence: Any, problem: str) -> None:
    problems = check_recurrence(recurrence)
    assert len(problems) == 1
    assert problems[0].startswith(problem)
    with pytest.raises(FunctionError, match="cannot be kept"):
        next_occurrence(recurrence, 0.0)


# --- against a scan of every minute ---------------------------------------------------------------------------------

ZONES = {"UTC": "UTC", BERLIN: "Europe/Berlin", "Pacific Standard Time": "America/Los_Angeles"}
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
# Around the changes of the clock in spring and autumn, and an ordinary week.
STARTS = [datetime.fromisoformat(day) for day in ("2024-03-29", "2024-10-25", "2024-11-01", "2024-03-08", "2024-07-01")]

DAYS_SCANNED = {"Hour": 4, "Day": 8, "Week": 30, "Month": 70}

schedules = st.fixed_dictionaries(
    {"hours": st.lists(st.integers(0, 23), min_size=1, max_size=3)},
    optional={
        "minutes": st.lists(st.integers(0, 59), min_size=1, max_size=2),
        "weekDays": st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=4),
        "monthDays": st.lists(st.sampled_from([1, 2, 15, 29, 30, 31, -1, -3]), min_size=1, max_size=3),
    },
)


def is_due_on(day: date, start: datetime, recurrence: dict[str, Any]) -> bool:
    """Whether a day is in a period of the recurrence, and one of the days that its schedule names."""
    schedule, interval = recurrence["schedule"], recurrence["interval"]
    month_length = ((day.replace(day=1) + timedelta(days=31)).replace(day=1) - day.replace(day=1)).days
    in_week = WEEKDAYS[day.weekday()] in schedule.get("weekDays", WEEKDAYS)
    in_month = {day.day, day.day - month_length - 1} & set(schedule.get("monthDays", [day.day]))
    named = in_week and bool(in_month)
    match recurrence["frequency"]:
        case "Day":
            return named and (day - start.date()).days % interval == 0
        case "Week":
            monday = start.date() - timedelta(days=start.weekday())
            usual = "weekDays" in schedule or day.weekday() == start.weekday()
            return named and usual and (day - monday).days // 7 % interval == 0
        case "Month":
            usual = {"weekDays", "monthDays"} & set(schedule) or day.day == min(start.day, month_length)
            months = (day.year - start.year) * 12 + day.month - start.month
            return named and bool(usual) and months % interval == 0
        case _:
            return named


def scanned(recurrence: dict[str, Any], start: datetime) -> list[float]:
    """All times from the start on in the days to scan, found by looking at the clock at each minute."""
    zone = ZoneInfo(ZONES[recurrence["timeZone"]])
    schedule = recurrence["schedule"]
    by_the_hour = recurrence["interval"] if recurrence["frequency"] == "Hour" else 1
    first_hour = start.replace(minute=0)
    found = set()
    for number in range(DAYS_SCANNED[recurrence["frequency"]]):
        day = start.date() + timedelta(days=number)
        if not is_due_on(day, start, recurrence):
            continue
        for minute in range(1440):
            local = datetime.combine(day, datetime.min.time()) + timedelta(minutes=minute)
            hours = (local.replace(minute=0) - first_hour) // timedelta(hours=1)
            on_time = local.hour in schedule["hours"] and local.minute in schedule.get("minutes", [start.minute])
            if on_time and hours % by_the_hour == 0:
                found.add(local.replace(tzinfo=zone).timestamp())
    begin = start.replace(tzinfo=zone).timestamp()
    return sorted(at for at in found if at >= begin)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(DAYS_SCANNED)),
    st.sampled_from(sorted(ZONES)),
    st.sampled_from(STARTS),
    st.integers(0, 1439),
    st.integers(1, 3),
    schedules,
)
def test_schedules_match_a_scan(
    frequency: str, zone: str, day: datetime, minute: int, interval: int, schedule: dict[str, Any]
) -> None:
    start = day + timedelta(minutes=minute)
    recurrence = {
        "frequency": frequency,
        "interval": interval,
        "timeZone": zone,
        "startTime": start.isoformat(),
        "schedule": schedule,
    }
    expected = scanned(recurrence, start)
    at, times = 0.0, []
    while len(times) < len(expected):
        following = next_occurrence(recurrence, at)
        assert following is not None
        assert following > at
        times.append(following)
        at = following
    assert times == expected
    if not expected:
        first = next_occurrence(recurrence, at)
        end = (start + timedelta(days=DAYS_SCANNED[frequency] - 1)).replace(tzinfo=ZoneInfo(ZONES[zone])).timestamp()
        assert first is None or first > end


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["Second", "Minute", "hour", "DAY", "Week", "Month", "Year"]),
    st.integers(1, 40),
    st.sampled_from(sorted(ZONES)),
    st.integers(0, 2_000_000_000),
    st.floats(0, 2_000_000_000),
    st.booleans(),
)
def test_times_increase_and_never_precede_the_start(
    frequency: str, interval: int, zone: str, start: int, after: float, in_utc: bool
) -> None:
    text = timestamp_text(start)
    recurrence = {"frequency": frequency, "interval": interval, "timeZone": zone, "startTime": text}
    if not in_utc:
        recurrence["startTime"] = text[:-1]
    first = next_occurrence(recurrence, -1e9)
    assert first is not None
    if in_utc:
        assert first == start
    at = after
    for _ in range(5):
        following = next_occurrence(recurrence, at)
        assert following is not None
        assert following > at
        assert following >= first
        at = following
    assert next_occurrence(recurrence, at - 0.001) == at

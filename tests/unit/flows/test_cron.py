from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.flows.cron import Cron, check_cron, next_cron, parse_cron


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def due(expression: str, after: str, zone: str | None = None, times: int = 1) -> list[str]:
    """The next occurrences, as the clock of UTC shows them."""
    found, now = [], at(after)
    for _ in range(times):
        following = next_cron(expression, now, zone)
        assert following is not None
        assert following > now
        now = following
        found.append(datetime.fromtimestamp(now, tz=UTC).strftime("%Y-%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:00", "2026-01-01 00:01"),
        ("* * * * *", "2026-01-01T00:00:59.999", "2026-01-01 00:01"),
        ("*/15 * * * *", "2026-01-01T00:46", "2026-01-01 01:00"),
        ("10/25 * * * *", "2026-01-01T00:10", "2026-01-01 00:35"),
        ("5,1-3 4 * * *", "2026-01-01T04:03", "2026-01-01 04:05"),
        ("0 9 * * mon-fri", "2026-01-02T09:00", "2026-01-05 09:00"),
        ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04 00:00"),
        ("0 0 * * SUN,2", "2026-01-04T00:00", "2026-01-06 00:00"),
        ("0 0 1 feb,Apr *", "2026-02-01T00:00", "2026-04-01 00:00"),
        ("0 0 29 2 *", "2096-02-29T00:00", "2104-02-29 00:00"),
        ("0 0 13 * 5", "2026-01-01T00:00", "2026-01-02 00:00"),  # both kinds of days: either
        ("0 0 */2 * mon", "2026-01-01T00:00", "2026-01-05 00:00"),  # a star restricts nothing: both
        ("59 23 31 12 *", "2026-12-31T23:59", "2027-12-31 23:59"),
        ("@weekly", "2026-01-01T00:00", "2026-01-04 00:00"),
        ("@HOURLY", "2026-01-01T00:00", "2026-01-01 01:00"),
    ],
)
def test_the_next_occurrence(expression: str, after: str, expected: str) -> None:
    assert due(expression, after) == [expected]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("* * * *", "five fields"),
        ("* * * * * *", "not 6"),
        ("", "not 0"),
        ("60 * * * *", "the minute '60' must be 0 to 59"),
        ("* 24 * * *", "the hour '24'"),
        ("* * 0 * *", "the day of month '0' must be 1 to 31"),
        ("* * * jam *", "the month 'jam' must be 1 to 12 or jan to dec"),
        ("* * * * 8", "the day of week '8' must be 0 to 7 or sun to sat"),
        ("5-1 * * * *", "ends before it begins"),
        ("*/0 * * * *", "the step"),
        ("*-5 * * * *", "no number, range or step"),
        ("1-2-3 * * * *", "no number, range or step"),
        (", * * * *", "no number, range or step"),
        ("99999999999999999999 * * * *", "must be 0 to 59"),
        ("0 0 30 2 *", "no month that it names has a day 30"),
    ],
)
def test_what_is_wrong_is_named(expression: str, problem: str) -> None:
    [told] = check_cron(expression)
    assert problem in told
    with pytest.raises(ValueError, match=r"\w"):
        next_cron(expression, 0.0)


def test_only_texts_and_known_zones_can_be_kept() -> None:
    assert "must be a text" in check_cron(5)[0]
    with pytest.raises(ValueError, match="no time zone 'Mars'"):
        next_cron("* * * * *", 0.0, "Mars")


def test_a_skipped_time_is_moved_forward_by_what_is_skipped() -> None:
    # Berlin's clock goes from 2:00 to 3:00 on 29 March 2026, at 1:00 UTC.
    assert due("30 2 * * *", "2026-03-28T12:00", "Europe/Berlin", 2) == ["2026-03-29 01:30", "2026-03-30 00:30"]
    assert due("15 2,3 * * *", "2026-03-29T00:00", "Europe/Berlin", 2) == ["2026-03-29 01:15", "2026-03-30 00:15"]


def test_a_time_that_comes_twice_is_taken_once_unless_every_hour_counts() -> None:
    # It goes from 3:00 back to 2:00 on 25 October 2026, at 1:00 UTC.
    assert due("30 2 * * *", "2026-10-24T12:00", "Europe/Berlin", 2) == ["2026-10-25 00:30", "2026-10-26 01:30"]
    every = ["2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"]
    assert due("*/30 * * * *", "2026-10-25T00:00", "Europe/Berlin", 4) == every


def test_a_windows_zone_will_do() -> None:
    assert due("0 9 * * *", "2026-01-01T00:00", "W. Europe Standard Time") == ["2026-01-01 08:00"]


def test_there_is_nothing_after_the_last_year() -> None:
    assert next_cron("0 0 1 1 *", at("9999-06-01T00:00")) is None


def shown(moment: datetime, cron: Cron) -> bool:
    return cron.has_day(moment) and moment.hour in cron.hours and moment.minute in cron.minutes


def by_brute_force(cron: Cron, after: float, zone: ZoneInfo) -> float | None:
    """Minute by minute, on the clock of the zone; None if nothing is due for days."""
    now = datetime.fromtimestamp(after // 60 * 60, tz=UTC)
    moved: set[datetime] = set()
    # Begin before it, for the sake of times that were skipped and have moved.
    now -= timedelta(hours=26)
    for _ in range(5 * 24 * 60):
        before = now.astimezone(zone).replace(tzinfo=None)
        now += timedelta(minutes=1)
        local = now.astimezone(zone)
        clock = local.replace(tzinfo=None)
        skipped = before + timedelta(minutes=1)
        while skipped < clock:
            if shown(skipped, cron):
                moved.add(now + (skipped - before - timedelta(minutes=1)))
            skipped += timedelta(minutes=1)
        is_due = (shown(clock, cron) and (not local.fold or cron.every_hour)) or now in moved
        if is_due and now.timestamp() > after:
            return now.timestamp()
    return None


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    parts = st.one_of(number.map(str), spans, st.integers(1, high).map(lambda step: f"*/{step}"))
    return st.one_of(st.just("*"), st.lists(parts, min_size=1, max_size=3).map(",".join))


_CHANGES = {
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),
    "America/St_Johns": ("2026-03-08T05:30", "2026-11-01T04:30"),
    "Pacific/Apia": ("2011-12-30T10:00", "2010-09-26T11:00"),
    "UTC": ("2026-01-01T00:00", "2024-02-29T00:00"),
}


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(_field(0, 59), _field(0, 23), st.just("*"), st.just("*"), _field(0, 6)).map(" ".join),
    st.sampled_from([(zone, change) for zone, changes in _CHANGES.items() for change in changes]),
    st.integers(-40 * 60, 40 * 60),
    st.sampled_from([0.0, 0.5, 59.0]),
)
def test_the_next_occurrence_is_that_of_brute_force(
    expression: str, place: tuple[str, str], minutes: int, seconds: float
) -> None:
    zone, change = place
    after = at(change) + 60 * minutes + seconds
    expected = by_brute_force(parse_cron(expression), after, ZoneInfo(zone))
    if expected is not None:
        assert next_cron(expression, after, zone) == expected

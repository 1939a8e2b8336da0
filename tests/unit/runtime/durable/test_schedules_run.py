from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.runtime.durable import schedules_run
from loom.runtime.durable.schedules_run import check_timing, latest_due, next_due, pinned, timing_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("every", "timing"),
    [
        (60.0, {"frequency": "Second", "interval": 60}),
        (9_999_999, {"frequency": "Second", "interval": 9_999_999}),
        (31_536_000, {"frequency": "Minute", "interval": 525_600}),
        (3_600 * 1_000_000, {"frequency": "Hour", "interval": 1_000_000}),
    ],
)
def test_seconds_become_a_recurrence(every: float, timing: dict[str, Any]) -> None:
    assert timing_of(None, None, every, None) == timing
    found = next_due(pinned(timing, NOON), NOON)
    assert found == NOON + every


@pytest.mark.parametrize(
    ("given_", "problem"),
    [
        ((None, None, None, None), "needs one of"),
        (({"frequency": "Day"}, "* * * * *", None, None), "needs one of"),
        ((None, None, 0.5, None), "whole number of seconds"),
        ((None, None, 1.5, None), "whole number of seconds"),
        ((None, None, float("nan"), None), "whole number of seconds"),
        ((None, None, float("inf"), None), "whole number of seconds"),
        ((None, None, 1e12 + 1, None), "too long"),
        ((None, None, 60, "UTC"), "time_zone goes with"),
        ((None, "61 * * * *", None, None), "the minute '61'"),
        ((None, "* * * * *", None, "Mars"), "no time zone 'Mars'"),
        (({"frequency": "Fortnight"}, None, None, None), "frequency must be"),
        (({"frequency": "Day", "timeZone": "UTC"}, None, None, "Europe/Berlin"), "beside it"),
        ((["Day"], None, None, None), "must be an object"),
        (({"cron": "* * * * *", "interval": 2}, None, None, None), "interval does not go with cron"),
    ],
)
def test_what_cannot_be_kept_is_refused(given_: tuple[Any, Any, Any, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        timing_of(*given_)


def test_the_time_zone_may_stand_beside() -> None:
    assert timing_of(None, "0 9 * * *", None, "Europe/Berlin") == {"cron": "0 9 * * *", "timeZone": "Europe/Berlin"}
    kept = {"frequency": "Day", "timeZone": "UTC"}
    assert timing_of(kept, None, None, "UTC") == kept
    assert timing_of({"frequency": "Day"}, None, None, "UTC") == kept


def test_only_what_has_no_start_is_pinned() -> None:
    assert pinned({"frequency": "Day"}, NOON + 0.7) == {"frequency": "Day", "startTime": "2026-01-01T12:00:00Z"}
    for timing in ({"cron": "* * * * *"}, {"frequency": "Day", "startTime": "2020-01-01T00:00:00Z"}):
        assert pinned(timing, NOON) == timing


def test_an_end_is_the_end() -> None:
    timing = {"frequency": "Hour", "endTime": "2026-01-01T13:30:00Z"}
    assert not check_timing(timing)
    first = next_due(pinned(timing, NOON), NOON)
    assert first == NOON + 3600
    assert next_due(pinned(timing, NOON), first) is None


@given(
    st.sampled_from(
        [
            {"frequency": "Second", "interval": 7},
            {"frequency": "Day", "schedule": {"hours": [1, 13, 14], "minutes": [5]}},
            {"frequency": "Month", "timeZone": "Europe/Berlin"},
            {"cron": "*/20 9 * * mon", "timeZone": "Europe/Berlin"},
        ]
    ),
    st.integers(0, 4 * 86_400),
)
def test_the_latest_is_that_of_going_through_all(timing: dict[str, Any], later: int) -> None:
    kept = pinned(timing, NOON)
    first = next_due(kept, NOON)
    assert first is not None
    now, expected = NOON + later, first
    while (following := next_due(kept, expected)) is not None and following <= now:
        expected = following
    assert latest_due(kept, first, now) == expected


def test_few_occurrences_are_looked_at_however_many_were_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counting(timing: dict[str, Any], after: float) -> float | None:
        nonlocal looked
        looked += 1
        return next_due(timing, after)

    timing = pinned({"frequency": "Second"}, NOON)
    monkeypatch.setattr(schedules_run, "next_due", counting)
    assert latest_due(timing, NOON + 1, NOON + 10 * 31_536_000 + 0.5) == NOON + 10 * 31_536_000
    assert looked < 100

"""The functions of dates, times and time spans."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions import ExpressionError, evaluate

NOW = {"utcNow": "2025-09-25T05:18:31.3384797Z"}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("utcNow()", "2025-09-25T05:18:31.3384797Z"),
        ("utcNow('yyyy-MM-dd')", "2025-09-25"),
        ("addDays('2018-03-15T00:00:00Z', -5)", "2018-03-10T00:00:00.0000000Z"),
        ("addDays('2018-03-15', 10, 'd')", "3/25/2018"),
        ("addHours('2018-03-15T15:00:00+02:00', -5)", "2018-03-15T08:00:00.0000000Z"),
        ("addMinutes('2018-03-15T00:10:00', 10)", "2018-03-15T00:20:00.0000000"),
        ("addSeconds('2018-12-31T23:59:59.9999999Z', 1)", "2019-01-01T00:00:00.9999999Z"),
        ("addToTime('2018-01-31T00:00:00Z', 1, 'MONTH')", "2018-02-28T00:00:00.0000000Z"),
        ("addToTime('2018-01-01T00:00:00Z', 1, 'week', 'D')", "Monday, January 8, 2018"),
        ("subtractFromTime('2020-02-29T00:00:00Z', 1, 'Year')", "2019-02-28T00:00:00.0000000Z"),
        ("getFutureTime(2, 'Hour')", "2025-09-25T07:18:31.3384797Z"),
        ("getPastTime(1, 'Month', 'yyyy-MM-dd')", "2025-08-25"),
        ("convertFromUtc('2018-01-01T08:00:00Z', 'Pacific Standard Time')", "2018-01-01T00:00:00.0000000"),
        ("convertFromUtc('2018-01-01T08:00:00', 'Europe/Berlin', 't')", "9:00 AM"),
        ("convertToUtc('01/01/2018 00:00:00', 'Pacific Standard Time')", "2018-01-01T08:00:00.0000000Z"),
        ("convertToUtc('01/01/2018', 'Pacific Standard Time', 'D')", "Monday, January 1, 2018"),
        (
            "convertTimeZone('2018-07-01T08:00:00', 'Tokyo Standard Time', 'W. Europe Standard Time')",
            "2018-07-01T01:00:00.0000000",
        ),
        ("dateDifference('2015-02-08', '2018-07-30')", "1268.00:00:00"),
        ("dateDifference('2018-07-30T10:00:00Z', '2018-07-30T08:30:00.5Z')", "-01:29:59.5000000"),
        ("dateDifference('2018-07-30', '2018-07-30')", "00:00:00"),
        ("dayOfMonth('2018-03-15T13:27:36Z')", 15),
        ("dayOfWeek('2018-03-18')", 0),
        ("dayOfYear('2020-12-31')", 366),
        ("startOfDay('2018-03-15T13:30:30Z')", "2018-03-15T00:00:00.0000000Z"),
        ("startOfHour('2018-03-15T13:30:30Z')", "2018-03-15T13:00:00.0000000Z"),
        ("startOfMonth('2018-03-15T13:30:30', 'yyyy-MM-dd')", "2018-03-01"),
        ("formatDateTime('03/15/2018 12:00', 'u')", "2018-03-15 12:00:00Z"),
        ("formatDateTime('2018-03-15', 'd', '')", "03/15/2018"),
        ("parseDateTime('03/15/2018')", "2018-03-15T00:00:00.0000000"),
        ("parseDateTime('2018-03-15T10:00:00-05:00', 'en-US')", "2018-03-15T15:00:00.0000000Z"),
        ("parseDateTime('15|03|18 07PM', 'en-US', 'dd|MM|yy hhtt')", "2018-03-15T19:00:00.0000000"),
        ("ticks('0001-01-01')", 0),
        ("div(sub(ticks('2022-09-09T10:00:00Z'), ticks('1970-01-01Z00:00:00')), 10000000)", 1662717600),
        ("addSeconds('1970-01-01Z00:00:00', 1662717600)", "2022-09-09T10:00:00.0000000Z"),
        ("ticks('9999-12-31T23:59:59.9999999')", 3155378975999999999),
        ("formatTimeSpan('1.02:03:04', 'd\\.hh\\:mm')", "1.02:03"),
        ("formatTimeSpan(dateDifference('2018-01-01', '2018-01-02T03:00:00'), 'g')", "1:3:00:00"),
    ],
)
def test_values(expression: str, value: Any) -> None:
    result = evaluate(f"@{expression}", NOW)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("addDays('2018-03-15', '1')", "days"),
        ("addDays('2018-03-15', 1.5)", "days"),
        ("addDays(null, 1)", "timestamp"),
        ("addDays('yesterday', 1)", "yesterday"),
        ("addDays('2018-03-15', 1, null)", "format"),
        ("addDays('9999-12-31', 1)", "9999"),
        ("addDays('2018-03-15', 9223372036854775807)", "9999"),
        ("addToTime('2018-03-15', 1, 'Fortnight')", "Fortnight"),
        ("getPastTime(1, 'x')", "time unit"),
        ("convertFromUtc('2018-03-15', 'Nowhere')", "Nowhere"),
        ("formatDateTime('2018-03-15', 'q')", "'q'"),
        ("dateDifference('2018-03-15', 'x')", "endTimestamp"),
        ("parseDateTime('2018', 'en-US', 'dd')", "not in the format"),
        ("formatTimeSpan('x', 'c')", "time span"),
        ("ticks(5)", "timestamp"),
    ],
)
def test_errors_name_what_is_wrong(expression: str, part: str) -> None:
    with pytest.raises(ExpressionError, match=part):
        evaluate(f"@{expression}", NOW)


def test_a_missing_culture_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(ExpressionError, match=r"loom-workflows\[locale\]"):
        evaluate("@formatDateTime('2018-03-15', 'D', 'nb-NO')")
    assert evaluate("@formatDateTime('2018-03-15', 'M', 'en-US')") == "March 15"


@given(
    st.sampled_from(["formatDateTime", "parseDateTime", "addDays", "convertFromUtc", "formatTimeSpan", "startOfDay"]),
    st.lists(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**63 - 1),
            st.text(max_size=20),
            st.text("0123456789-/:.TZ+ APMdfhHKmMsty'\\%", max_size=30),
            st.sampled_from(["2018-03-15T01:02:03Z", "UTC", "en-US", "D"]),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_any_arguments_give_a_value_or_an_error(name: str, arguments: list[Any]) -> None:
    context = {"variables": {str(index): value for index, value in enumerate(arguments)}}
    calls = ",".join(f"variables('{index}')" for index in range(len(arguments)))
    with contextlib.suppress(ExpressionError):
        assert isinstance(evaluate(f"@{name}({calls})", context), str)

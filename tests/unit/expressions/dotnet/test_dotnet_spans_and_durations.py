"""Time spans and ISO 8601 durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.dotnet.cultures import EN_US
from loom.expressions.dotnet.durations import parse_duration
from loom.expressions.dotnet.timespans import format_timespan, parse_timespan, timespan_text
from loom.expressions.errors import FunctionError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT900M", 54_000.0),
        ("PT1440M", 86_400.0),
        ("P14D", 1_209_600.0),
        ("P1DT2H", 93_600.0),
        ("PT0.5S", 0.5),
        ("PT1H30M", 5_400.0),
        ("P2W", 1_209_600.0),
        ("P1M", 2_592_000.0),
        ("P1Y", 31_536_000.0),
        ("P1Y2M3DT4H5M6S", 365 * 86400.0 + 60 * 86400 + 3 * 86400 + 4 * 3600 + 5 * 60 + 6),
        ("pt5s", 5.0),
        (" PT5S ", 5.0),
        ("-PT5S", -5.0),
        ("PT0S", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "PT1", "P1H", "PT5M3H", "PT1e3S", "five", "P" + "1" * 200 + "D"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(FunctionError, match="ISO 8601 duration"):
        parse_duration(text)


@given(st.integers(-(10**18), 10**18))
def test_spans_are_read_as_they_are_written(ticks: int) -> None:
    assert parse_timespan(timespan_text(ticks)) == ticks


@pytest.mark.parametrize(
    ("span", "fmt", "text"),
    [
        ("1.02:03:04.5", "c", "1.02:03:04.5000000"),
        ("1:02:03", "c", "01:02:03"),
        ("1:02:03:04", "c", "1.02:03:04"),
        ("14", "c", "14.00:00:00"),
        ("-02:03", "c", "-02:03:00"),
        ("1.02:03:04.5", "g", "1:2:03:04.5"),
        ("02:03:04", "g", "2:03:04"),
        ("1.02:03:04.5", "G", "1:02:03:04.5000000"),
        ("1.02:03:04.5", "hh\\:mm\\:ss", "02:03:04"),
        ("1.02:03:04.5", "%d", "1"),
        ("1.02:03:04.5", "d' days 'h\\h", "1 days 2h"),
        ("1.02:03:04.5", "dddhhmmssfff", "001020304500"),
        ("00:00:04.5", "ss\\.FFF", "04.5"),
    ],
)
def test_formats_of_spans(span: str, fmt: str, text: str) -> None:
    assert format_timespan(parse_timespan(span), fmt, EN_US) == text


@pytest.mark.parametrize("fmt", ["x", "hh:mm", "hhh", "ffffffff", "'open"])
def test_formats_that_mean_nothing_are_refused(fmt: str) -> None:
    with pytest.raises(FunctionError):
        format_timespan(0, fmt, EN_US)


@pytest.mark.parametrize("text", ["", "x", "25:00", "00:60", "1.2", "1.2.3:00", "00:00:60"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(FunctionError):
        parse_timespan(text)

"""Timestamps, time spans and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.dotnet.cultures import EN_US
from loom.expressions.dotnet.timestamps import (
    MAX_TICKS,
    Timestamp,
    epoch_seconds,
    format_timespan,
    parse_duration,
    parse_iso,
    parse_timespan,
    round_trip_text,
    timespan_text,
    timestamp_text,
)
from loom.expressions.errors import FunctionError


@given(st.integers(0, MAX_TICKS), st.booleans())
def test_what_is_written_is_read_again(ticks: int, utc: bool) -> None:
    moment = Timestamp(ticks, utc)
    assert parse_iso(round_trip_text(moment)) == moment


@given(st.floats(-1e9, 4e9))
def test_seconds_since_1970_survive_as_text_to_the_microsecond(seconds: float) -> None:
    assert epoch_seconds(timestamp_text(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_the_text_of_an_instant_has_seven_digits_and_z() -> None:
    assert timestamp_text(1767323045.0) == "2026-01-02T03:04:05.0000000Z"
    assert timestamp_text(0.25) == "1970-01-01T00:00:00.2500000Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01:00", 3_600.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01 00:00:00.5Z", 0.5),
        ("1969-12-31T16:00:00-0800", 0.0),
        (" 1970-01-01T00:00:01z ", 1.0),
    ],
)
def test_reading_instants(text: str, seconds: float) -> None:
    assert epoch_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "now", "1970-13-01", "1970-01-01T24:00", "1970-01-01T00:00:60Z", "1970-02-30"])
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(FunctionError, match="timestamp"):
        epoch_seconds(text)


def test_digits_beyond_100_ns_are_rounded() -> None:
    moment = parse_iso("0001-01-01T00:00:00.00000015")
    assert moment == Timestamp(2, utc=False)


def test_months_are_clipped_at_their_end() -> None:
    leap = parse_iso("2024-01-31T10:00:00Z")
    assert leap is not None
    assert round_trip_text(leap.plus_months(1)) == "2024-02-29T10:00:00.0000000Z"
    assert round_trip_text(leap.plus_months(-11)) == "2023-02-28T10:00:00.0000000Z"
    with pytest.raises(FunctionError, match="9999"):
        leap.plus_months(12 * 9000)


# --- time spans and ISO 8601 durations --------------------------------------------------------------------------------


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
def test_formats_of_spans_that_mean_nothing_are_refused(fmt: str) -> None:
    with pytest.raises(FunctionError):
        format_timespan(0, fmt, EN_US)


@pytest.mark.parametrize("text", ["", "x", "25:00", "00:60", "1.2", "1.2.3:00", "00:00:60"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(FunctionError):
        parse_timespan(text)

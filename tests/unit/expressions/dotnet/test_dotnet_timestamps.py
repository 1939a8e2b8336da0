"""Timestamps: reading ISO 8601, ticks, seconds since 1970."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.dotnet.timestamps import (
    MAX_TICKS,
    Timestamp,
    epoch_seconds,
    parse_iso,
    round_trip_text,
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

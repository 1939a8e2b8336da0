"""Time zones by Windows and IANA names."""

from __future__ import annotations

import sys

import pytest

from loom.expressions.dotnet import zones
from loom.expressions.dotnet.date_text import parse_timestamp
from loom.expressions.dotnet.timestamps import round_trip_text
from loom.expressions.dotnet.zones import from_utc, to_utc, zone_of
from loom.expressions.errors import FunctionError


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("Pacific Standard Time", "2018-07-01T01:00:00.1234567"),
        ("pacific standard time", "2018-07-01T01:00:00.1234567"),
        ("W. Europe Standard Time", "2018-07-01T10:00:00.1234567"),
        ("India Standard Time", "2018-07-01T13:30:00.1234567"),
        ("Europe/Berlin", "2018-07-01T10:00:00.1234567"),
        ("UTC", "2018-07-01T08:00:00.1234567"),
    ],
)
def test_clocks_of_the_world(name: str, there: str) -> None:
    local = from_utc(parse_timestamp("2018-07-01T08:00:00.1234567Z"), zone_of(name))
    assert round_trip_text(local) == there
    assert round_trip_text(to_utc(local, zone_of(name))) == "2018-07-01T08:00:00.1234567Z"


@pytest.mark.parametrize(
    "name", ["", "Nowhere", "Moon Standard Time", "../../etc/passwd", "/etc/localtime", "America", "\0"]
)
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(FunctionError, match="no time zone"):
        zone_of(name)


def test_only_windows_names_need_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    zone_of.cache_clear()
    zones._windows_names.cache_clear()
    monkeypatch.setitem(sys.modules, "tzlocal.windows_tz", None)
    with pytest.raises(FunctionError, match=r"loom-workflows\[locale\]"):
        zone_of("Tokyo Standard Time")
    assert str(zone_of("Asia/Tokyo")) == "Asia/Tokyo"


def test_a_time_that_comes_twice_is_the_second_one() -> None:
    berlin = zone_of("W. Europe Standard Time")
    assert round_trip_text(to_utc(parse_timestamp("2024-10-27T02:30:00"), berlin)) == "2024-10-27T01:30:00.0000000Z"


def test_a_time_that_is_skipped_is_refused() -> None:
    with pytest.raises(FunctionError, match="does not exist"):
        to_utc(parse_timestamp("2024-03-31T02:30:00"), zone_of("Europe/Berlin"))


def test_the_edges_of_the_calendar() -> None:
    with pytest.raises(FunctionError, match="9999"):
        from_utc(parse_timestamp("9999-12-31T23:00:00Z"), zone_of("Europe/Berlin"))
    with pytest.raises(FunctionError, match="9999"):
        to_utc(parse_timestamp("0001-01-01T00:00:00"), zone_of("Asia/Tokyo"))

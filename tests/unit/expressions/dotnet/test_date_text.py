"""Writing and reading dates in .NET's formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.dotnet.cultures import EN_US, INVARIANT, culture_of
from loom.expressions.dotnet.date_text import format_timestamp, parse_exact, parse_timestamp
from loom.expressions.dotnet.timestamps import MAX_TICKS, TICKS_PER_SECOND, Timestamp, round_trip_text
from loom.expressions.errors import FunctionError

MOMENT = parse_timestamp("2009-06-05T13:04:09.0070000Z")


@pytest.mark.parametrize(
    ("fmt", "text"),
    [
        ("d", "6/5/2009"),
        ("D", "Friday, June 5, 2009"),
        ("f", "Friday, June 5, 2009 1:04 PM"),
        ("F", "Friday, June 5, 2009 1:04:09 PM"),
        ("g", "6/5/2009 1:04 PM"),
        ("G", "6/5/2009 1:04:09 PM"),
        ("M", "June 5"),
        ("o", "2009-06-05T13:04:09.0070000Z"),
        ("R", "Fri, 05 Jun 2009 13:04:09 GMT"),
        ("s", "2009-06-05T13:04:09"),
        ("t", "1:04 PM"),
        ("T", "1:04:09 PM"),
        ("u", "2009-06-05 13:04:09Z"),
        ("U", "Friday, June 5, 2009 1:04:09 PM"),
        ("y", "June 2009"),
        ("", "2009-06-05T13:04:09.0070000Z"),
        ("yyyy-MM-ddTHH:mm:ss.fffK", "2009-06-05T13:04:09.007Z"),
        ("ddd dddd MMM MMMM", "Fri Friday Jun June"),
        ("y yy yyy yyyyy", "9 09 2009 02009"),
        ("h hh H HH m mm s ss t tt", "1 01 13 13 4 04 9 09 P PM"),
        ("f ff fff ffff", "0 00 007 0070"),
        ("ss.FFFFFFF ss.FF", "09.007 09"),
        ("z zz zzz K", "+0 +00 +00:00 Z"),
        ("%d", "5"),
        ("'day' d \\d \"of\" MMMM", "day 5 d of June"),
        ("gg", "A.D."),
        ("HH'h'mm", "13h04"),
        ("ddMMyyyy", "05062009"),
    ],
)
def test_formats_of_english(fmt: str, text: str) -> None:
    assert format_timestamp(MOMENT, fmt, EN_US) == text


@pytest.mark.parametrize("fmt", ["q", "i", "%", "'open", "yyyy\\", "ffffffff", "%%", "x" * 9000])
def test_formats_that_mean_nothing_are_refused(fmt: str) -> None:
    with pytest.raises(FunctionError):
        format_timestamp(MOMENT, fmt, EN_US)


def test_a_time_without_a_zone_shows_none() -> None:
    assert format_timestamp(parse_timestamp("2018-03-15"), "HH:mmK", EN_US) == "00:00"


def test_midnight_and_noon_are_twelve() -> None:
    assert format_timestamp(parse_timestamp("2018-03-15T00:30"), "h tt", EN_US) == "12 AM"
    assert format_timestamp(parse_timestamp("2018-03-15T12:30"), "h tt", EN_US) == "12 PM"


def test_the_invariant_culture_has_its_own_forms() -> None:
    assert format_timestamp(MOMENT, "d", INVARIANT) == "06/05/2009"
    assert format_timestamp(MOMENT, "F", culture_of("")) == "Friday, 05 June 2009 13:04:09"


@pytest.mark.parametrize(
    ("locale", "fmt", "text"),
    [
        ("es-ES", "dddd MMMM d", "viernes junio 5"),
        ("de-DE", "d", "05.06.2009"),
        ("de-DE", "D", "Freitag, 5. Juni 2009"),
        ("fr-fr", "D", "vendredi 5 juin 2009"),
        ("ja-JP", "D", "2009年6月5日金曜日"),
        ("en-GB", "g", "05/06/2009 13:04"),
        ("de-DE", "dd/MM/yyyy", "05.06.2009"),
        ("ru-RU", "d MMMM", "5 июня"),
        ("ru-RU", "MMMM yyyy", "июнь 2009"),
        ("es-MX", "s", "2009-06-05T13:04:09"),
        ("th-TH", "R", "Fri, 05 Jun 2009 13:04:09 GMT"),
    ],
)
def test_other_cultures(locale: str, fmt: str, text: str) -> None:
    pytest.importorskip("babel")
    assert format_timestamp(MOMENT, fmt, culture_of(locale)) == text


def test_the_names_of_months_do_not_depend_on_which_culture_came_first() -> None:
    pytest.importorskip("babel")
    assert culture_of("ja-JP").months[1] == "2月"
    assert culture_of("pt-BR").months[1] == "fevereiro"


@pytest.mark.parametrize("name", ["zz-not-a-locale-zz", "xx-YY", "../en", "e", "en-US-US-US", "1"])
def test_unknown_cultures_are_refused(name: str) -> None:
    pytest.importorskip("babel")
    with pytest.raises(FunctionError, match="no culture"):
        culture_of(name)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("03/15/2018", "2018-03-15T00:00:00.0000000"),
        ("3/5/2018 1:02", "2018-03-05T01:02:00.0000000"),
        ("03/15/2018 12:00:00", "2018-03-15T12:00:00.0000000"),
        ("03/15/2018 12:30 AM", "2018-03-15T00:30:00.0000000"),
        ("3/15/2018 1:00:00 PM", "2018-03-15T13:00:00.0000000"),
        ("Thu, 25 Sep 2025 05:18:31 GMT", "2025-09-25T05:18:31.0000000Z"),
        ("Thursday, September 25, 2025 5:18:31 PM", "2025-09-25T17:18:31.0000000"),
        ("25 Sep 2025", "2025-09-25T00:00:00.0000000"),
        ("September 2025", "2025-09-01T00:00:00.0000000"),
        ("2018/03/15", "2018-03-15T00:00:00.0000000"),
        ("1/2/49", "2049-01-02T00:00:00.0000000"),
        ("1/2/50", "1950-01-02T00:00:00.0000000"),
        ("2018-03-15T10:00:00+02:00", "2018-03-15T08:00:00.0000000Z"),
        ("03/15/2018 10:00:00 -08:00", "2018-03-15T18:00:00.0000000Z"),
    ],
)
def test_reading_what_people_write(text: str, moment: str) -> None:
    assert round_trip_text(parse_timestamp(text)) == moment


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello", "15/03/2018", "2018-01-01T80:00:00Z", "12:30", "March 15", "1 2", "9" * 300),
        *("Monday, September 25, 2025", "03/15/2018 13:00 PM", "0000-01-01", "2018-01-01T00:00:00+15:00"),
        *("0001-01-01T00:00:00+01:00", "٣/٤/٢٠١٨"),
    ],
)
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(FunctionError):
        parse_timestamp(text)


@given(st.integers(0, MAX_TICKS // TICKS_PER_SECOND), st.sampled_from(["F", "G", "s", "u", "R", "yyyyMMddHHmmss"]))
def test_reading_in_the_format_of_writing(seconds: int, fmt: str) -> None:
    moment = Timestamp(seconds * TICKS_PER_SECOND, utc=fmt in ("u", "R"))
    assert parse_exact(format_timestamp(moment, fmt, EN_US), fmt, EN_US) == moment


@pytest.mark.parametrize(
    ("locale", "form"),
    [(locale, form) for locale in ("fr-FR", "ja-JP", "he-IL", "fi-FI", "ko-KR", "ar-SA") for form in "dDfgFG"],
)
def test_cultures_read_what_they_write(locale: str, form: str) -> None:
    pytest.importorskip("babel")
    from loom.expressions.dotnet.date_text import parse_date_text

    culture = culture_of(locale)
    moment = parse_timestamp("2016-02-29T13:04:00")
    read = parse_date_text(format_timestamp(moment, form, culture), culture)
    assert read.day == moment.day
    assert form in "dD" or (read.hour, read.minute) == (13, 4)


@pytest.mark.parametrize(
    ("text", "fmt"),
    [
        ("2018", "yyyyMM"),
        ("1 1 2018", "d d yyyy"),
        ("12:30", "HH:mm"),
        ("x", "q"),
        ("Fri 2018-03-15", "ddd yyyy-MM-dd"),
        ("2018-03-15 13", "yyyy-MM-dd hh"),
    ],
)
def test_texts_that_are_not_in_the_format_are_refused(text: str, fmt: str) -> None:
    with pytest.raises(FunctionError):
        parse_exact(text, fmt, EN_US)

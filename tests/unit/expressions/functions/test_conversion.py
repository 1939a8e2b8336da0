"""The conversion functions for texts, booleans, numbers, JSON and arrays."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.errors import FunctionError
from loom.expressions.functions import conversion
from loom.expressions.limits import MAX_DEPTH
from loom.expressions.values import INT_MAX, INT_MIN, json_text

ENVELOPE = {"$content-type": "application/octet-stream", "$content": "MTIz"}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers(INT_MIN, INT_MAX) | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.recursive(SCALARS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)

# --- texts and booleans -------------------------------------------------------------------------------------------


def test_string_is_the_text_of_a_value() -> None:
    assert [conversion.string(v) for v in (None, True, 5.0, Decimal("5.00"), ENVELOPE)] == [
        "",
        "True",
        "5",
        "5.00",
        "123",
    ]


@pytest.mark.parametrize("value", [True, 1, 0.3, -1, Decimal("0.1"), "true", "TRUE"])
def test_what_is_true(value: Any) -> None:
    assert conversion.bool_(value) is True


@pytest.mark.parametrize("value", [False, 0, 0.0, Decimal("0.00"), "false", "False"])
def test_what_is_false(value: Any) -> None:
    assert conversion.bool_(value) is False


@pytest.mark.parametrize("value", ["yes", "", "1", None, [], {}, ENVELOPE])
def test_what_is_neither_true_nor_false(value: Any) -> None:
    with pytest.raises(FunctionError, match="'value'"):
        conversion.bool_(value)


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        (1.0, 1),
        (Decimal("1.000"), 1),
        ("1.0", 1),
        (" +1,000 ", 1000),
        ("-5", -5),
        ("1e3", 1000),
        ("9007199254740993", 9007199254740992),
        ("-9223372036854775809", INT_MIN),
        ("nan", INT_MIN),
        (Decimal(INT_MAX), INT_MAX),
        (INT_MAX, INT_MAX),
    ],
)
def test_int_reads_whole_numbers(value: Any, number: int) -> None:
    result = conversion.int_(value)
    assert result == number
    assert type(result) is int


@pytest.mark.parametrize(
    "value",
    [
        *("1.5", 1.5, "200-", "(200)", "", "abc", "9223372036854775807", 1e19, -1e19, inf, "3e-50", Decimal("0.1")),
        *(Decimal(INT_MAX) + 1, None, True, [], ENVELOPE, "\u0661"),
    ],
)
def test_int_refuses_the_rest(value: Any) -> None:
    with pytest.raises(FunctionError):
        conversion.int_(value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10,000.333", 10000.333),
        ("12345,6,78,-", -12345678.0),
        ("12345678.-", -12345678.0),
        (" 200 - ", -200.0),
        ("+.5", 0.5),
        ("5.", 5.0),
        ("1e400", inf),
        ("-1e400", -inf),
        ("5e-350", 0.0),
        ("-\u221e", -inf),
    ],
)
def test_float_reads_what_dotnet_reads(text: str, number: float) -> None:
    assert conversion.float_(text) == number


@pytest.mark.parametrize("text", ["(200)", "inf", "Infinity", ".", ",1", "1e", "-5-", "- 5", "1.2.3", "", "$1", "0x10"])
def test_float_refuses_the_rest(text: str) -> None:
    with pytest.raises(FunctionError, match="float"):
        conversion.float_(text)


def test_float_knows_no_number_in_any_case_and_infinity_in_the_invariant_culture_only() -> None:
    assert isnan(conversion.float_("nAn"))
    assert conversion.float_("-infinity", "") == -inf
    assert conversion.float_(Decimal("0.5")) == 0.5
    assert type(conversion.float_(3)) is float


def test_float_reads_the_separators_of_a_culture() -> None:
    assert conversion.float_("400.000", "de-DE") == 400_000
    assert conversion.float_("400,5", "de-de") == 400.5
    assert conversion.float_("1\xa0234,5", "fr-FR") == conversion.float_("1 234,5", "fr-FR") == 1234.5
    assert conversion.int_("400.000", "de-DE") == 400_000
    with pytest.raises(FunctionError, match="xx-nope"):
        conversion.float_("1", "xx-nope")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5", "5"),
        ("5.0000", "5.0000"),
        ("  200- ", "-200"),
        ("1,000.10", "1000.10"),
        ("1.2345678912312131", "1.2345678912312131"),
        ("10000000000.00000000001234", "10000000000.00000000001234"),
        ("70000000000000000000000000000", "70000000000000000000000000000"),
        ("79228162514264337593543950335.4", "79228162514264337593543950335"),
        ("0." + "1" * 40, "0." + "1" * 28),
        (100000.000009, "100000.000009"),
        (0.0, "0"),
        (12, "12"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_decimal_keeps_the_places(value: Any, text: str) -> None:
    assert conversion.string(conversion.decimal(value)) == text


@pytest.mark.parametrize(
    "value",
    ["1e3", "80000000000000000000000000000", "(2)", "nan", "", 1e29, nan, inf, None, True, ENVELOPE, "1" * 5000],
)
def test_decimal_refuses_the_rest(value: Any) -> None:
    with pytest.raises(FunctionError):
        conversion.decimal(value)


@given(st.floats(allow_nan=False))
def test_a_float_comes_back_from_its_text(number: float) -> None:
    assert conversion.float_(conversion.string(number), "") == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**20), max_value=10**20))
def test_a_decimal_comes_back_from_its_text_with_its_places(number: Decimal) -> None:
    assert conversion.decimal(conversion.string(number)).as_tuple()[1:] == number.as_tuple()[1:]


# --- JSON ---------------------------------------------------------------------------------------------------------


@given(DATA)
def test_every_value_comes_back_from_its_json_with_its_types(value: Any) -> None:
    again = conversion.json(json_text(value))
    assert again == value
    assert repr(again) == repr(value)


def test_json_keeps_integers_floats_and_the_order_and_the_last_of_duplicate_keys() -> None:
    value = conversion.json('\ufeff {"b": 1, "a": 1.0, "b": 3e0, "c": 9223372036854775807} ')
    assert repr(value) == "{'b': 3.0, 'a': 1.0, 'c': 9223372036854775807}"


def test_json_reads_integers_beyond_int64_as_floats() -> None:
    assert repr(conversion.json("[9223372036854775808, -9223372036854775809, 1" + "0" * 300 + "]")) == (
        "[9.223372036854776e+18, -9.223372036854776e+18, 1e+300]"
    )
    with pytest.raises(FunctionError, match="larger than any number"):
        conversion.json("[1" + "0" * 400 + "]")


def test_json_forgives_line_ends_in_strings_and_mends_half_characters() -> None:
    assert conversion.json('{"a": "x\ny"}') == {"a": "x\ny"}
    assert conversion.json(r'["\ud83d\ude00", {"\ud800": "\udc00"}]') == ["\U0001f600", {"\ufffd": "\ufffd"}]


def test_json_reads_json_in_an_envelope() -> None:
    assert conversion.json({"$content-type": "application/octet-stream", "$content": "WzEsMiwzXQ=="}) == [1, 2, 3]


def test_json_of_an_xml_envelope_is_the_json_of_its_xml() -> None:
    pytest.importorskip("lxml")
    xml = {"$content-type": "Application/XML; charset=utf-8", "$content": "PGEgYj0iMSI+YzwvYT4="}
    assert conversion.json(xml) == {"a": {"@b": "1", "#text": "c"}}


def test_json_says_where_the_text_is_wrong() -> None:
    with pytest.raises(FunctionError, match="line 2 column 6"):
        conversion.json('{\n"a": ?}')


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "'a'", "NaN", "-Infinity", "01", "{} x"])
def test_json_wants_one_whole_json_text(text: str) -> None:
    with pytest.raises(FunctionError, match="no JSON"):
        conversion.json(text)


@pytest.mark.parametrize("value", [None, 1, True, [], {}])
def test_json_wants_a_text(value: Any) -> None:
    with pytest.raises(FunctionError, match="'value'"):
        conversion.json(value)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_json_refuses_what_is_nested_too_deeply(depth: int, begin: str, end: str) -> None:
    with pytest.raises(FunctionError, match="nested"):
        conversion.json(begin * depth + "1" + end * depth)


def test_json_takes_what_is_nested_as_deeply_as_allowed() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json_text(conversion.json(text)) == text


# --- the rest -----------------------------------------------------------------------------------------------------


def test_arrays_are_made_of_any_values() -> None:
    assert conversion.array([1]) == [[1]]
    assert conversion.array(None) == [None]
    assert conversion.create_array(1, "a", None) == [1, "a", None]


def test_lengths_in_bytes() -> None:
    assert conversion.utf8_length("a\u00e4\U0001f600") == 7
    assert conversion.utf16_length("a\u00e4\U0001f600") == 8

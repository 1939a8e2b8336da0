"""The conversion functions."""

from __future__ import annotations

import base64
from decimal import Decimal
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions import ExpressionError, evaluate
from loom.expressions.errors import FunctionError
from loom.expressions.functions import conversion
from loom.expressions.meter import MAX_DEPTH, MAX_TEXT
from loom.expressions.value_text import json_text, text_of
from loom.expressions.values import INT_MAX, INT_MIN

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


# --- `formatNumber`; the formats themselves are tested in dotnet/test_numbers.py --------------------------------------


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("formatNumber(1234567890, '0,0.00', 'en-us')", "1,234,567,890.00"),
        ("formatNumber(17.35, 'C2')", "$17.35"),
        ("formatNumber(12, '0000')", "0012"),
        ("formatNumber(decimal('0.125'), 'P1')", "12.5%"),
        ("formatNumber(255, 'X4', '')", "00FF"),
    ],
)
def test_formats_of_numbers(expression: str, text: str) -> None:
    assert evaluate(f"@{expression}") == text


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("formatNumber('12', 'C')", "number"),
        ("formatNumber(true, 'C')", "number"),
        ("formatNumber(12, 5)", "format"),
        ("formatNumber(12, 'W')", "'W'"),
        ("formatNumber(1.5, 'D')", "integers"),
        ("formatNumber(1, 'C', 'zz-not-a-locale-zz')", "zz-not-a-locale-zz"),
    ],
)
def test_errors_of_formats_name_what_is_wrong(expression: str, part: str) -> None:
    with pytest.raises(ExpressionError, match=part):
        evaluate(f"@{expression}")


# --- base64, envelopes, data URIs and URI components ------------------------------------------------------------------


OCTETS = "application/octet-stream"
TEXTS_WITHOUT_MARKS = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda text: not text.startswith("\ufeff")
)


def content(content_type: str, data: str) -> dict[str, str]:
    return {"$content-type": content_type, "$content": data}


# --- base64 and envelopes -----------------------------------------------------------------------------------------


@given(TEXTS_WITHOUT_MARKS)
def test_a_text_comes_back_from_base64(text: str) -> None:
    assert conversion.base64(text) == base64.b64encode(text.encode()).decode()
    assert conversion.base64_to_string(conversion.base64(text)) == text
    assert text_of(conversion.base64_to_binary(conversion.base64(text))) == text
    assert text_of(conversion.binary(text)) == text


def test_base64_of_an_envelope_is_its_content_and_of_a_value_that_of_its_text() -> None:
    assert conversion.base64(content("image/png", "iVBO Rw==")) == "iVBORw=="
    assert conversion.base64({"a": 1}) == "eyJhIjoxfQ=="
    assert conversion.base64(True) == "VHJ1ZQ=="


@pytest.mark.parametrize("call", [conversion.base64, conversion.binary, conversion.data_uri])
def test_null_has_no_content(call: Any) -> None:
    with pytest.raises(FunctionError, match="'value'"):
        call(None)


def test_base64_of_bytes_that_are_no_text_reads_as_replacement_characters() -> None:
    assert conversion.base64_to_string("test") == "\ufffd\ufffd-"


def test_base64_to_binary_keeps_the_blanks() -> None:
    assert conversion.base64_to_binary("aGVsbG8 gd29ybGQ=") == content(OCTETS, "aGVsbG8 gd29ybGQ=")
    assert conversion.base64_to_binary("") == content(OCTETS, "")


@pytest.mark.parametrize("call", [conversion.base64_to_string, conversion.base64_to_binary])
@pytest.mark.parametrize("value", ["aa", "$#[<", "a\u00e4==", "YQ==YQ==", "YQ===", 1, None])
def test_what_is_no_base64_is_refused(call: Any, value: Any) -> None:
    with pytest.raises(FunctionError):
        call(value)


def test_binary_of_an_envelope_has_its_content() -> None:
    assert conversion.binary(conversion.binary("123")) == content(OCTETS, "MTIz")
    assert conversion.binary(3.14) == content(OCTETS, "My4xNA==")


def test_base64_refuses_what_would_be_too_long() -> None:
    with pytest.raises(FunctionError, match="characters"):
        conversion.base64("x" * (MAX_TEXT // 4 * 3 + 3))


# --- data URIs ----------------------------------------------------------------------------------------------------


def test_a_data_uri_names_the_kind_of_its_content() -> None:
    assert conversion.data_uri("hello") == "data:text/plain;charset=utf-8;base64,aGVsbG8="
    assert conversion.data_uri({"a": 3}) == "data:application/json;charset=utf-8;base64,eyJhIjozfQ=="
    assert conversion.data_uri(1.0) == "data:application/json;charset=utf-8;base64,MQ=="
    assert conversion.data_uri(content("image/png", "iVBORw==")) == "data:image/png;base64,iVBORw=="


@given(TEXTS_WITHOUT_MARKS)
def test_a_text_comes_back_from_its_data_uri(text: str) -> None:
    uri = conversion.data_uri(text)
    assert conversion.data_uri_to_string(uri) == text
    assert conversion.data_uri_to_binary(uri) == content("text/plain;charset=utf-8", conversion.base64(text))


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("data:,  [ 1 ]  ", "  [ 1 ]  "),
        ("data:text/plain;charset=utf-8,%22hello,%20w+d%22", '"hello, w d"'),
        ("data:base64,dGVzdA==", "test"),
        ("DATA:TEXT/PLAIN;CHARSET=UTF-8;BASE64,dGVz dA==", "test"),
        ("data:badmime;charset=utf-8,x", "x"),
        ("data:text/plain;test=wow;charset=nope;base64,dGVzdA==", "test"),
        ("data:text/plain;base64;charset=ascii,dGVzdA==", "dGVzdA=="),
    ],
)
def test_the_text_of_a_data_uri(uri: str, text: str) -> None:
    assert conversion.data_uri_to_string(uri) == text


@pytest.mark.parametrize(
    "uri",
    [
        "data:;;base64,dGVzdA==",
        "data:;,test",
        "data:text/plain;charset=ascii;base64,dGVzdA==",
        "data:text/plain;charset=utf-8;base64,aGVsbG8%20gd29ybGQ=",
        "data:text/plain",
        "http://a,b",
        "",
    ],
)
def test_data_uris_without_a_text(uri: str) -> None:
    with pytest.raises(FunctionError):
        conversion.data_uri_to_string(uri)


@pytest.mark.parametrize(
    ("uri", "content_type", "data"),
    [
        ("data:text/plain;charset=utf-8;base64,aGVsbG8%20g=", "text/plain;charset=utf-8", "aGVsbG8%20g="),
        ("data:base64,dGVzdA==", "text/plain", "dGVzdA=="),
        ("data:,a+b%FF", "text/plain", base64.b64encode(b"a b\xff").decode()),
        ("data:text/plain;base64;charset=ascii,dGVzdA==", "text/plain;base64;charset=ascii", "ZEdWemRBPT0="),
    ],
)
def test_the_content_of_a_data_uri(uri: str, content_type: str, data: str) -> None:
    assert conversion.data_uri_to_binary(uri) == content(content_type, data)


@pytest.mark.parametrize(
    "uri",
    [
        "data:badmime,x",
        "data:text/plain/epic;base64,dGVzdA==",
        "data:text/plain;charset=martian;base64,dGVzdA==",
        "data:text/plain;cats=cute=very,x",
        "data:text/plain;;,x",
    ],
)
def test_data_uris_without_a_content(uri: str) -> None:
    with pytest.raises(FunctionError, match=r"charset|data URI"):
        conversion.data_uri_to_binary(uri)


# --- URI components -----------------------------------------------------------------------------------------------


@given(TEXTS_WITHOUT_MARKS)
def test_a_text_comes_back_from_its_uri_component(text: str) -> None:
    component = conversion.uri_component(text)
    assert component.isascii()
    assert conversion.uri_component_to_string(component) == text
    assert text_of(conversion.uri_component_to_binary(component)) == text


def test_uri_components_escape_all_but_the_unreserved() -> None:
    assert conversion.uri_component("aZ09-_.~ +/\u00e4\U0001f600") == "aZ09-_.~%20%2B%2F%C3%A4%F0%9F%98%80"
    assert conversion.uri_component("\ud800") == "%EF%BF%BD"


def test_a_uri_component_that_would_be_too_long_is_refused() -> None:
    assert len(conversion.uri_component("\u00e4" * (MAX_TEXT // 6))) == MAX_TEXT // 6 * 6
    with pytest.raises(FunctionError, match="characters"):
        conversion.uri_component("\u00e4" * (MAX_TEXT // 6 + 1))


def test_what_is_no_escape_stays_when_decoding() -> None:
    assert conversion.uri_component_to_string("a+b%2%zz%C3%A4%FF%e4x%") == "a+b%2%zz\u00e4%FF%E4x%"
    assert conversion.uri_component_to_binary("%FFa") == content(OCTETS, base64.b64encode(b"\xffa").decode())


@pytest.mark.parametrize(
    "call", [conversion.uri_component, conversion.uri_component_to_string, conversion.uri_component_to_binary]
)
@pytest.mark.parametrize("value", [None, 1, ["a"], content(OCTETS, "")])
def test_uri_components_are_strings(call: Any, value: Any) -> None:
    with pytest.raises(FunctionError, match="'value' to be a string"):
        call(value)

"""The conversion functions for base64, envelopes, data URIs and URI components."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.errors import FunctionError
from loom.expressions.functions import binary
from loom.expressions.limits import MAX_TEXT
from loom.expressions.values import text_of

OCTETS = "application/octet-stream"
TEXTS = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: not text.startswith("\ufeff"))


def content(content_type: str, data: str) -> dict[str, str]:
    return {"$content-type": content_type, "$content": data}


# --- base64 and envelopes -----------------------------------------------------------------------------------------


@given(TEXTS)
def test_a_text_comes_back_from_base64(text: str) -> None:
    assert binary.base64(text) == base64.b64encode(text.encode()).decode()
    assert binary.base64_to_string(binary.base64(text)) == text
    assert text_of(binary.base64_to_binary(binary.base64(text))) == text
    assert text_of(binary.binary(text)) == text


def test_base64_of_an_envelope_is_its_content_and_of_a_value_that_of_its_text() -> None:
    assert binary.base64(content("image/png", "iVBO Rw==")) == "iVBORw=="
    assert binary.base64({"a": 1}) == "eyJhIjoxfQ=="
    assert binary.base64(True) == "VHJ1ZQ=="


@pytest.mark.parametrize("call", [binary.base64, binary.binary, binary.data_uri])
def test_null_has_no_content(call: Any) -> None:
    with pytest.raises(FunctionError, match="'value'"):
        call(None)


def test_base64_of_bytes_that_are_no_text_reads_as_replacement_characters() -> None:
    assert binary.base64_to_string("test") == "\ufffd\ufffd-"


def test_base64_to_binary_keeps_the_blanks() -> None:
    assert binary.base64_to_binary("aGVsbG8 gd29ybGQ=") == content(OCTETS, "aGVsbG8 gd29ybGQ=")
    assert binary.base64_to_binary("") == content(OCTETS, "")


@pytest.mark.parametrize("call", [binary.base64_to_string, binary.base64_to_binary])
@pytest.mark.parametrize("value", ["aa", "$#[<", "a\u00e4==", "YQ==YQ==", "YQ===", 1, None])
def test_what_is_no_base64_is_refused(call: Any, value: Any) -> None:
    with pytest.raises(FunctionError):
        call(value)


def test_binary_of_an_envelope_has_its_content() -> None:
    assert binary.binary(binary.binary("123")) == content(OCTETS, "MTIz")
    assert binary.binary(3.14) == content(OCTETS, "My4xNA==")


def test_base64_refuses_what_would_be_too_long() -> None:
    with pytest.raises(FunctionError, match="characters"):
        binary.base64("x" * (MAX_TEXT // 4 * 3 + 3))


# --- data URIs ----------------------------------------------------------------------------------------------------


def test_a_data_uri_names_the_kind_of_its_content() -> None:
    assert binary.data_uri("hello") == "data:text/plain;charset=utf-8;base64,aGVsbG8="
    assert binary.data_uri({"a": 3}) == "data:application/json;charset=utf-8;base64,eyJhIjozfQ=="
    assert binary.data_uri(1.0) == "data:application/json;charset=utf-8;base64,MQ=="
    assert binary.data_uri(content("image/png", "iVBORw==")) == "data:image/png;base64,iVBORw=="


@given(TEXTS)
def test_a_text_comes_back_from_its_data_uri(text: str) -> None:
    uri = binary.data_uri(text)
    assert binary.data_uri_to_string(uri) == text
    assert binary.data_uri_to_binary(uri) == content("text/plain;charset=utf-8", binary.base64(text))


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
    assert binary.data_uri_to_string(uri) == text


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
        binary.data_uri_to_string(uri)


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
    assert binary.data_uri_to_binary(uri) == content(content_type, data)


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
        binary.data_uri_to_binary(uri)


# --- URI components -----------------------------------------------------------------------------------------------


@given(TEXTS)
def test_a_text_comes_back_from_its_uri_component(text: str) -> None:
    component = binary.uri_component(text)
    assert component.isascii()
    assert binary.uri_component_to_string(component) == text
    assert text_of(binary.uri_component_to_binary(component)) == text


def test_uri_components_escape_all_but_the_unreserved() -> None:
    assert binary.uri_component("aZ09-_.~ +/\u00e4\U0001f600") == "aZ09-_.~%20%2B%2F%C3%A4%F0%9F%98%80"
    assert binary.uri_component("\ud800") == "%EF%BF%BD"


def test_a_uri_component_that_would_be_too_long_is_refused() -> None:
    assert len(binary.uri_component("\u00e4" * (MAX_TEXT // 6))) == MAX_TEXT // 6 * 6
    with pytest.raises(FunctionError, match="characters"):
        binary.uri_component("\u00e4" * (MAX_TEXT // 6 + 1))


def test_what_is_no_escape_stays_when_decoding() -> None:
    assert binary.uri_component_to_string("a+b%2%zz%C3%A4%FF%e4x%") == "a+b%2%zz\u00e4%FF%E4x%"
    assert binary.uri_component_to_binary("%FFa") == content(OCTETS, base64.b64encode(b"\xffa").decode())


@pytest.mark.parametrize("call", [binary.uri_component, binary.uri_component_to_string, binary.uri_component_to_binary])
@pytest.mark.parametrize("value", [None, 1, ["a"], content(OCTETS, "")])
def test_uri_components_are_strings(call: Any, value: Any) -> None:
    with pytest.raises(FunctionError, match="'value' to be a string"):
        call(value)

"""All 139 functions together: their names and arities, and that no arguments make them raise anything unexpected."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.expressions import ContextEnvironment, FunctionError
from loom.expressions.functions import all_names, find
from loom.expressions.functions.registry import FUNCTIONS, Function
from loom.expressions.values import INT_MAX, INT_MIN, kind_of

# Least and most arguments; None is any number.
ARITIES: dict[tuple[int, int | None], str] = {
    (0, 0): "action item listCallbackUrl trigger triggerBody triggerOutputs triggers workflow",
    (0, 1): "guid utcNow",
    (1, 1): "actionBody actionOutputs actions agentParameters appsetting array base64 base64ToBinary base64ToString"
    " binary body bool dataUri dataUriToBinary dataUriToString dayOfMonth dayOfWeek dayOfYear decimal decodeBase64"
    " decodeDataUri decodeUriComponent decodeXmlName decodeXmlValue empty encodeUriComponent encodeXmlName"
    " encodeXmlValue first isInt items iterationIndexes json last length not outputs parameters result reverse string"
    " ticks toLower toUpper triggerFormDataMultiValues triggerFormDataValue triggerMultipartBody trim"
    " trimByteOrderMark uriComponent uriComponentToBinary uriComponentToString uriHost uriPath uriPathAndQuery uriPort"
    " uriQuery uriScheme utf16Length utf8Length variables xml",
    (1, 2): "float int isFloat sort startOfDay startOfHour startOfMonth",
    (1, 3): "formatDateTime parseDateTime",
    (1, None): "and coalesce concat createArray max min or",
    (2, 2): "add chunk contains dateDifference div endsWith equals formDataMultiValues formDataValue greater"
    " greaterOrEquals indexOf join lastIndexOf less lessOrEquals mergeObjects mod mul multipartBody rand range"
    " removeProperty skip split startsWith sub take xpath",
    (2, 3): "addDays addHours addMinutes addSeconds convertFromUtc convertToUtc formatNumber formatTimeSpan"
    " getFutureTime getPastTime slice substring",
    (2, None): "intersection union",
    (3, 3): "addProperty if nthIndexOf replace setProperty",
    (3, 4): "addToTime convertTimeZone subtractFromTime",
}
NAMES = sorted(name for names in ARITIES.values() for name in names.split())


def known(name: str) -> Function:
    found = find(name)
    assert found is not None, f"there is no function '{name}'"
    return found


# --- the table ----------------------------------------------------------------------------------------------------


def test_there_are_139_functions_and_no_others() -> None:
    assert len(NAMES) == 139
    assert all_names() == NAMES
    assert sorted(known(name).name for name in NAMES) == NAMES
    assert sorted(FUNCTIONS) == sorted(name.lower() for name in NAMES)


@pytest.mark.parametrize(("arity", "names"), ARITIES.items())
def test_every_function_takes_so_many_arguments(arity: tuple[int, int | None], names: str) -> None:
    assert {name: (known(name).min_args, known(name).max_args) for name in names.split()} == dict.fromkeys(
        names.split(), arity
    )


@pytest.mark.parametrize("name", ["formatnumber", "FORMATNUMBER", "UtcNow", "jSON"])
def test_names_are_known_in_any_case(name: str) -> None:
    assert known(name).name.lower() == name.lower()


@pytest.mark.parametrize("name", ["", "nope", "concat ", "__init__", "find"])
def test_other_names_are_unknown(name: str) -> None:
    assert find(name) is None


# --- functions that undo each other -------------------------------------------------------------------------------

PLAIN_TEXTS = st.text(st.characters(max_codepoint=0xD7FF))


@given(PLAIN_TEXTS, st.integers(1, 7))
def test_the_chunks_of_a_text_joined_are_the_text(text: str, size: int) -> None:
    chunks = known("chunk").call(text, size)
    assert known("join").call(chunks, "") == text
    assert all(known("length").call(chunk) == size for chunk in chunks[:-1])


@given(st.lists(PLAIN_TEXTS.map(lambda text: text.replace("|", "")), min_size=1))
def test_texts_joined_and_split_are_the_same_texts(texts: list[str]) -> None:
    assert known("split").call(known("join").call(texts, "|"), "|") == texts


@given(PLAIN_TEXTS, st.integers(0, 30))
def test_what_is_taken_and_what_is_left_are_the_text(text: str, count: int) -> None:
    assert known("take").call(text, count) + known("slice").call(text, count) == text


# --- any arguments ------------------------------------------------------------------------------------------------

EXAMPLES = max(25, settings().max_examples // 20)
"""For each of the functions."""
CONTEXT: dict[str, Any] = {
    "variables": {"v": [1, 2]},
    "parameters": {"p": "x"},
    "actions": {"a": {"status": "Succeeded", "outputs": {"body": {"$formdata": [{"key": "k", "value": "v"}]}}}},
    "trigger": {"outputs": {"body": {"$multipart": [{"body": "part"}]}}},
    "item": 1,
    "items": {"l": {"n": None}},
    "iterationIndexes": {"l": 3},
    "workflow": {"name": "w"},
    "utcNow": "2024-02-29T12:34:56.7890123Z",
}
TEXTS_WITH_A_MEANING = [
    *("", "a", "v", "p", "l", "k", "true", "0", "-1.50", "1,000", "1e5", "nan", "9" * 30, "\U0001f600", "\ufeffa"),
    *("2024-02-29", "2024-02-29T23:59:59.9999999Z", "0001-01-01T00:00:00", "9999-12-31T23:59:59Z", "02/29/2024 12:30"),
    *("o", "R", "yyyy-MM-dd", "dd 'of' MMMM", "\\", "'", "%", "N2", "C", "X8", "#,##0.00;(0)", "E999999999", "d.hh:mm"),
    *(
        "Day",
        "month",
        "Week",
        "Second",
        "UTC",
        "W. Europe Standard Time",
        "Asia/Tokyo",
        "en-US",
        "de-DE",
        "xx",
        "1.02:03",
    ),
    *('{"a": [1, 2.0, null]}', "[[]]", "{", "<a b='1'>x<c/></a>", "<a", "/a/text()", "count(//*)", "//", "string(/a)"),
    *("YQ==", "Y", "data:;base64,YQ==", "data:text/plain,a%20b", "https://u@h:1/p/../q?r#s", "mailto:a@b", "%C3%A4%FF"),
    *("_x0020_", "&lt;&#65;", "N", "application/xml"),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.integers(INT_MIN, INT_MAX),
    st.floats(),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**20), max_value=10**20),
    st.sampled_from(TEXTS_WITH_A_MEANING),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
ENVELOPES = st.fixed_dictionaries(
    {
        "$content-type": st.sampled_from(["application/xml;charset=utf-8", "text/plain", "a/b;charset=nope", "x"])
        | SCALARS,
        "$content": st.sampled_from(["", "YQ==", "PGEgYj0iMSI+eDwvYT4=", "Y", "/////w=="]) | SCALARS,
    }
)
KEYS = st.sampled_from(["", "a", "A", "b", "$content", "@attr", "#text"])
VALUES = st.recursive(
    SCALARS | ENVELOPES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


def assert_plain(value: Any) -> None:
    """It is a value of the language through and through, and every store could keep it."""
    assert kind_of(value) in {"Null", "Boolean", "Integer", "Float", "Decimal", "String", "Array", "Object"}, value
    if type(value) is int:
        assert INT_MIN <= value <= INT_MAX
    elif isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, list | dict):
        for part in value:
            assert_plain(part)
        for part in value.values() if isinstance(value, dict) else ():
            assert_plain(part)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_no_arguments_make_a_function_raise_anything_but_its_error(name: str, data: st.DataObject) -> None:
    function = known(name)
    most = function.min_args + 3 if function.max_args is None else function.max_args
    arguments = data.draw(st.lists(VALUES, min_size=function.min_args, max_size=most))
    before = copy.deepcopy(arguments)
    environment = [ContextEnvironment(CONTEXT)] if function.asks else []
    try:
        result = function.call(*environment, *arguments)
    except FunctionError as error:
        assert str(error)  # noqa: PT017
    else:
        assert_plain(result)
    assert repr(arguments) == repr(before), "a function never changes what it is given"

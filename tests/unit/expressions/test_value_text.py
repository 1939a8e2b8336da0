"""Values as text, and the shape of JSON texts."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.errors import FunctionError
from loom.expressions.value_text import count_values, envelope, is_deeper, text_of

NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as is", "as is"),
        (None, ""),
        (True, "True"),
        (False, "False"),
        (-51, "-51"),
        (5.0, "5"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (0.00001, "1E-05"),
        (-1.5e-7, "-1.5E-07"),
        (999999999999999.9, "999999999999999.9"),
        (1e15, "1E+15"),
        (9.2e18, "9.2E+18"),
        (1.7e308, "1.7E+308"),
        (5e-324, "5E-324"),
        (NAN, "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Decimal("5.0000"), "5.0000"),
        (Decimal("70000000000000000000000000000"), "70000000000000000000000000000"),
        ([], "[]"),
        ({}, "{}"),
        ([1, 5.0, Decimal("5"), 1e20, NAN], '[1,5.0,5.0,1E+20,"NaN"]'),
        ({"a": [True, None, 'é"\\\n\x01']}, '{"a":[true,null,"é\\"\\\\\\n\\u0001"]}'),
        (["\x85\u2028"], '["\\u0085\\u2028"]'),
        (envelope("text/plain;charset=utf-8", "é".encode()), "é"),
        ([envelope("text/plain", b"x")], '[{"$content-type":"text/plain","$content":"eA=="}]'),
    ],
)
def test_text_of_a_value(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_an_envelope_is_read_in_its_charset() -> None:
    assert text_of(envelope("text/plain; charset=utf-16", "né".encode("utf-16-le"))) == "né"
    assert text_of(envelope("text/plain;charset=ISO-8859-1", b"\xe9")) == "é"
    assert text_of(envelope("application/octet-stream", b"\xff")) == "\ufffd"
    with pytest.raises(FunctionError, match="martian"):
        text_of(envelope("text/plain;charset=martian", b""))
    with pytest.raises(FunctionError, match="base64"):
        text_of({"$content-type": "text/plain", "$content": "%%%"})
    with pytest.raises(FunctionError, match="no string"):
        text_of({"$content-type": "text/plain", "$content": 3})


# --- the shape of a JSON text before it is decoded: never fewer values than there are, and linear ---------------------


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a,[]{}"\\:\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='a,["\\{'), inner),
    max_leaves=30,
)


def number_of(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(number_of, parts))


def depth_of(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)


@given(VALUES, st.integers(0, 40))
def test_no_value_is_missed_and_texts_do_not_count(value: Any, limit: int) -> None:
    text, number = json.dumps(value), number_of(value)
    counted = count_values(text, limit)
    assert counted > limit if number > limit else counted >= number
    # An empty list counts for what could be in it: closer than twice the values the count need not be.
    assert counted <= limit or 2 * number > limit


@given(VALUES, st.integers(0, 8))
def test_depth_is_that_of_brackets_outside_texts(value: Any, limit: int) -> None:
    assert is_deeper(json.dumps(value), limit) is (depth_of(value) > limit)


@pytest.mark.parametrize("text", ['"' * 400_001, '"' + "\\" * 2_000_001, '"\\"' * 300_000, "[" * 500_000])
def test_texts_that_are_no_json_are_measured_in_one_go(text: str) -> None:
    count_values(text, 0)
    is_deeper("[" * 3 + text, 2_000_000)

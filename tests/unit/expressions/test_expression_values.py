"""Values: their kinds, their texts, and how they compare."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from loom.expressions import identity, texts, utf16, values
from loom.expressions.casing import upper
from loom.expressions.envelopes import envelope
from loom.expressions.errors import FunctionError
from loom.expressions.identity import identities

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
    assert values.text_of(value) == text


def test_an_envelope_is_read_in_its_charset() -> None:
    assert values.text_of(envelope("text/plain; charset=utf-16", "né".encode("utf-16-le"))) == "né"
    assert values.text_of(envelope("text/plain;charset=ISO-8859-1", b"\xe9")) == "é"
    assert values.text_of(envelope("application/octet-stream", b"\xff")) == "\ufffd"
    with pytest.raises(FunctionError, match="martian"):
        values.text_of(envelope("text/plain;charset=martian", b""))
    with pytest.raises(FunctionError, match="base64"):
        values.text_of({"$content-type": "text/plain", "$content": "%%%"})
    with pytest.raises(FunctionError, match="no string"):
        values.text_of({"$content-type": "text/plain", "$content": 3})


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (1, 1.0, True),
        (1, Decimal("1.00"), True),
        (0.1, Decimal("0.1"), True),
        (1e300, Decimal(1), False),
        (NAN, NAN, True),
        (True, 1, False),
        (True, "true", True),
        ("false", False, True),
        (True, "yes", False),
        (None, "", False),
        (None, None, True),
        (None, False, False),
        ("a", "A", False),
        ("1", 1, False),
        ([1, {"a": 2}], [1.0, {"a": 2}], True),
        ([1], [1, 2], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"A": 1}, False),
        ({"a": None}, {"b": None}, False),
        ([], {}, False),
        ([], None, False),
    ],
)
def test_equality(a: Any, b: Any, equal: bool) -> None:
    assert values.equals(a, b) is equal
    assert values.equals(b, a) is equal


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [
        (1, 2, -1),
        (2.5, 2, 1),
        (Decimal("0.10"), 0.1, 0),
        (1e300, Decimal(5), 1),
        (float("-inf"), Decimal(5), -1),
        (NAN, -1e308, -1),
        (NAN, Decimal("1.50"), -1),
        ("apple", "banana", -1),
        ("a", "B", 1),
        ("", "a", -1),
        ("\U0001f600", "\uffff", -1),
    ],
)
def test_order(a: Any, b: Any, sign: int) -> None:
    assert values.compare(a, b) == sign
    assert values.compare(b, a) == -sign


@pytest.mark.parametrize(("a", "b"), [(1, "1"), (True, False), (None, None), ([], []), (1, None)])
def test_other_kinds_have_no_order(a: Any, b: Any) -> None:
    with pytest.raises(FunctionError, match="two numbers or two strings"):
        values.compare(a, b)


def test_kinds_have_names() -> None:
    samples = [None, True, 1, 1.0, Decimal(1), "", [], {}]
    names = ["Null", "Boolean", "Integer", "Float", "Decimal", "String", "Array", "Object"]
    assert [values.kind_of(sample) for sample in samples] == names


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def doubled(levels: int) -> list[Any]:
    """Small in memory, but a tree of 2 ** levels leaves."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value, value]
    return value


def test_walks_through_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (values, texts, identity):
        monkeypatch.setattr(module, "MAX_NODES", 10_000)
    assert values.json_text(deep(100)) == "[" * 100 + "]" * 100
    for hostile in (deep(101), deep(5000), doubled(60)):
        with pytest.raises(FunctionError):
            values.json_text(hostile)
    for one, other in ((deep(200), deep(200)), (doubled(60), doubled(60))):
        with pytest.raises(FunctionError, match="too large to compare"):
            values.equals(one, other)
    for hostile in (deep(101), doubled(60)):
        with pytest.raises(FunctionError, match="too large to compare"):
            identities([hostile])


def test_identity_knows_kinds_but_not_spellings_of_numbers() -> None:
    keys = identities(
        [1, 1.0, Decimal("1.00"), True, "1", None, NAN, -NAN, [1], [1.0], {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    )
    assert len({keys[0], keys[1], keys[2]}) == 1
    assert keys[6] == keys[7]
    assert keys[8] == keys[9]
    assert keys[10] == keys[11]
    assert len(set(keys)) == 7


def test_lengths_and_cuts_count_utf16_units() -> None:
    assert utf16.length("añ😀") == 4
    assert utf16.cut("a😀b", 1, 3) == "😀"
    assert utf16.cut("a😀b", 3) == "b"
    assert utf16.cut("a😀b", 0, 2) == "a\ufffd"
    assert utf16.cut("a😀b", 2) == "\ufffdb"
    assert utf16.cut("añb", 1, 9) == "ñb"


def test_decimals_from_floats_have_fifteen_digits() -> None:
    assert str(values.decimal_of(0.1 + 0.2)) == "0.3"
    assert str(values.decimal_of(1e20)) == "100000000000000000000"
    largest = Decimal(2**96 - 1)
    assert values.decimal_of(largest) == largest
    assert values.decimal_of(largest.copy_negate()) == largest.copy_negate()
    assert values.compare(largest, 1) == 1
    for number in (1e29, largest + 1, float("inf"), NAN):
        with pytest.raises(FunctionError):
            values.decimal_of(number)


def test_a_long_text_is_mapped_as_a_short_one_is() -> None:
    text = "aé\u2028ß😀" * 30_000
    assert upper(text) == upper(text[:5]) * 30_000
    assert texts.json_text([text]) == f'["{texts.json_text([text[:5]])[2:-2] * 30_000}"]'

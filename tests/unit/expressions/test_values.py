"""Values: their kinds, how they compare, and their parts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from loom.expressions import ExpressionError, evaluate, value_text, values
from loom.expressions.errors import FunctionError
from loom.expressions.value_text import json_text
from loom.expressions.values import identities

NAN = float("nan")


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
    for module in (values, value_text):
        monkeypatch.setattr(module, "MAX_NODES", 10_000)
    assert json_text(deep(100)) == "[" * 100 + "]" * 100
    for hostile in (deep(101), deep(5000), doubled(60)):
        with pytest.raises(FunctionError):
            json_text(hostile)
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


# --- parts: `.x`, `['x']`, `[0]`, with and without `?` ----------------------------------------------------------------


DATA = {
    "o": {"Name": "n", "name": 1, "NAME": 2, "Only": 3, "null": None, "a b": 4, "list": [10, 20], "text": "abc"},
    "paths": {"body/value": "exact", "body": {"value": "split", "items": {"Deep/er": 1, "deep": {"x": 2}}}},
}


def read_in_data(expression: str) -> Any:
    return evaluate("@variables('o')" + expression, {"variables": DATA})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (".name", 1),
        (".Name", "n"),
        (".nAME", "n"),
        (".only", 3),
        ("['ONLY']", 3),
        ("['a b']", 4),
        (".list[1]", 20),
        (".list[sub(1, 1)]", 10),
        ("['list'][0]", 10),
        ("?['missing']", None),
        ("?.null?.below?['further']", None),
        (".list?[2]", None),
        (".list?[-1]", None),
        (".null?[0]", None),
        ("?.list?[0]", 10),
        ("[concat('on', 'ly')]", 3),
    ],
)
def test_what_is_there_is_found_and_what_is_not_is_null_with_a_question_mark(expression: str, value: Any) -> None:
    assert read_in_data(expression) == value


@pytest.mark.parametrize(
    ("expression", "place", "words"),
    [
        (".missing", 15, "no property 'missing'; it has 'Name', 'name'"),
        (".null.x", 20, "cannot read 'x' of null"),
        ("?.missing.x", 24, "of null"),
        (".list[2]", 20, "the index 2 is outside the array, which has 2 elements"),
        (".list[-1]", 20, "index -1 is outside"),
        (".list?['x']", 20, "by an integer index, not by 'x'"),
        (".list?[true]", 20, "by an integer index"),
        ("?[0]", 15, "an object is read by the name of a property, not by a value of kind Integer"),
        ("?[null]", 15, "not by a value of kind Null"),
        (".text?.x", 20, "of a value of kind String"),
        (".text?[0]", 20, "of a value of kind String"),
        (".only?.x", 20, "of a value of kind Integer"),
    ],
)
def test_errors_name_the_step(expression: str, place: int, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read_in_data(expression)
    assert words in caught.value.message
    assert caught.value.position == place


def test_power_automate_writes_paths_as_keys() -> None:
    context = {"variables": DATA}
    assert evaluate("@variables('paths')['body/value']", context) == "exact"
    assert evaluate("@variables('paths')['Body/Items/deep/X']", context) == 2
    assert evaluate("@variables('paths')?['body/nope/x']", context) is None
    assert evaluate("@variables('paths')?['nope/x']", context) is None
    with pytest.raises(ExpressionError, match="no property 'nope'"):
        evaluate("@variables('paths')['body/nope']", context)
    with pytest.raises(ExpressionError, match="kind String"):
        evaluate("@variables('paths')?['body/value/x']", context)


def test_a_long_row_of_accesses_is_evaluated_without_deep_calls() -> None:
    value: Any = "end"
    for _ in range(2000):
        value = {"x": value}
    assert evaluate("@item()" + ".x" * 2000, {"item": value}) == "end"
    with pytest.raises(ExpressionError) as caught:
        evaluate("@item()" + ".x" * 2001, {"item": value})
    assert caught.value.position == 7 + 2 * 2000

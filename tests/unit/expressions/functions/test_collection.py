"""Collection and manipulation functions beyond the known cases."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from loom.expressions import ExpressionError, evaluate

CONTEXT = {
    "variables": {
        "people": [{"name": "b", "age": 2}, {"Name": "a", "age": 2}, {"name": "c", "age": 1}],
        "mixed": [1, "a"],
        "empty": [],
        "object": {"a": 1, "B": None},
        "smile": "a😀b",
        "floats": [1, 1.0, True, "true", None, [1], [1.0]],
        "decimal": Decimal("1.50"),
    }
}


def value_of(text: str) -> Any:
    return evaluate("@" + text, CONTEXT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("length(variables('smile'))", 4),
        ("first(variables('smile'))", "a"),
        ("last(variables('smile'))", "b"),
        ("take(variables('smile'), 3)", "a😀"),
        ("take(variables('smile'), 2)", "a\ufffd"),
        ("chunk(variables('smile'), 3)", ["a😀", "b"]),
        ("chunk('abcde', 2)", ["ab", "cd", "e"]),
        ("chunk('', 2)", []),
        ("chunk(variables('empty'), 2)", []),
        ("take('abc', 0)", ""),
        ("take(createArray(1, 2), 9)", [1, 2]),
        ("skip(createArray(1, 2, 3), 1)", [2, 3]),
        ("skip(createArray(1), 5)", []),
        ("skip(createArray(1, 2), 1.0)", [2]),
        ("contains(variables('object'), 'a')", True),
        ("contains(variables('object'), 'b')", False),
        ("contains(createArray(1, 2), 2.0)", True),
        ("contains(createArray(createArray(1)), createArray(1))", True),
        ("contains('abc', '')", True),
        ("empty(variables('object'))", False),
        ("empty(' ')", False),
        ("join(createArray(null, 1.0, variables('decimal'), true), '-')", "-1-1.50-True"),
        ("sort(createArray('b', 'a', 'C'))", ["C", "a", "b"]),
        ("sort(createArray(2.5, 1, 2))", [1, 2, 2.5]),
        ("union(variables('floats'), variables('floats'))", [1, True, "true", None, [1]]),
        ("union(createArray(1), createArray(2), createArray(1, 3))", [1, 2, 3]),
        ("intersection(variables('object'), json('{\"B\": null, \"a\": 2}'))", {"B": None}),
        ('intersection(json(\'[{"x": 1, "y": 2}, 3]\'), json(\'[{"y": 2, "x": 1}]\'))', [{"x": 1, "y": 2}]),
    ],
)
def test_values(text: str, expected: Any) -> None:
    found = value_of(text)
    assert found == expected
    assert type(found) is type(expected)


def test_sort_by_a_property_is_stable_and_ignores_case() -> None:
    assert [person["age"] for person in value_of("sort(variables('people'), 'age')")] == [1, 2, 2]
    assert [next(iter(person.values())) for person in value_of("sort(variables('people'), 'NAME')")] == ["a", "b", "c"]
    assert value_of("sort(variables('people'), 'age')")[1:] == CONTEXT["variables"]["people"][:2]


@pytest.mark.parametrize(
    "text",
    [
        "length(null)",
        "length(variables('object'))",
        "empty(1)",
        "first(null)",
        "last(variables('object'))",
        "take('abc', '1')",
        "take('abc', 1.5)",
        "take('abc', true)",
        "skip('abc', 1)",
        "skip(createArray(1), -1)",
        "chunk('abc', 0)",
        "chunk(1, 1)",
        "contains('abc', 1)",
        "contains(1, 1)",
        "contains(null, 'x')",
        "contains(variables('object'), 1)",
        "join('abc', ',')",
        "join(createArray('a'), 1)",
        "reverse('abc')",
        "sort('abc')",
        "sort(variables('mixed'))",
        "sort(createArray(true, false))",
        "sort(variables('people'), 'nope')",
        "sort(createArray(1), 'x')",
        "union(createArray(1), variables('object'))",
        "union(variables('object'), createArray(1))",
        "union(createArray(1))",
        "intersection('a', 'b')",
    ],
)
def test_wrong_arguments_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        value_of(text)


def test_large_arrays_cost_no_more_than_their_length() -> None:
    context = {"variables": {"a": list(range(100_000)), "b": list(range(50_000, 150_000))}}
    assert len(evaluate("@union(variables('a'), variables('b'))", context)) == 150_000
    assert len(evaluate("@intersection(variables('a'), variables('b'))", context)) == 50_000


# --- objects with one property more, less or changed ------------------------------------------------------------------


OBJECTS = {"variables": {"o": {"A": 1, "b": 2, "c": 3}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@setProperty(variables('o'), 'a', 9)", {"b": 2, "c": 3, "A": 9}),
        ("@setProperty(variables('o'), 'd', null)", {"A": 1, "b": 2, "c": 3, "d": None}),
        ("@addProperty(variables('o'), 'd', 4)", {"A": 1, "b": 2, "c": 3, "d": 4}),
        ("@removeProperty(variables('o'), 'B')", {"A": 1, "c": 3}),
        ("@removeProperty(variables('o'), 'x')", {"A": 1, "b": 2, "c": 3}),
        ("@mergeObjects(variables('o'), json('{\"b\": 5, \"a\": 6}'))", {"A": 1, "b": 5, "c": 3, "a": 6}),
        ("@coalesce(null, json('[]'), 1)", []),
    ],
)
def test_values_and_order(text: str, expected: Any) -> None:
    found = evaluate(text, OBJECTS)
    assert found == expected
    assert list(found) == list(expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@addProperty(variables('o'), 'B', 1)", "to not exist in the object, but it has 'b'"),
        ("@setProperty(1, 'a', 1)", "'object' to be an object, not Integer"),
        ("@setProperty(variables('o'), null, 1)", "'property' to be a string, not Null"),
        ("@removeProperty(null, 'a')", "to be an object, not Null"),
        ("@mergeObjects(variables('o'), json('[]'))", "'object2' to be an object, not Array"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        evaluate(text, OBJECTS)

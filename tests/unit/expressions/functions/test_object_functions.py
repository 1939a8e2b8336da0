"""Manipulation functions: objects with one property more, less or changed."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import ExpressionError, evaluate

CONTEXT = {"variables": {"o": {"A": 1, "b": 2, "c": 3}}}


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
    found = evaluate(text, CONTEXT)
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
        evaluate(text, CONTEXT)

"""Reading parts of values: `.x`, `['x']`, `[0]`, with and without `?`."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import ExpressionError, evaluate

DATA = {
    "o": {"Name": "n", "name": 1, "NAME": 2, "Only": 3, "null": None, "a b": 4, "list": [10, 20], "text": "abc"},
    "paths": {"body/value": "exact", "body": {"value": "split", "items": {"Deep/er": 1, "deep": {"x": 2}}}},
}


def read(expression: str) -> Any:
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
    assert read(expression) == value


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
        read(expression)
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

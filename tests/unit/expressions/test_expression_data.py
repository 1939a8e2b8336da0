"""Whole JSON values: every string and every key in them is a template."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import ContextEnvironment, ExpressionError, compile_value, join_path, templates_in

ENV = ContextEnvironment({"variables": {"n": 3, "key": "k"}, "item": {"x": [1]}})


def test_every_string_and_key_is_a_template() -> None:
    data = {
        "plain": ["a", 1, None, {"b": "text"}],
        "@@odata.type": "@@literal",
        "@{variables('key')}": "@variables('n')",
        "nested": [{"deep": "n is @{variables('n')}"}, "@item().x"],
        "constant": "@true",
    }
    assert compile_value(data)(ENV) == {
        "plain": ["a", 1, None, {"b": "text"}],
        "@odata.type": "@literal",
        "k": 3,
        "nested": [{"deep": "n is 3"}, [1]],
        "constant": True,
    }


@pytest.mark.parametrize("data", [None, 1, "text", [], {}, {"a": [1, {"b": "x"}]}, "[parameters('@{x}')]"])
def test_data_without_expressions_is_the_same_object(data: Any) -> None:
    assert compile_value(data)(ENV) is data


def test_parts_without_expressions_are_shared() -> None:
    constant = {"much": ["data"]}
    made = compile_value({"a": constant, "b": "@variables('n')"})
    assert made(ENV)["a"] is constant
    assert made(ENV) is not made(ENV)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"headers": {"X-Y": "@nope()"}}, "inputs.headers['X-Y']"),
        ({"headers": {"X Y": "@nope()"}}, "inputs.headers['X Y']"),
        ({"it's": ["a", {"b": "@nope()"}]}, "inputs['it''s'][1].b"),
        ({"@{nope()}": 1}, "inputs['@{nope()}']"),
        ("@nope()", "inputs"),
    ],
)
def test_errors_of_evaluation_name_the_path(data: Any, path: str) -> None:
    evaluate = compile_value(data, path="inputs")
    with pytest.raises(ExpressionError) as caught:
        evaluate(ENV)
    assert caught.value.path == path
    assert caught.value.function == "nope"
    assert str(caught.value).endswith(f"in {path})")


def test_errors_of_syntax_name_the_path() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_value({"a": [{"b": "@broken"}]})
    assert caught.value.path == "a[0].b"
    assert caught.value.position == 1


def test_a_key_must_be_text() -> None:
    with pytest.raises(ExpressionError, match="a key must be a string, not Integer"):
        compile_value({"@variables('n')": 1})(ENV)
    with pytest.raises(ExpressionError, match="a key must be a string, not Boolean"):
        compile_value({"@true": 1})(ENV)


def test_later_keys_win_if_two_become_the_same() -> None:
    assert compile_value({"k": 1, "@{variables('key')}": 2})(ENV) == {"k": 2}


def test_depth_is_limited() -> None:
    value: Any = "x"
    for _ in range(100):
        value = [value]
    assert compile_value(value)(ENV) is value
    with pytest.raises(ExpressionError, match="100 levels deep") as caught:
        compile_value({"a": value})
    assert caught.value.path == "a" + "[0]" * 99


def test_the_dialect_reaches_all_templates() -> None:
    data = {"a": ["@not(@empty(variables('later')))"]}
    assert compile_value(data, lenient=True, lenient_reads=True)(ENV) == {"a": [False]}
    with pytest.raises(ExpressionError):
        compile_value(data)


def test_templates_are_found_in_the_order_of_the_text_without_recursion() -> None:
    data = {"b": "@one()", "@{two()}": [{"c d": "x @{three()}"}, "plain", 1], "z": "a@b"}
    assert list(templates_in(data, "inputs")) == [
        ("inputs.b", "@one()"),
        ("inputs['@{two()}']", "@{two()}"),
        ("inputs['@{two()}'][0]['c d']", "x @{three()}"),
        ("inputs.z", "a@b"),
    ]
    value: Any = "@x()"
    for _ in range(5000):
        value = [value]
    assert [text for _, text in templates_in(value)] == ["@x()"]
    assert join_path("", "a") == "a"
    assert join_path("", "a b") == "['a b']"

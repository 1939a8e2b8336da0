"""Calls: order, laziness, arity, and errors that name function and place."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import Compiled, Constant, ContextEnvironment, ExpressionError, compile_template, evaluate
from loom.expressions.calls import SourceLocation, compile_call


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("@and(false, nope())", False),
        ("@and(true, equals(1, 1), true)", True),
        ("@or(true, nope())", True),
        ("@or(false, false)", False),
        ("@if(true, 1, nope())", 1),
        ("@if(false, nope(), 2)", 2),
        ("@coalesce(null, '', nope())", ""),
        ("@coalesce(null)", None),
        ("@IF(True, 'a', NOPE())", "a"),
    ],
)
def test_what_is_not_needed_is_not_evaluated(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "position", "function", "words"),
    [
        ("@concat('a', nope(1))", 13, "nope", "The template function 'nope' is not defined or not valid"),
        ("@and()", 1, "and", "expects at least one argument, not 0"),
        ("@if(true, 1)", 1, "if", "expects exactly 3 arguments, not 2"),
        ("@not(1)", 1, "not", "expects its argument 'expression' to be a boolean, not Integer"),
        ("@if('true', 1, 2)", 1, "if", "to be a boolean, not String"),
        ("@and(true, 1)", 1, "and", "to be a boolean, not Integer"),
        ("@or(false, null)", 1, "or", "to be a boolean, not Null"),
        ("x @{ add(1, 'a') }", 5, "add", "to be a number, not String"),
        ("@equals(1, variables('x'))", 11, "variables", "there is no variable 'x'; there are none"),
        ("@length(Take('a', -1))", 8, "Take", "positive integer"),
    ],
)
def test_errors_name_the_function_and_the_place(text: str, position: int, function: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(text)
    assert caught.value.position == position
    assert caught.value.function == function
    assert caught.value.text == text
    assert words in str(caught.value)


def test_long_texts_are_shortened_in_errors() -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate("@nope('" + "x" * 500 + "')")
    assert len(str(caught.value)) < 250


def test_arguments_are_evaluated_from_left_to_right() -> None:
    seen: list[int] = []

    def noted(number: int) -> Compiled:
        def argument(_: object) -> int:
            seen.append(number)
            return number

        return argument

    env = ContextEnvironment({})
    for count in (2, 3, 5):
        name = "createArray"
        call = compile_call(name, [noted(number) for number in range(count)], SourceLocation("", None, name))
        seen.clear()
        assert call(env) == seen == list(range(count))


def test_calls_can_be_made_of_compiled_parts() -> None:
    call = compile_call("and", [Constant(True), Constant(False)], SourceLocation("{and: …}", None, "and"))
    assert call(ContextEnvironment({})) is False
    with pytest.raises(ExpressionError, match="not defined") as caught:
        compile_call("nope", [], SourceLocation("{nope: …}", None, "nope"))(ContextEnvironment({}))
    assert caught.value.position is None


def test_deep_expressions_are_evaluated_within_pythons_stack() -> None:
    assert evaluate("@" + "not(" * 99 + "true" + ")" * 99) is False
    assert evaluate("@" + "createArray(" * 98 + "1" + ")" * 98 + "[0]" * 98) == 1


def test_results_are_bounded() -> None:
    context = {
        "variables": {"long": "x" * (9 * 1024 * 1024), "many": list(range(700_000)), "more": list(range(-700_000, 0))}
    }
    for text in (
        "@{variables('long')}@{variables('long')}",
        "@concat(variables('long'), variables('long'))",
        "@join(createArray(variables('long'), variables('long')), '')",
        "@replace(variables('long'), 'x', 'yy')",
        "@union(variables('many'), variables('more'))",
        "@chunk(variables('long'), 1)",
        "@split(variables('long'), 'x')",
    ):
        with pytest.raises(ExpressionError, match="at most"):
            evaluate(text, context)


def test_all_calls_together_are_bounded() -> None:
    ranges = ", ".join(["range(1, 100000)"] * 400)
    with pytest.raises(ExpressionError, match="builds too much") as caught:
        evaluate(f"@createArray({ranges})")
    assert caught.value.function == "range"
    copies = ", ".join(["toLower(variables('x'))"] * 20)
    with pytest.raises(ExpressionError, match="builds too much"):
        evaluate(f"@createArray({copies})", {"variables": {"x": "x" * 8_000_000}})
    assert len(evaluate(f"@createArray({copies})", {"variables": {"x": "x" * 1_000_000}})) == 20


def test_evaluation_changes_nothing_that_it_is_given() -> None:
    context = {"variables": {"o": {"a": 1}, "l": [2, 1]}}
    for text in (
        "@setProperty(variables('o'), 'a', 2)",
        "@addProperty(variables('o'), 'b', 2)",
        "@removeProperty(variables('o'), 'a')",
        "@sort(variables('l'))",
        "@reverse(variables('l'))",
        "@union(variables('l'), createArray(3))",
        "@mergeObjects(variables('o'), json('{\"z\": 1}'))",
    ):
        assert compile_template(text).evaluate(ContextEnvironment(context)) is not None
    assert context == {"variables": {"o": {"a": 1}, "l": [2, 1]}}

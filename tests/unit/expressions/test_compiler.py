"""Template strings and JSON values, compiled."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import (
    ContextEnvironment,
    ExpressionError,
    call_problem,
    compile_template,
    compile_value,
    evaluate,
    join_path,
    templates_in,
)

# --- template strings: what is text, what is an expression, and how they mix ------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("@", "@"),
        (" @", " @"),
        ("a@b.c", "a@b.c"),
        ("a@@b", "a@@b"),
        ("11", "11"),
        ("array[1]", "array[1]"),
        ("@@", "@"),
        ("@@odata.type", "@odata.type"),
        ("@@{'a'} and @{'b'}", "@{'a'} and @{'b'}"),
        ("a @@{'b'}", "a @{'b'}"),
        ("}{", "}{"),
        ("[parameters('x')]", "[parameters('x')]"),
        ("[concat('@{', variables('x'), '}')]", "[concat('@{', variables('x'), '}')]"),
        ("[[ Some.name_1 (@{broken ]", "[[ Some.name_1 (@{broken ]"),
    ],
)
def test_text_without_expressions_is_itself(text: str, value: str) -> None:
    template = compile_template(text)
    assert template.is_literal
    assert template.value == value
    assert template.calls == ()
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("@true", True),
        ("@{true}", "True"),
        ("@3", 3),
        ("@{3}", "3"),
        ("a@{1}b@{null}c@{'d'}", "a1bcd"),
        ("@{'}'}", "}"),
        ("@{ 'a' }b", "ab"),
        ("x@@{y}@{'z'}", "x@{y}z"),
        ("[@{'x'}]", "[x]"),
        ("@createArray(1)", [1]),
        ("@{createArray(1, 2.0, 'a')}", '[1,2.0,"a"]'),
        ("[]@{1}", "[]1"),
    ],
)
def test_expressions_keep_their_kind_and_interpolations_are_text(text: str, value: Any) -> None:
    found = evaluate(text)
    assert found == value
    assert type(found) is type(value)
    assert not compile_template(text).is_literal


@pytest.mark.parametrize(
    ("text", "position"),
    [("@{}", 2), (" @{", 3), ("x@{f()", 1), ("x@{'a'", 1), ("@{'a', 'b'}", 5), ("a@{'b}", 3), ("@{'a'}@{x}", 8)],
)
def test_broken_interpolations_name_the_place(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template(text)
    assert caught.value.position == position


def test_only_expressions_have_a_limit_of_length() -> None:
    assert evaluate("x" * 20_000 + "@{1}" * 5_000).endswith("x1" + "1" * 4_999)


def test_the_calls_of_a_template_are_known_before_it_runs() -> None:
    template = compile_template("a @{body('Http')?[item()]} @{nope(1, variables(concat('x')))}")
    assert [call[:2] for call in template.calls] == [
        ("body", "Http"),
        ("item", None),
        ("nope", None),
        ("variables", None),
        ("concat", "x"),
    ]
    assert [call.position for call in template.calls] == [4, 18, 29, 37, 47]
    assert [call.arguments for call in template.calls] == [1, 0, 2, 1, 1]
    assert call_problem("nope", 2) == "The template function 'nope' is not defined or not valid"
    assert call_problem("CONCAT", 1) is None
    assert call_problem("concat", 0) == "The template function 'concat' expects at least one argument, not 0"
    assert call_problem("substring", 5) == "The template function 'substring' expects 2 to 3 arguments, not 5"
    assert call_problem("item", 1) == "The template function 'item' expects exactly no argument, not 1"


def test_a_template_is_compiled_once() -> None:
    assert compile_template("@concat('a', 'once')") is compile_template("@concat('a', 'once')")
    assert compile_template("@empty('')") is not compile_template("@empty('')", lenient=True)


def test_the_lenient_dialect_reads_a_nested_at_sign() -> None:
    env = ContextEnvironment({"variables": {"q": []}})
    assert compile_template("@not(@empty(variables('q')))", lenient=True).evaluate(env) is False
    assert compile_template("is @{not(@empty(@variables('q')))}", lenient=True).evaluate(env) == "is False"
    with pytest.raises(ExpressionError):
        compile_template("@not(@empty(variables('q')))")


@pytest.mark.parametrize(
    "text",
    [
        "@body('check').status",
        "@body('check')['a'][0].b",
        "@outputs('check')",
        "@actions('check').outputs.body",
        "@variables('later')",
        "@result('scope')[3]",
        "@variables('known').missing",
        "@variables('known').none.below",
        "@variables('known').list[7]",
    ],
)
def test_lenient_reads_give_null_for_what_is_not_there_yet(text: str) -> None:
    env = ContextEnvironment({"variables": {"known": {"none": None, "list": []}}})
    assert compile_template(text, lenient_reads=True).evaluate(env) is None
    with pytest.raises(ExpressionError):
        compile_template(text).evaluate(env)


@pytest.mark.parametrize(
    "text", ["@variables(1)", "@parameters('nope')", "@nope()", "@variables('s').x", "@items('l')"]
)
def test_lenient_reads_excuse_nothing_else(text: str) -> None:
    env = ContextEnvironment({"variables": {"s": "text"}})
    with pytest.raises(ExpressionError):
        compile_template(text, lenient_reads=True).evaluate(env)


# --- JSON values: every string and every key in them is a template ----------------------------------------------------


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

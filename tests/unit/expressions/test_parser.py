"""The grammar: trees, positions, and errors that say what was expected and where."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions.errors import ExpressionError
from loom.expressions.parser import Access, Expression, FunctionCall, Literal, parse


def tree(text: str, *, lenient: bool = False) -> Expression:
    return parse(text, 1, closed=False, lenient=lenient)[0]


def failure(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        tree(text)
    assert caught.value.text == text
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("'a}b@{c'", "a}b@{c"),
        ("'two\nlines'", "two\nlines"),
        ("true", True),
        ("FALSE", False),
        ("Null", None),
        ("0", 0),
        ("+54", 54),
        ("-01", -1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("000000000000000000000000000000001", 1),
        ("1.", 1.0),
        ("-01.0", -1.0),
        ("3e1", 30.0),
        ("3E+1", 30.0),
        ("1.e-1", 0.1),
        ("+.5", 0.5),
        ("-.5e1", -5.0),
        ("1e999", float("inf")),
    ],
)
def test_literals_keep_their_kind(text: str, value: Any) -> None:
    found = tree("@ " + text + " ")
    assert found == Literal(value, 2)
    assert isinstance(found, Literal)
    assert type(found.value) is type(value)


def test_a_call_has_its_arguments_and_accesses_with_positions() -> None:
    assert tree("@f( 'a' , g() ) ?.x [ 0 ]?['y']") == FunctionCall(
        "f",
        (Literal("a", 4), FunctionCall("g", (), (), 10)),
        (
            Access(Literal("x", 18), True, 16),
            Access(Literal(0, 22), False, 20),
            Access(Literal("y", 27), True, 25),
        ),
        1,
    )


def test_names_may_be_nearly_anything() -> None:
    assert tree("@naïve-näme#1()") == FunctionCall("naïve-näme#1", (), (), 1)
    assert tree("@f().5") == FunctionCall("f", (), (Access(Literal("5", 5), False, 4),), 1)
    assert tree("@true()") == FunctionCall("true", (), (), 1)


def test_white_space_and_line_ends_are_fine_everywhere() -> None:
    call = tree("@ \r\n concat \t(\n 'a'\u3000,\n'b' ) . x ? [ 'y' ]\n")
    assert isinstance(call, FunctionCall)
    assert call.name == "concat"
    assert [access.optional for access in call.accesses] == [False, True]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("@ ", 2, "expected a function call"),
        ("@()", 1, "expected a function call"),
        ("@f(", 3, "the text ends"),
        ("@f('a'", 6, "expected ',' or ')'"),
        ("@f('a' 'b')", 7, "expected ',' or ')'"),
        ("@f('a',)", 7, "expected a function call"),
        ("@f(,'a')", 3, "expected a function call"),
        ("@f()x", 4, "expected the end"),
        ("@f()()", 4, "cannot be called"),
        ("@f()?", 5, "expected '.' or '['"),
        ("@f()?.", 6, "name of a property"),
        ("@f().?x", 5, "name of a property"),
        ("@f()['x'", 8, "expected ']'"),
        ("@f()[]", 5, "expected a function call"),
        ("@f('a)", 3, "never closed"),
        ("@'a'.length", 4, "a literal cannot be followed by '.'"),
        ("@1['x']", 2, "a literal cannot be followed by '['"),
        ("@null?.x", 5, "a literal cannot be followed by '?'"),
        ("@name", 1, "'name' means nothing by itself"),
        ("@1e", 1, "'1e' means nothing by itself"),
        ("@++1", 1, "means nothing by itself"),
        ("@.3", 1, "expected a function call"),
        ("@1e1.1", 4, "a literal cannot be followed"),
        ("@1 + 2", 3, "expected the end"),
        ('@"text"', 1, "means nothing by itself"),
        ("@not(@empty(''))", 5, "there is '@'"),
        ("@9223372036854775808", 1, "64 bits"),
        ("@-9223372036854775809", 1, "64 bits"),
        ("@" + "9" * 5000, 1, "64 bits"),
    ],
)
def test_errors_say_what_was_expected_and_where(text: str, position: int, words: str) -> None:
    error = failure(text)
    assert error.position == position
    assert words in error.message
    assert f"at position {position}" in str(error)


def test_a_nested_at_sign_is_ignored_in_looms_own_dialect() -> None:
    assert tree("@not(@empty(@variables('q')))", lenient=True) == FunctionCall(
        "not", (FunctionCall("empty", (FunctionCall("variables", (Literal("q", 23),), (), 13),), (), 6),), (), 1
    )


def test_nesting_has_a_limit_and_no_text_exhausts_the_stack() -> None:
    assert tree("@" + "f(" * 99 + "1" + ")" * 99)
    assert "100 levels" in failure("@" + "f(" * 100 + "1" + ")" * 100).message
    assert "100 levels" in failure("@" + "f(" * 4000).message
    assert "100 levels" in failure("@f()" + "[f()" * 2000).message


def test_a_long_row_of_accesses_is_no_nesting() -> None:
    call = tree("@f()" + "?.x" * 2000)
    assert isinstance(call, FunctionCall)
    assert len(call.accesses) == 2000


def test_an_expression_has_at_most_8192_characters() -> None:
    fits = "@f('" + "x" * (8192 - 5) + "')"
    assert len(fits) - 1 == 8192
    assert tree(fits)
    assert "8,192" in failure(fits[:-1] + " )").message

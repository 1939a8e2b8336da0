"""Laws of the expression language: two parsers agree, and every text has a value or an error that names its place."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from expression_texts import ANY, VALUES, templates
from expressions_lark import lark_template
from hypothesis import example, given

from loom.expressions import ExpressionError, compile_template, evaluate
from loom.expressions.parser import parse_template
from loom.expressions.value_text import json_text

NOW = "2026-01-02T03:04:05.6789012Z"
SECONDS = 0.1
"""What an evaluation may take; most take microseconds."""
ATTEMPTS = 5
"""How often it may try on a busy machine."""


def assert_placed(error: ExpressionError, text: str) -> None:
    assert error.text == text
    assert error.position is not None
    assert 0 <= error.position <= len(text)


def parsed(text: str) -> Any:
    try:
        return parse_template(text)
    except ExpressionError as error:
        assert_placed(error, text)
        return error if "64 bits" in error.message or "levels deep" in error.message else None


@given(ANY)
@example("@f()?['a']?.b[0]")
@example("@@@{1}")
@example("a@@@{1}@{2}")
@example("@{'}'}@@{x}")
@example("@1.5a")
@example("@true ()")
@example("@-.5.x")
@example("@1(2)")
def test_two_parsers_agree(text: str) -> None:
    ours = parsed(text)
    if not isinstance(ours, ExpressionError):  # A limit, which the other parser does not have.
        assert repr(ours) == repr(lark_template(text))


@given(templates())
def test_what_the_grammar_makes_is_accepted(text: str) -> None:
    assert parsed(text) is not None


def outcome(text: str, context: dict[str, Any]) -> Any:
    try:
        return evaluate(text, context)
    except ExpressionError as error:
        assert_placed(error, text)
        return str(error)


@given(ANY, VALUES)
@example("@range(1, 100000)", None)
@example("@join(range(1, 100000), ',')", None)
@example("@" + "concat(" * 99 + "'x'" + ")" * 99, None)
@example("@replace(replace(replace('xxxxxxxx', 'x', 'xxxxxxxx'), 'x', 'xxxxxxxx'), 'x', 'xxxxxxxx')", None)
def test_every_text_has_a_value_or_an_error_soon_and_always_the_same(text: str, value: Any) -> None:
    context = {
        "variables": {"a": value, "x": value},
        "parameters": {"x": value},
        "actions": {"x": {"outputs": value}},
        "trigger": {"outputs": {"body": value}},
        "items": {"x": value},
        "item": value,
        "workflow": {"name": "w"},
        "utcNow": NOW,
    }
    first = outcome(text, context)  # This one may also import a family of functions.
    for _ in range(ATTEMPTS):
        began = process_time()
        again = outcome(text, context)
        seconds = process_time() - began
        assert json_text([again]) == json_text([first])
        if seconds < SECONDS:
            return
    pytest.fail(f"takes {seconds} s")


@given(ANY)
def test_the_dialects_refuse_no_more_than_the_strict_language(text: str) -> None:
    try:
        strict = compile_template(text)
    except ExpressionError:
        return
    assert compile_template(text, lenient=True, lenient_reads=True).calls == strict.calls

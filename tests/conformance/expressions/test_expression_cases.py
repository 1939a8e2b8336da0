"""Every known case of the language: template strings and their values, and those that must fail.

The cases are facts about the service. Of a dubious one, `loom` is the answer that Loom gives.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from loom.expressions import ExpressionError, compile_template, evaluate

HERE = Path(__file__).parent
NOW = "2026-01-02T03:04:05.6789012Z"


def load(name: str) -> list[Any]:
    cases = json.loads((HERE / name).read_text(encoding="utf-8"))
    assert len({case["id"] for case in cases}) == len(cases)
    return [pytest.param(case, id=case["id"]) for case in cases]


def evaluate_case(case: dict[str, Any]) -> Any:
    return evaluate(case["expression"], {"utcNow": NOW} | case.get("context", {}))


def same(actual: Any, expected: Any) -> bool:
    """Equal in value and in kind: a boolean is no number, 3 is not 3.0, and the order of keys counts."""
    if isinstance(actual, Decimal):
        return isinstance(expected, int | float) and not isinstance(expected, bool) and actual == Decimal(str(expected))
    if type(actual) is not type(expected):
        return False
    if isinstance(actual, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(actual, dict):
        return list(actual) == list(expected) and all(same(actual[key], expected[key]) for key in actual)
    return bool(actual == expected)


def assert_matches(case: dict[str, Any], actual: Any) -> None:
    expected = case["expected"]
    match case.get("match"):
        case "regex":
            assert isinstance(actual, str)
            assert re.search(expected, actual), actual
        case "one_of":
            assert any(same(actual, one) for one in expected), actual
        case "approx":
            assert math.isclose(actual, expected, rel_tol=1e-12)
        case None:
            assert same(actual, expected), actual
    kinds = {"integer": int, "float": float}
    if "expected_type" in case:
        assert type(actual) is kinds[case["expected_type"]]


@pytest.mark.parametrize("case", load("expression_cases.json"))
def test_value(case: dict[str, Any]) -> None:
    answer = case["loom"] if case.get("dubious") else {}
    if answer.get("error"):
        with pytest.raises(ExpressionError):
            evaluate_case(case)
    elif "value" in answer:
        assert same(evaluate_case(case), answer["value"])
    elif "one_of" in answer:
        assert evaluate_case(case) in answer["one_of"]
    else:
        assert_matches(case, evaluate_case(case))


@pytest.mark.parametrize("case", load("expression_error_cases.json"))
def test_error(case: dict[str, Any]) -> None:
    if case.get("phase") == "parse":
        with pytest.raises(ExpressionError) as caught:
            compile_template(case["expression"])
    else:
        with pytest.raises(ExpressionError) as caught:
            evaluate_case(case)
    assert caught.value.text == case["expression"]
    assert caught.value.position is not None
    assert 0 <= caught.value.position <= len(case["expression"])

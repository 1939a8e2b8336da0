"""Reference functions, asked in an environment of plain data."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import ExpressionError, evaluate

RECORD = {"name": "Http", "status": "Failed", "outputs": {"statusCode": 404, "body": {"a": 1}}, "code": "NotFound"}
CONTEXT = {
    "variables": {"Count": 3, "none": None},
    "parameters": {"p": "v"},
    "actions": {
        "Http": RECORD,
        "Compose": {"outputs": {"x": 1}},
        "Text": {"outputs": "plain"},
        "Skipped": {"status": "Skipped"},
        "Empty": {"outputs": {"body": None}},
    },
    "trigger": {"name": "manual", "outputs": {"headers": {}, "body": {"q": [1]}}},
    "items": {"Loop": {"id": 7}},
    "iterationIndexes": {"Until": 2},
    "results": {"Scope": [RECORD]},
    "item": "here",
    "action": RECORD,
    "workflow": {"name": "flow", "run": {"name": "r1"}},
    "appSettings": {"Url": "http://localhost"},
    "agentParameters": {"city": "Oslo"},
    "callbackUrl": "http://localhost/callback",
    "utcNow": "2026-01-02T03:04:05.0000000Z",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("variables('count')", 3),
        ("variables('none')", None),
        ("parameters('P')", "v"),
        ("actions('http').status", "Failed"),
        ("outputs('Http')", RECORD["outputs"]),
        ("actionOutputs('Http').statusCode", 404),
        ("body('Http')", {"a": 1}),
        ("actionBody('Http').a", 1),
        ("body('Compose')", {"x": 1}),
        ("body('Text')", "plain"),
        ("body('Skipped')", None),
        ("outputs('Skipped')", None),
        ("body('Empty')", None),
        ("trigger().name", "manual"),
        ("triggers().name", "manual"),
        ("triggerOutputs().headers", {}),
        ("triggerBody()?['q'][0]", 1),
        ("items('loop').id", 7),
        ("iterationIndexes('Until')", 2),
        ("result('Scope')[0].code", "NotFound"),
        ("item()", "here"),
        ("action().code", "NotFound"),
        ("workflow().run.name", "r1"),
        ("appsetting('url')", "http://localhost"),
        ("appsetting('other')", None),
        ("agentParameters('city')", "Oslo"),
        ("listCallbackUrl()", "http://localhost/callback"),
    ],
)
def test_what_the_context_has_is_found(text: str, expected: Any) -> None:
    assert evaluate("@" + text, CONTEXT) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("variables('x')", "there is no variable 'x'; there are: 'Count', 'none'"),
        ("parameters('x')", "there is no parameter 'x'; there are: 'p'"),
        ("body('x')", "there is no action 'x'; there are: 'Http', 'Compose'"),
        ("actions('x')", "there is no action 'x'"),
        ("items('x')", "there is no loop 'x'"),
        ("iterationIndexes('x')", "there is no loop 'x'"),
        ("result('x')", "there is no scope 'x'"),
        ("agentParameters('x')", "there is no agent parameter 'x'"),
        ("variables(null)", "'variableName' to be a string, not Null"),
        ("body(1)", "'actionName' to be a string, not Integer"),
    ],
)
def test_unknown_names_are_errors(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        evaluate("@" + text, CONTEXT)


@pytest.mark.parametrize(
    "text", ["item()", "trigger()", "triggerBody()", "workflow()", "action()", "listCallbackUrl()", "utcNow()"]
)
def test_without_a_context_there_is_nothing_to_ask(text: str) -> None:
    with pytest.raises(ExpressionError, match="there is no"):
        evaluate("@" + text)


def test_a_trigger_without_outputs_has_no_body() -> None:
    assert evaluate("@triggerBody()", {"trigger": {}}) is None
    assert evaluate("@triggerBody()", {"trigger": {"outputs": {"headers": {}}}}) is None
    assert evaluate("@triggerOutputs()", {"trigger": None}) is None


def test_a_context_of_the_wrong_shape_is_an_expression_error() -> None:
    with pytest.raises(ExpressionError, match="'variables' of the context is no object"):
        evaluate("@variables('x')", {"variables": [1]})
    with pytest.raises(ExpressionError, match="no integer"):
        evaluate("@iterationIndexes('x')", {"iterationIndexes": {"x": "0"}})

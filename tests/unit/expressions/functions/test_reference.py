"""Reference functions, asked in an environment of plain data."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions import ExpressionError, evaluate
from loom.expressions.errors import FunctionError
from loom.expressions.functions import reference

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


# --- form and multipart bodies ----------------------------------------------------------------------------------------


FORM = {"$formdata": [{"key": "to", "value": "a"}, {"key": "to", "value": "b"}, {"key": "Subject", "value": "Hi"}]}
PARTS = {"$multipart": [{"headers": {}, "body": {"$content-type": "text/plain", "$content": "YQ=="}}, {"body": "b"}]}


class World:
    """An environment of one action, `Send`, and of a trigger with the same body."""

    def __init__(self, body: Any) -> None:
        self.body = body

    def outputs(self, name: str) -> Any:
        if name != "Send":
            raise FunctionError(f"there is no action '{name}'")
        return {"statusCode": 200, "body": self.body}

    def trigger(self) -> Any:
        return {"name": "manual", "outputs": {"body": self.body}}


def test_the_one_value_of_a_key() -> None:
    assert reference.form_data_value(World(FORM), "Send", "Subject") == "Hi"
    assert reference.trigger_form_data_value(World(FORM), "Subject") == "Hi"
    assert reference.trigger_form_data_value(World(FORM), "subject") is None


def test_several_values_of_a_key_are_no_single_one() -> None:
    with pytest.raises(FunctionError, match="'Send' has 2 values for 'to'"):
        reference.form_data_value(World(FORM), "Send", "to")
    with pytest.raises(FunctionError, match="the trigger has 2 values for 'to'"):
        reference.trigger_form_data_value(World(FORM), "to")


def test_all_values_of_a_key() -> None:
    assert reference.form_data_multi_values(World(FORM), "Send", "to") == ["a", "b"]
    assert reference.trigger_form_data_multi_values(World(FORM), "cc") == []


@pytest.mark.parametrize("body", [None, "to=a", {"to": "a"}, [], {"$formdata": None}])
def test_a_body_that_is_no_form_is_named(body: Any) -> None:
    with pytest.raises(FunctionError, match="the body of the action 'Send' is no form"):
        reference.form_data_value(World(body), "Send", "to")
    with pytest.raises(FunctionError, match="the body of the trigger is no form"):
        reference.trigger_form_data_multi_values(World(body), "to")


def test_an_unknown_action_is_the_environments_error() -> None:
    with pytest.raises(FunctionError, match="no action 'Nope'"):
        reference.form_data_value(World(FORM), "Nope", "to")


def test_outputs_without_a_body_are_the_body() -> None:
    world = World(None)
    world.outputs = lambda name: FORM  # type: ignore[method-assign]
    assert reference.form_data_value(world, "Send", "Subject") == "Hi"


def test_the_parts_of_a_multipart_body() -> None:
    assert reference.multipart_body(World(PARTS), "Send", 0) == {"$content-type": "text/plain", "$content": "YQ=="}
    assert reference.trigger_multipart_body(World(PARTS), 1) == "b"


@pytest.mark.parametrize("index", [-1, 2])
def test_a_part_that_is_not_there(index: int) -> None:
    with pytest.raises(FunctionError, match=f"has 2 parts, numbered from 0; there is no part {index}"):
        reference.multipart_body(World(PARTS), "Send", index)


def test_a_body_without_parts() -> None:
    with pytest.raises(FunctionError, match="the trigger is no multipart body: it is of kind Null"):
        reference.trigger_multipart_body(World(None), 0)


def test_arguments_of_a_wrong_kind_are_named() -> None:
    with pytest.raises(FunctionError, match="actionName"):
        reference.form_data_value(World(FORM), 1, "to")
    with pytest.raises(FunctionError, match="'key'"):
        reference.form_data_value(World(FORM), "Send", None)
    with pytest.raises(FunctionError, match="'index'"):
        reference.multipart_body(World(PARTS), "Send", "0")

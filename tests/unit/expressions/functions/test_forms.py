"""The conversion functions for form and multipart bodies."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions.errors import FunctionError
from loom.expressions.functions import forms

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
    assert forms.form_data_value(World(FORM), "Send", "Subject") == "Hi"
    assert forms.trigger_form_data_value(World(FORM), "Subject") == "Hi"
    assert forms.trigger_form_data_value(World(FORM), "subject") is None


def test_several_values_of_a_key_are_no_single_one() -> None:
    with pytest.raises(FunctionError, match="'Send' has 2 values for 'to'"):
        forms.form_data_value(World(FORM), "Send", "to")
    with pytest.raises(FunctionError, match="the trigger has 2 values for 'to'"):
        forms.trigger_form_data_value(World(FORM), "to")


def test_all_values_of_a_key() -> None:
    assert forms.form_data_multi_values(World(FORM), "Send", "to") == ["a", "b"]
    assert forms.trigger_form_data_multi_values(World(FORM), "cc") == []


@pytest.mark.parametrize("body", [None, "to=a", {"to": "a"}, [], {"$formdata": None}])
def test_a_body_that_is_no_form_is_named(body: Any) -> None:
    with pytest.raises(FunctionError, match="the body of the action 'Send' is no form"):
        forms.form_data_value(World(body), "Send", "to")
    with pytest.raises(FunctionError, match="the body of the trigger is no form"):
        forms.trigger_form_data_multi_values(World(body), "to")


def test_an_unknown_action_is_the_environments_error() -> None:
    with pytest.raises(FunctionError, match="no action 'Nope'"):
        forms.form_data_value(World(FORM), "Nope", "to")


def test_outputs_without_a_body_are_the_body() -> None:
    world = World(None)
    world.outputs = lambda name: FORM  # type: ignore[method-assign]
    assert forms.form_data_value(world, "Send", "Subject") == "Hi"


def test_the_parts_of_a_multipart_body() -> None:
    assert forms.multipart_body(World(PARTS), "Send", 0) == {"$content-type": "text/plain", "$content": "YQ=="}
    assert forms.trigger_multipart_body(World(PARTS), 1) == "b"


@pytest.mark.parametrize("index", [-1, 2])
def test_a_part_that_is_not_there(index: int) -> None:
    with pytest.raises(FunctionError, match=f"has 2 parts, numbered from 0; there is no part {index}"):
        forms.multipart_body(World(PARTS), "Send", index)


def test_a_body_without_parts() -> None:
    with pytest.raises(FunctionError, match="the trigger is no multipart body: it is of kind Null"):
        forms.trigger_multipart_body(World(None), 0)


def test_arguments_of_a_wrong_kind_are_named() -> None:
    with pytest.raises(FunctionError, match="actionName"):
        forms.form_data_value(World(FORM), 1, "to")
    with pytest.raises(FunctionError, match="'key'"):
        forms.form_data_value(World(FORM), "Send", None)
    with pytest.raises(FunctionError, match="'index'"):
        forms.multipart_body(World(PARTS), "Send", "0")

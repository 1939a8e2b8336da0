"""Mistakes of authors who write a flow for the first time, and what is said about them."""

from __future__ import annotations

import jsonschema_rs
import pytest

from loom.flows.compiler import compile_flow
from loom.flows.diagnostics import DefinitionError
from loom.flows.document import read_document
from loom.flows.schemas import flow_schema

COMPOSE = {"type": "compose", "inputs": 1}
EDITOR = jsonschema_rs.validator_for(flow_schema("loom"))


def said(source) -> list[str]:
    return [str(problem) for problem in compile_flow(source)[1]]


@pytest.mark.parametrize(
    ("text", "spot", "hint"),
    [
        ("a:\n\ttype: compose\n", (2, 1), "indent with blanks, not with tabs"),
        ("a:\n  type: compose\n  inputs: @add(1, 2)\n", (3, 11), "put an expression in quotes"),
        ("a:\n  type: compose\n   inputs: 1\n", (3, 10), "look at the indentation"),
        ("a:\n  type: compose\n  inputs: see: there\n", (3, 14), "put a text with a colon in quotes"),
        ('{"a": {"type": "compose"},}', (1, 26), ""),
        ('{"a": {"type": "compose", "inputs": [1, 2,\n]}}', (1, 42), ""),
    ],
)
def test_a_text_that_cannot_be_read_has_its_place_and_a_hint(text, spot, hint):
    with pytest.raises(DefinitionError) as caught:
        read_document(text)
    (problem,) = caught.value.problems
    assert problem.spot == spot
    assert hint in problem.hint
    assert f"at line {spot[0]}, column {spot[1]}" in problem.message


@pytest.mark.parametrize("text", ["", " \n", "# nothing yet\n", "\ufeff"])
def test_an_empty_document_is_called_empty(text):
    assert said(text) == ["(document): the document is empty"]


def test_yaml_that_nests_deep_is_left_at_once():
    assert said("a: " + "[" * 500 + "]" * 500) == ["(document): the document nests deeper than 100 levels"]


@pytest.mark.parametrize(
    ("document", "problems"),
    [
        (
            {"a": COMPOSE, "b": "compose", "c": {"inputs": 1}},
            ["b: an action must be an object", "c: an action needs a 'type'"],
        ),
        (
            {"Actions": {"a": COMPOSE}},
            ["(document): there is no workflow definition in this document (did you mean 'actions' by 'Actions'?)"],
        ),
        (
            {"actions": {}, "parameters": {"p": 5}},
            ['parameters.p: a parameter is an object such as {"type": "string"}'],
        ),
        (
            {"actions": {}, "outputs": {"o": "@1"}},
            ['outputs.o: an output is an object such as {"type": "string", "value": "@..."}'],
        ),
    ],
)
def test_what_is_refused_says_what_belongs_there(document, problems):
    assert compile_flow(document)[0] is None
    assert said(document) == problems
    assert not EDITOR.is_valid(document)


@pytest.mark.parametrize(
    ("action", "path", "meant"),
    [
        ({"type": "compose", "input": 1}, "a.input", "inputs"),
        ({"type": "compose", "inputs": 1, "runafter": {}}, "a.runafter", "runAfter"),
        ({"type": "if", "condition": "true", "then": {}}, "a.then", "actions"),
        ({"type": "until", "condition": "@equals(rand(0, 2), 1)", "limit": {"counts": 3}}, "a.limit.counts", "count"),
        (
            {"type": "compose", "retry": {"type": "none", "minInterval": "PT1S"}},
            "a.retry.minInterval",
            "minimumInterval",
        ),
        ({"type": "foreach", "items": [], "action": {}}, "a.action", "actions"),
        ({"type": "http", "inputs": {"uri": "https://a.example", "header": {}}}, "a.inputs.header", "headers"),
    ],
)
def test_a_misspelt_key_is_warned_of(action, path, meant):
    program, problems = compile_flow({"a": action})
    assert program is not None
    name = path.rpartition(".")[2]
    assert [str(problem) for problem in problems] == [f"{path}: '{name}' means nothing here (did you mean '{meant}'?)"]


def test_keys_that_are_nobodys_are_left_alone():
    known = {"type": "compose", "inputs": {"input": 1, "runafter": 2}, "x-owner": "me", "correlation": {}}
    extra = {"type": "activity", "inputs": {"activityType": "search", "query": "tea", "limit": 3}}
    assert said({"a": known, "b": extra}) == []


@pytest.mark.parametrize(
    ("kind", "needs"),
    [("http", "uri"), ("activity", "activityType"), ("actor", "actorType"), ("ai", "prompt"), ("workflow", "workflow")],
)
def test_an_action_that_says_too_little_is_warned_of(kind, needs):
    assert said({"a": {"type": kind}}) == [f"a: {kind} needs '{needs}' in its inputs"]
    assert said({"a": {"type": kind, "inputs": {needs: "x"}}}) == []
    assert said({"a": {"type": kind, "inputs": "@triggerBody()"}}) == []


@pytest.mark.parametrize("kind", ["until", "while", "doUntil", "if", "foreach", "switch", "retry", "wait", "terminate"])
def test_what_an_action_cannot_do_without_the_editor_asks_for_too(kind):
    document = {"a": {"type": kind, "actions": {}}}
    assert compile_flow(document)[0] is None
    assert not EDITOR.is_valid(document)


@pytest.mark.parametrize(
    ("limit", "is_fine"),
    [
        ({"count": "ten"}, False),
        ({"count": 2.5}, False),
        ({"timeout": "1h"}, False),
        ({"timeout": 60}, False),
        ({"count": "@parameters('n')", "timeout": "PT1H"}, True),
        ({"count": None, "timeout": None}, True),
    ],
)
def test_limits_are_the_same_to_editor_and_loader(limit, is_fine):
    document = {
        "parameters": {"n": {"type": "int"}},
        "actions": {"a": {"type": "until", "condition": "true", "limit": limit}},
    }
    assert (compile_flow(document)[0] is not None) is is_fine
    assert EDITOR.is_valid(document) is is_fine


def test_actions_that_are_indented_too_little_do_not_pass_for_one_action():
    document = {"actions": {"a": None, "type": "compose", "inputs": 1}}
    assert compile_flow(document)[0] is None
    assert not EDITOR.is_valid(document)


def test_parameters_that_mean_something_else_are_warned_of():
    parameters = {
        "a": {"type": "strng"},
        "b": {"type": "Int", "defaultValue": "five"},
        "c": {"type": "string", "allowedValues": "x"},
        "d": {"type": "Int", "defaultValue": "[parameters('n')]"},
        "e": {"type": "SecureString", "defaultValue": ""},
    }
    types = "String, SecureString, Int, Float, Bool, Array, Object, SecureObject"
    assert said({"parameters": parameters, "actions": {}}) == [
        f"parameters.a.type: 'strng' is no type of a parameter: {types} (did you mean 'String'?)",
        "parameters.b.defaultValue: the default is String, and the type is Int",
        "parameters.c.allowedValues: the allowed values must be an array",
    ]


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        ({"type": "schedule", "recurrence": {"frequency": "Hourly", "interval": 1}}, "frequency must be Second"),
        ({"type": "Recurrence", "recurrence": {"frequency": "Hour", "interval": "one"}}, "interval must be an integer"),
        ({"type": "schedule", "cron": "61 * * * *"}, "cron"),
        ({"type": "Recurrence", "recurrence": {"frequency": "[parameters('f')]", "interval": 1}}, None),
        ({"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": "@parameters('n')"}}, None),
        ({"type": "schedule", "frequency": "Day", "interval": 1}, None),
    ],
)
def test_a_schedule_that_starts_nothing_is_warned_of(trigger, problem):
    found = said({"parameters": {"n": {"type": "int"}}, "triggers": {"t": trigger}, "actions": {}})
    assert all(text.startswith("triggers.t: this starts no runs: ") for text in found)
    assert [problem in text for text in found] == [True] if problem else found == []


def test_a_loop_over_a_text_is_warned_of():
    problem = "a.items: '1,2,3' is no array, so the loop will fail (an expression begins with @)"
    assert said({"a": {"type": "foreach", "items": "1,2,3", "actions": {}}}) == [problem]
    assert said({"a": {"type": "foreach", "items": [1, 2], "actions": {}}}) == []


def test_a_variable_that_is_set_is_there_in_looms_dialect():
    assert (
        said(
            {
                "a": {"type": "setVariable", "name": "n", "value": 1},
                "b": {"type": "compose", "inputs": "@variables('n')"},
            }
        )
        == []
    )
    azure = {"triggers": {"t": {"type": "Request"}}}
    azure["actions"] = {"a": {"type": "SetVariable", "inputs": {"name": "n", "value": 1}}}
    assert said(azure) == [
        "actions.a.inputs.name: no action initialises a variable 'n' (it may be set when the flow is started)"
    ]

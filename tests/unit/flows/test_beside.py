"""The names that definitions take from their project, as documents have them, and the values that a run has of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from loom.expressions import ExpressionError
from loom.flows.beside import (
    Beside,
    NamedCall,
    calls_of,
    connection_name,
    evaluated,
    find_name,
    forbidden_calls,
    names_of,
)
from loom.flows.compiler import load_program, program_of
from loom.flows.document import Document, document_text, read_document, stored_document
from loom.flows.limits import Limits


def test_calls_are_found_wherever_a_template_stands() -> None:
    data = {
        "a": "@appsetting('One')",
        "b": ["x @{AppSetting('two')}/@{appsetting('ONE')}", {"@{appsetting('key')}": 1}],
        "c": "@appsetting(variables('x'))",
        "d": "the word appsetting('no') alone",
        "e": "@appsetting('unfinished'",
    }
    calls = calls_of("appsetting", data)
    assert names_of(calls) == ("One", "key", "two")
    assert calls[0] == NamedCall("a", "One")
    assert [call.path for call in calls if call.name is None] == ["c"]


def test_values_beside_a_definition_may_read_settings_only() -> None:
    assert evaluated({"u": "https://@{appsetting('h')}/@{parameters('p')}"}, {"H": "x"}, {"p": 1}) == {
        "u": "https://x/1"
    }
    assert evaluated("@appsetting('gone')", {}) is None
    assert evaluated("a@example.com", {}) == "a@example.com"
    assert [call.name for call in forbidden_calls("@concat(variables('a'), appsetting('b'))")] == ["variables"]
    with pytest.raises(ExpressionError):
        evaluated("@int(appsetting('word'))", {"word": "x"})


@pytest.mark.parametrize(
    "inputs",
    [
        {"host": {"connection": {"referenceName": "it"}}},
        {"serviceProviderConfiguration": {"connectionName": "it", "operationId": "x"}},
        {"function": {"connectionName": "it"}},
        {"host": {"connectionName": "it", "operationId": "x"}},
    ],
)
def test_the_connection_of_an_action(inputs: Any) -> None:
    assert connection_name(inputs) == "it"
    assert connection_name({"host": {"connection": {"name": "@parameters('$connections')['x']"}}}) is None
    assert connection_name("text") is None


def test_names_are_found_without_case_and_the_exact_one_first() -> None:
    assert find_name(("Abc", "abc"), "abc") == "abc"
    assert find_name(("Abc",), "aBC") == "Abc"
    assert find_name((), "x") is None


def test_a_document_stores_names_and_only_where_there_are_some() -> None:
    document = read_document({"actions": {"A": {"type": "compose", "inputs": "@appsetting('X')"}}}, name="a")
    plain = document_text(document)
    assert set(json.loads(plain)) == {"definition", "name", "kind", "path", "shape", "limits", "compiler"}
    beside = replace(document, beside=Beside({"p": "SecureString"}, ("X",)))
    text = document_text(beside, Limits(foreach_width=3))
    assert stored_document(text) == (beside, Limits(foreach_width=3))
    assert program_of(text).beside == Beside({"p": "SecureString"}, ("X",))
    assert program_of(plain).beside is None


def program(beside: Beside | None, definition: dict[str, Any]) -> Any:
    return load_program(Document(definition, "x", beside=beside))


def test_parameters_of_a_project_need_no_declaration_and_keep_the_stricter_secrecy() -> None:
    found = program(
        Beside({"Open": "Int", "key": "SecureString"}),
        {"parameters": {"KEY": {"type": "String"}}, "actions": {"A": {"type": "compose", "inputs": 1}}},
    )
    assert [(each.name, each.type, each.is_given, each.is_secure) for each in found.parameters.values()] == [
        ("KEY", "securestring", True, True),
        ("Open", "int", True, False),
    ]


def test_what_reads_a_setting_is_secure_beside_a_project_and_was_not_before() -> None:
    definition = {
        "actions": {
            "A": {"type": "compose", "inputs": "@appsetting('X')"},
            "B": {"type": "compose", "inputs": "@outputs('A')", "runAfter": {"A": ["Succeeded"]}},
        }
    }
    assert all(node.secure_outputs for node in program(Beside(settings=("X",)), definition).nodes)
    assert not any(node.secure_outputs for node in program(None, definition).nodes)


@pytest.mark.parametrize(("width", "expected"), [(20, 20), (4, 4)])
def test_the_operator_sets_the_width_of_a_foreach(width: int, expected: int) -> None:
    definition = {
        "$schema": "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#",
        "triggers": {"m": {"type": "Request"}},
        "actions": {"Each": {"type": "Foreach", "foreach": "@triggerBody()", "actions": {}}},
    }
    found = load_program(Document(definition, "x"), limits=Limits(foreach_width=width))
    assert found.nodes[0].operation.width(None) == expected  # type: ignore[attr-defined]

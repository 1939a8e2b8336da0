"""Documents in all their shapes run the same, and each container keeps the rules of its own dialect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flow_player import azure, compose, loom, play, program_of

import loom as loom_package
from loom.flows.calls import ActionCall, ActionOutcome

FLOW = azure(
    {"Sum": compose("@add(triggerBody()?['n'], parameters('more'))"), "Text": compose("sum: @{outputs('Sum')}", "Sum")},
    parameters={"more": {"type": "Int", "defaultValue": 2}},
)
SHAPES: dict[str, Any] = {
    "bare": FLOW,
    "standard": {"definition": FLOW, "kind": "Stateful"},
    "power automate": {"name": "x", "properties": {"definition": FLOW, "connectionReferences": {}}},
    "arm": {
        "$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#",
        "parameters": {"x": {"type": "string"}},
        "resources": [
            {"type": "Microsoft.Web/connections", "name": "c", "properties": {}},
            {"type": "Microsoft.Logic/workflows", "name": "w", "properties": {"definition": FLOW, "parameters": {}}},
        ],
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_shapes_run_the_same(shape: str) -> None:
    played = play(SHAPES[shape], {"n": 40})
    assert played.outputs("Text") == "sum: 42"


@pytest.mark.parametrize("shape", SHAPES)
def test_texts_and_files_are_read_the_same(shape: str, tmp_path: Path) -> None:
    text = json.dumps(SHAPES[shape], indent=1)
    path = tmp_path / "flow.json"
    path.write_text(text, encoding="utf-8")
    marked = tmp_path / "marked.json"
    marked.write_text("\ufeff" + text, encoding="utf-8")
    for source in (text, "\ufeff" + text, str(path), path, marked):
        assert play(program_of(source), {"n": 1}).outputs("Text") == "sum: 3"


def test_a_flow_is_named_after_its_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    for path in (folder / "workflow.json", folder / "other.json"):
        path.write_text(json.dumps(FLOW), encoding="utf-8")
    assert loom_package.load(folder / "workflow.json").name == "orders"
    assert loom_package.load(folder / "other.json").name == "other"


YAML = """
actions:
  count:
    type: initializeVariable
    inputs:
      variables: [{name: n, type: integer, value: 0}]
  loop:
    type: while
    condition: "@less(variables('n'), 3)"
    actions:
      more:
        type: incrementVariable
        inputs: {name: n}
    limit: {count: 10}
  date:
    type: compose
    inputs: 2024-01-31
  words:
    type: compose
    inputs: [yes, off, null, 1.0, 0x10, "@{variables('n')}"]
"""


def test_yaml_with_the_same_keys() -> None:
    played = play(program_of(YAML))
    assert played.status == "Succeeded"
    assert played.result.variables == {"n": 3}
    assert isinstance(played.outputs("date"), str)
    assert played.outputs("words")[-1] == "3"


def test_two_documents_with_the_same_content_have_one_digest() -> None:
    again = json.loads(json.dumps(FLOW))
    assert program_of(FLOW).digest == program_of(again).digest
    changed = {**FLOW, "actions": {**FLOW["actions"], "More": compose(1)}}
    assert program_of(changed).digest != program_of(FLOW).digest


def test_resource_expressions_are_opaque_wherever_they_stand() -> None:
    actions = {
        "C": compose({"a": "[parameters('x')]", "b": "[[concat('@{1}')]", "c": ["[resourceGroup().id]"]}),
        "U": {"type": "Until", "expression": "@true", "actions": {}, "limit": {"count": "[parameters('n')]"}},
        "E": {
            "type": "Foreach",
            "foreach": [1],
            "actions": {},
            "runtimeConfiguration": {"concurrency": {"repetitions": "[parameters('n')]"}},
        },
    }
    played = play(azure(actions))
    assert played.status == "Succeeded"
    assert played.outputs("C") == {"a": "[parameters('x')]", "b": "[[concat('@{1}')]", "c": ["[resourceGroup().id]"]}


def test_unknown_keys_are_kept_and_ignored() -> None:
    action = {**compose(1), "description": "d", "metadata": {"id": 1}, "unknown": "@nope"}
    assert play(azure({"A": action}, description="x", metadata={}, extra={"y": "@{"})).status == "Succeeded"


@pytest.mark.parametrize("name", ["With spaces", "Dots.and(brackets)", "Größe", "#1", "a'b", "日本"])
def test_names_may_have_anything_in_them(name: str) -> None:
    reference = "@outputs('" + name.replace("'", "''") + "')"
    played = play(azure({name: compose("x"), "R": compose(reference, name)}))
    assert played.outputs("R") == "x"


@pytest.mark.parametrize("kind", ["COMPOSE", "compose", "Compose"])
def test_types_are_read_in_any_case(kind: str) -> None:
    assert play(azure({"A": {"type": kind, "inputs": 1}})).outputs("A") == 1


def test_an_unknown_type_loads_and_fails_when_it_runs() -> None:
    flow = loom_package.load(azure({"A": {"type": "Teleport", "inputs": {}}}))
    assert any("Teleport" in str(warning) for warning in flow.warnings)


def test_several_roots_and_the_calls_of_one_burst_go_out_together() -> None:
    call = {"type": "Teleport", "inputs": {"to": "@triggerBody()"}}
    played = play(
        azure({"A": call, "B": call, "C": call}), "x", answer=lambda _call: ActionOutcome(), lasting=lambda _call: 5.0
    )
    assert [at for at, _ in played.calls] == [0, 0, 0]


def test_kind_options_and_limit_reach_whoever_does_the_action() -> None:
    action = {
        "type": "Teleport", "kind": "Fast", "inputs": {}, "operationOptions": "DisableAsyncPattern, Other",
        "limit": {"timeout": "@concat('PT', '90S')"},
    }  # fmt: skip
    seen: list[ActionCall] = []

    def answer(call: ActionCall) -> ActionOutcome:
        seen.append(call)
        return ActionOutcome()

    assert play(azure({"A": action}), answer=answer).status == "Succeeded"
    (call,) = seen
    assert (call.type, call.kind, call.timeout_s) == ("teleport", "fast", 90.0)
    assert set(call.options) == {"disableasyncpattern", "other"}


# -- both dialects in one document -------------------------------------------------------------------------------------


def test_nested_signs_are_ignored_in_looms_containers_only() -> None:
    nested = "@not(@empty(triggerBody()))"
    assert play(loom({"c": {"type": "compose", "inputs": nested}}), [1]).outputs("c") is True
    with pytest.raises(loom_package.DefinitionError):
        program_of(azure({"C": {"type": "Compose", "inputs": nested}}))


def test_leniency_follows_the_container() -> None:
    """An azure flow with a loop of Loom's: inside of it nested signs are fine."""
    loop = {
        "type": "until",
        "condition": "@not(@empty(variables('q')))",
        "actions": {"fill": {"type": "setVariable", "name": "q", "value": "@createArray(@add(1, 1))"}},
    }
    assert play(azure({"L": loop}), variables={"q": []}).result.variables == {"q": [2]}


def test_what_is_missing_reads_as_null_in_conditions_only() -> None:
    flow = {
        "loop": {"type": "until", "condition": "@equals(body('check').status, 'done')", "actions": {
            "check": {"type": "compose", "inputs": {"status": "done"}}
        }},
        "late": {"type": "compose", "inputs": "@body('later').status"},
        "later": {"type": "compose", "inputs": 1},
    }  # fmt: skip
    played = play(loom(flow))
    assert played.statuses == {"loop": "Succeeded", "check": "Succeeded", "late": "Failed", "later": "Skipped"}


def test_each_turn_of_an_outer_loop_begins_with_nothing_read() -> None:
    inner = {
        "type": "until",
        "condition": "@equals(body('check').n, 1)",
        "actions": {"check": {"type": "compose", "inputs": {"n": "@variables('loopIndex')"}}},
    }
    outer = {"type": "until", "condition": "@equals(variables('loopIndex'), 3)", "actions": {"inner": inner}}
    played = play(loom({"outer": outer}))
    assert played.executions("check") == 6


def test_http_of_loom_reads_url_like_uri_and_has_no_retry() -> None:
    flow = loom({"h": {"type": "http", "inputs": {"url": "https://x.example"}}})
    played = play(flow, answer=lambda _call: ActionOutcome("Failed", {"statusCode": 503}))
    assert len(played.calls) == 1


def test_a_start_by_hand_makes_no_difference_to_an_azure_flow_with_a_recurrence() -> None:
    trigger = {"Every": {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}}}
    flow = {**azure({"A": compose("@trigger()?['name']"), "B": compose(1)}), "triggers": trigger}
    assert play(flow).outputs("A") == "Every"

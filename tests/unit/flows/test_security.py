"""Secrecy spreads to what passes it on."""

from __future__ import annotations

import pytest

from loom.flows.compiler import load_program

REQUEST = {"triggers": {"manual": {"type": "Request"}}}


def hide(*properties):
    return {"runtimeConfiguration": {"secureData": {"properties": list(properties)}}}


def compose(text):
    return {"type": "Compose", "inputs": text}


def hidden(actions, **more):
    """The actions whose inputs and whose outputs are hidden."""
    program = load_program({**REQUEST, "actions": actions, **more})
    inputs = [node.name for node in program.nodes if node.secure_inputs]
    outputs = [node.name for node in program.nodes if node.secure_outputs]
    return inputs, outputs, program.secure_variables


HTTP = {"type": "Http", "inputs": {"uri": "x"}}


def test_nothing_is_hidden_by_itself():
    assert hidden({"H": HTTP, "C": compose("@body('H')")}) == ([], [], frozenset())


def test_what_the_document_hides():
    actions = {
        "H": {**HTTP, **hide("inputs")},
        "G": {**HTTP, **hide("Outputs")},
        "B": {**HTTP, **hide("inputs", "outputs")},
    }
    assert hidden(actions)[:2] == (["H", "B"], ["G", "B"])


@pytest.mark.parametrize(
    "text",
    ["@body('H')", "@outputs('h')?['body']", "@{actions('H').outputs}", "x@{string(body('H'))}", "@body(item())"],
)
def test_hidden_outputs_are_hidden_where_they_are_read(text):
    actions = {"H": {**HTTP, **hide("outputs")}, "C": compose({"a": [text]}), "D": compose("@outputs('C')")}
    assert hidden(actions)[:2] == (["C", "D"], ["H", "C", "D"])


def test_hidden_inputs_are_only_in_the_whole_record():
    actions = {"H": {**HTTP, **hide("inputs")}, "C": compose("@body('H')"), "D": compose("@actions('H')")}
    assert hidden(actions)[:2] == (["H", "D"], ["D"])


def test_an_answer_is_not_hidden_because_the_question_is():
    actions = {"H": {**HTTP, **hide("outputs")}, "G": {"type": "Http", "inputs": {"body": "@body('H')"}}}
    actions["C"] = compose("@body('G')")
    assert hidden(actions)[:2] == (["G"], ["H"])


def test_the_order_of_the_document_does_not_matter():
    actions = {"E": compose("@outputs('D')"), "D": compose("@outputs('C')"), "C": compose("@body('H')")}
    actions["H"] = {**HTTP, **hide("outputs")}
    assert hidden(actions)[0] == ["E", "D", "C"]


def test_variables():
    variables = [{"name": "Token", "type": "string"}, {"name": "other", "type": "string"}]
    actions = {
        "I": {"type": "InitializeVariable", "inputs": {"variables": variables}},
        "H": {**HTTP, **hide("outputs")},
        "S": {"type": "SetVariable", "inputs": {"name": "token", "value": "@body('H')"}},
        "R": compose("@variables('TOKEN')"),
        "O": compose("@variables('other')"),
    }
    inputs, outputs, names = hidden(actions)
    assert (inputs, outputs, names) == (["S", "R"], ["H", "S", "R"], {"token"})


def test_a_variable_that_is_hidden_from_its_beginning():
    variables = [{"name": "Token", "type": "string", "value": "@parameters('key')"}]
    actions = {"I": {"type": "InitializeVariable", "inputs": {"variables": variables}}}
    assert hidden(actions, parameters={"Key": {"type": "SecureString"}}) == (["I"], ["I"], {"token"})


def test_secure_parameters_and_triggers():
    parameters = {"key": {"type": "SecureObject"}, "open": {"type": "string"}}
    triggers = {"t": {"type": "Request", **hide("outputs")}}
    actions = {"K": compose("@parameters('KEY')"), "O": compose("@parameters('open')"), "T": compose("@triggerBody()")}
    assert hidden(actions, parameters=parameters)[0] == ["K"]
    assert hidden(actions, parameters=parameters, triggers=triggers)[0] == ["K", "T"]


def test_elements_of_a_loop():
    inner = {"I": compose("@item()"), "J": compose("@items('F')"), "N": compose(1)}
    actions = {"H": {**HTTP, **hide("outputs")}, "F": {"type": "Foreach", "foreach": "@body('H')", "actions": inner}}
    actions["R"] = compose("@outputs('F')")
    assert hidden(actions)[:2] == (["F", "I", "J", "R"], ["H", "F", "I", "J", "R"])


def test_results_of_a_scope():
    scope = {"type": "Scope", "actions": {"H": {**HTTP, **hide("inputs")}}}
    assert hidden({"S": scope, "R": compose("@result('S')")})[0] == ["H", "R"]


def test_results_of_an_earlier_iteration():
    inner = {"H": {**HTTP, **hide("outputs")}, "C": compose("@variables('loopResult')")}
    loop = {"type": "until", "condition": "@true", "actions": inner}
    inputs, outputs, _ = hidden({"L": loop, "R": compose("@outputs('L')")})
    assert (inputs, outputs) == (["C", "R"], ["L", "H", "C", "R"])


def test_hidden_actions_have_no_tracked_properties():
    tracked = {"trackedProperties": {"a": "@action()['outputs']"}}
    program = load_program(
        {**REQUEST, "actions": {"H": {**HTTP, **tracked}, "G": {**HTTP, **tracked, **hide("outputs")}}}
    )
    assert [node.tracked is not None for node in program.nodes] == [True, False]

"""Documents: their wrappers, JSON and YAML, and the text that they are stored as."""

from __future__ import annotations

import json

import pytest

from loom.flows.compiler import compile_flow, load_program, program_of
from loom.flows.diagnostics import DefinitionError
from loom.flows.document import digest_of, document_text, parse_text, read_document, stored_document, without_comments
from loom.flows.limits import Limits

DEFINITION = {"triggers": {"manual": {"type": "Request"}}, "actions": {"A": {"type": "Compose", "inputs": 1}}}


def problem_of(text: str) -> tuple[str, str]:
    with pytest.raises(DefinitionError) as raised:
        read_document(text)
    (problem,) = raised.value.problems
    return problem.path, problem.message


def test_a_bare_definition():
    document = read_document(DEFINITION, name="x")
    assert (document.definition, document.name, document.path) == (DEFINITION, "x", "")


def test_the_wrapper_of_standard():
    document = read_document({"definition": DEFINITION, "kind": "Stateful"})
    assert (document.definition, document.kind, document.path) == (DEFINITION, "Stateful", "definition")


def test_the_wrapper_of_power_automate():
    document = read_document({"name": "guid", "properties": {"displayName": "My flow", "definition": DEFINITION}})
    assert (document.definition, document.path) == (DEFINITION, "properties.definition")


def test_an_arm_template_with_one_workflow():
    workflow = {
        "type": "Microsoft.Logic/workflows",
        "name": "[parameters('n')]",
        "properties": {"definition": DEFINITION},
    }
    template = {"resources": [{"type": "Microsoft.Web/connections"}, workflow]}
    document = read_document(template)
    assert document.definition == DEFINITION
    assert document.path == "resources[1].properties.definition"
    assert document.name == ""


@pytest.mark.parametrize("count", [0, 2])
def test_an_arm_template_with_another_number_of_workflows(count):
    workflow = {"type": "microsoft.logic/Workflows", "properties": {"definition": DEFINITION}}
    path, message = problem_of(json.dumps({"resources": [workflow] * count}))
    assert path == "resources"
    assert message.endswith(f"this one has {count}")


def test_problems_have_the_paths_of_the_authors_file():
    definition = {"triggers": {}, "actions": {"X Y": {"type": "Compose", "inputs": "@nope("}}}
    resource = {"type": "Microsoft.Logic/workflows", "properties": {"definition": definition}}
    _, problems = compile_flow({"resources": [resource]})
    assert "resources[0].properties.definition.actions['X Y'].inputs" in [problem.path for problem in problems]


def test_a_bare_action_is_named_by_its_name_or_its_type():
    loop = {"type": "until", "condition": "@nope(", "actions": {}}
    assert list(read_document({**loop, "name": "wait"}).definition["actions"]) == ["wait"]
    assert list(read_document(loop).definition["actions"]) == ["until"]
    _, problems = compile_flow(loop)
    assert [problem.path for problem in problems] == ["condition"]


def test_a_variables_name_does_not_name_its_action():
    document = read_document({"type": "setVariable", "name": "x", "value": 1})
    assert list(document.definition["actions"]) == ["setVariable"]


def test_a_map_of_actions():
    source = {"Until": {"type": "Until", "expression": "@nope(", "actions": {}}}
    assert read_document(source).definition == {"actions": source}
    _, problems = compile_flow(source)
    assert [problem.path for problem in problems] == ["Until.expression"]


def test_a_byte_order_mark_is_ignored():
    assert read_document("\ufeff" + json.dumps(DEFINITION)).definition == DEFINITION


@pytest.mark.parametrize("text", ["{}", '{"a": 1}', "[]", "3", "true", '"x"', "", "hello"])
def test_data_that_is_no_definition(text):
    assert problem_of(text)[0] == ""


def test_text_that_is_not_json_has_line_and_column():
    assert problem_of('{"actions":\n  {,}}') == (
        "",
        "this is not JSON: Expecting property name enclosed in double quotes at line 2, column 4",
    )


def test_text_that_is_neither_json_nor_yaml_has_line_and_column():
    _, message = problem_of("actions:\n  a: b: c\n")
    assert message.startswith("this is not JSON or YAML")
    assert message.endswith("at line 2, column 7")


def test_yaml_with_the_same_keys():
    text = """
triggers: {manual: {type: Request}}
actions:
  A:
    type: Compose
    inputs: 1
"""
    assert read_document(text).definition == DEFINITION


def test_yaml_has_the_types_of_json_only():
    text = """
actions:
  A:
    type: compose
    inputs: [on, no, 2026-01-02, 010, 0x1F, 1_000, 1:30, null, ~, true, -3, 2.5, 1e3, "4", '5', .inf, <<]
"""
    assert read_document(text).definition["actions"]["A"]["inputs"] == [
        *("on", "no", "2026-01-02", "010", "0x1F", "1_000", "1:30", None, None, True, -3, 2.5, 1000.0),
        *("4", "5", ".inf", "<<"),
    ]


def test_yaml_keys_stay_text():
    definition = read_document("actions: {on: {type: compose, inputs: {1: a, true: b}}}").definition
    assert definition["actions"]["on"]["inputs"] == {"1": "a", "true": "b"}


def test_yaml_references_are_followed():
    definition = read_document("actions:\n  A: &a {type: compose, inputs: 1}\n  B: *a\n").definition
    assert definition["actions"]["A"] == definition["actions"]["B"]


def test_a_yaml_bomb_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    _, message = problem_of("actions: {}\n" + "\n".join(lines))
    assert message == "this is neither JSON nor YAML: its aliases repeat more than 100,000 values"


def test_too_many_yaml_references_are_refused():
    text = "actions: {}\nx: &x 1\ny: [" + ", ".join(["*x"] * 1001) + "]\n"
    assert "too many aliases" in problem_of(text)[1]


def test_yaml_that_contains_itself_is_refused():
    assert "contains itself" in problem_of("actions: &a {b: *a}")[1]


@pytest.mark.parametrize("value", ["!!python/object/apply:os.system [ls]", "!foo bar", "!!binary 'aGk='", "!!set {a}"])
def test_yaml_tags_are_refused(value):
    assert "is not supported" in problem_of(f"actions: {{}}\nx: {value}")[1]


@pytest.mark.parametrize("text", ['{"actions": ' + "[" * 200 + "]" * 200 + "}", "[" * 100_000, "x: " + "[" * 1_000])
def test_depth_is_limited(text):
    assert problem_of(text) == ("", "the document nests deeper than 100 levels")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1,), "a tuple is no JSON value"),
        (float("nan"), "a float is no JSON value"),
        ({1: 2}, "the key 1 is no text"),
        (b"x", "a bytes is no JSON value"),
    ],
)
def test_data_must_be_plain(value, message):
    with pytest.raises(DefinitionError) as raised:
        read_document({"actions": {"A": {"type": "compose", "inputs": value}}})
    (problem,) = raised.value.problems
    assert (problem.path, problem.message) == ("actions.A.inputs", message)


def test_nan_in_json_text_is_refused():
    assert problem_of('{"actions": {"A": NaN}}') == ("", "NaN is no JSON value")


def test_the_message_lists_all_problems_path_first():
    source = {"actions": {"A": {}, "B": {"type": "compose", "inputs": "@x("}}}
    with pytest.raises(DefinitionError) as raised:
        load_program(source)
    first, second = str(raised.value).splitlines()
    assert first == "actions.A: an action needs a 'type'"
    assert second.startswith("actions.B.inputs: ")


def test_a_stored_text_gives_the_same_program():
    document = read_document({"definition": DEFINITION, "kind": "Stateful"}, name="orders")
    limits = Limits(max_iterations=7)
    text = document_text(document, limits)
    assert stored_document(text) == (document, limits)
    program = program_of(text)
    assert (program.name, program.digest) == ("orders", digest_of(text))
    assert load_program(document, limits=limits).digest == program.digest


def test_the_digest_covers_order_limits_and_name():
    a, b = {"type": "compose", "inputs": 1}, {"type": "compose", "inputs": 2}
    programs = [
        load_program({"actions": {"a": a, "b": b}}),
        load_program({"actions": {"b": b, "a": a}}),
        load_program({"actions": {"a": a, "b": b}}, limits=Limits(max_iterations=2)),
        load_program({"actions": {"a": a, "b": b}}, name="other"),
    ]
    assert len({program.digest for program in programs}) == 4


def test_text_and_data_have_one_digest():
    assert load_program(json.dumps(DEFINITION, indent=3)).digest == load_program(DEFINITION).digest


def test_a_stored_text_is_ascii():
    document = read_document('{"actions": {"A": {"type": "compose", "inputs": "\\ud83d\\ude00 ü"}}}')
    assert document_text(document).isascii()
    assert stored_document(document_text(document))[0] == document


@pytest.mark.parametrize("value", ['"\\ud800"', '{"\\ud800": 1}', "[9223372036854775808]", "1" + "0" * 400])
def test_what_no_store_would_give_back_is_refused(value):
    with pytest.raises(DefinitionError) as refused:
        read_document('{"actions": {"A": {"type": "compose", "inputs": ' + value + "}}}")
    assert refused.value.problems[0].path.startswith("actions.A.inputs")


def test_limits_must_be_positive():
    with pytest.raises(ValueError, match="positive"):
        Limits(max_iterations=0)


def test_parameters_of_a_resource_have_the_values_beside_the_definition():
    declared = {"a": {"type": "String", "defaultValue": "own"}, "b": {"type": "Object", "defaultValue": {}}, "c": 5}
    values = {
        "a": {"value": "[parameters('of the template')]"},
        "b": {"value": {"office365": {"connectionId": "[resourceId('x')]"}}},
        "c": {"value": 1},
        "d": {"value": 1},
    }
    properties = {"definition": {"actions": {}, "parameters": declared}, "parameters": values}
    template = {"resources": [{"type": "Microsoft.Logic/workflows", "properties": properties}]}
    for source in ({"properties": properties}, template):
        found = read_document(source).definition["parameters"]
        assert found["a"]["defaultValue"] == "own"
        assert found["b"] == {"type": "Object", "defaultValue": values["b"]["value"]}
        assert found["c"] == 5
        assert "d" not in found
    assert declared["b"]["defaultValue"] == {}, "what was given is left as it is"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('// first\n{"a": 1, /* in\nbetween */ "b": 2}', {"a": 1, "b": 2}),
        ('{"a": [1, 2, ], // last\n}', {"a": [1, 2]}),
        ('{"a": "http://x/*y*/, ]", "b": "\\"//", }', {"a": "http://x/*y*/, ]", "b": '"//'}),
        ('{"a": 1} // to the end', {"a": 1}),
        ('{"a": 1} /* without an end', {"a": 1}),
    ],
)
def test_comments_and_trailing_commas_are_blanked(text: str, value: object):
    plain = without_comments(text)
    assert parse_text(plain) == value
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 300_000, "/" * 600_000, "/*" * 300_000, ", " * 300_000, '{"a": 1, // "']
)
def test_what_is_no_json_stays_none_and_takes_time_in_proportion(text: str):
    with pytest.raises(DefinitionError):
        parse_text(without_comments(text) or "{")

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_rig import data, good, loom

CONTEXT = {
    "variables": {"name": "Ada", "list": [1, 2]},
    "parameters": {"limit": 5},
    "actions": {"Get": {"status": "Succeeded", "outputs": {"body": {"id": 7}}}},
    "trigger": {"outputs": {"headers": {}, "body": {"order": 17}}},
    "item": "x",
    "utcNow": "2026-01-02T03:04:05Z",
}


@pytest.fixture
def context(tmp_path: Path) -> str:
    path = tmp_path / "context.json"
    path.write_text(json.dumps(CONTEXT))
    return str(path)


@pytest.mark.parametrize(
    ("expression", "printed"),
    [
        ("@concat('Hello ', variables('name'))", "Hello Ada\n"),
        ("Hello @{variables('name')}!", "Hello Ada!\n"),
        ("@body('Get').id", "7\n"),
        ("@triggerBody()?['nope']", "null\n"),
        ("@utcNow()", "2026-01-02T03:04:05.0000000Z\n"),
        ("@equals(item(), 'x')", "true\n"),
        ("no expression", "no expression\n"),
    ],
)
def test_texts_are_printed_as_they_are_and_other_values_as_json(context: str, expression: str, printed: str) -> None:
    assert good("eval", expression, "--context", context) == printed


def test_json_tells_a_text_from_a_number(context: str) -> None:
    assert data("eval", "@string(1)", "--context", context) == {"value": "1"}
    assert data("eval", "@createArray(1, decimal('1.50'), null)") == {"value": [1, 1.5, None]}
    assert data("eval", "@float('NaN')") == {"value": "NaN"}


def test_the_context_may_be_yaml_and_the_expression_may_come_by_the_standard_input(tmp_path: Path) -> None:
    (tmp_path / "context.yaml").write_text("variables:\n  on: yes\n  n: 3\n")
    place = str(tmp_path / "context.yaml")
    assert good("eval", "-", "--context", place, text="@add(variables('n'), 1)\n") == "4\n"
    assert good("eval", "@variables('on')", "--context", place) == "yes\n"


def test_without_a_context_there_are_a_clock_and_chance() -> None:
    assert good("eval", "@startsWith(utcNow(), '20')") == "true\n"
    assert len({good("eval", "@guid()") for _ in range(3)}) == 3


def test_an_error_points_at_its_place() -> None:
    result = loom("eval", "Hello @{add(1, nope())}")
    assert result.exit_code == 1
    text, caret, message = result.stderr.splitlines()
    assert text == "  Hello @{add(1, nope())}"
    assert caret.index("^") == text.index("nope")
    assert message == "Error: The template function 'nope' is not defined or not valid"


def test_a_long_or_broken_line_is_shown_around_the_place() -> None:
    result = loom("eval", "@concat('" + "a" * 300 + "',\n  'b',\n  nope()\n)")
    text, caret, _ = result.stderr.splitlines()
    assert text == "    nope()"
    assert caret.index("^") == 4
    long = loom("eval", "@concat('" + "a" * 300 + "', nope())").stderr.splitlines()
    assert long[0][long[1].index("^") :].startswith("nope()")
    assert len(long[0]) < 120


def test_an_error_for_programs(context: str) -> None:
    result = loom("eval", "@add(1, variables('nope'))", "--context", context, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["position"] == 8
    assert found["function"] == "variables"
    assert "'nope'" in found["error"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Give an expression, or --list."),
        (("@add(1, 2)", "--context", "nowhere.json"), "nowhere.json cannot be read"),
        (("@add(1, 2)", "--context", "list.json"), "A context is an object"),
        (("@add(1, 2)", "--context", "broken.json"), "broken.json: (document): this is not JSON"),
    ],
)
def test_wrong_use_has_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    result = loom("eval", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_functions_are_listed_with_their_arguments() -> None:
    listed = {entry["name"]: entry for entry in data("eval", "--list")}
    assert listed["concat"] == {"name": "concat", "min_args": 1, "max_args": None}
    assert len(listed) > 130
    lines = good("eval", "--list").splitlines()
    assert ["substring", "2", "to", "3"] in [line.split() for line in lines]
    assert ["add", "2"] in [line.split() for line in lines]

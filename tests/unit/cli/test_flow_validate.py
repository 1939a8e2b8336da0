from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_rig import data, good, loom

from loom.flows.source_map import SourceMap, Spot

FIVE_MISTAKES = """{
  "actions": {
    "Loop": {
      "type": "until",
      "condition": "@equals(rand(0, 2), 1)",
      "expression": "@equals(rand(0, 2), 1)",
      "limit": {"count": 5000},
      "actions": {
        "check it": {"type": "compose", "inputs": "@add(1,"},
        "other": {"type": "compose", "inputs": 1, "runAfter": {"chek it": ["Succeeded"]}}
      }
    },
    "Last": {"inputs": 1}
  }
}
"""
ODD = '{"actions": {"a": {"type": "noSuchType", "inputs": "@variables(\'x\')"}}}'
FINE = '{"actions": {"a": {"type": "compose", "inputs": 1}}}'
LONG = '{"actions": {"l": {"type": "until", "condition": "@equals(1, 1)", "actions": {}, "limit": {"count": 5000}}}}'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"five.json": FIVE_MISTAKES, "odd.json": ODD, "fine.json": FINE, "long.json": LONG}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_five_mistakes_give_five_messages_with_paths_and_places() -> None:
    result = loom("validate", "five.json")
    assert result.exit_code == 1
    *problems, count = result.stdout.splitlines()
    assert count == "five.json: 5 errors."
    assert sorted(line.partition(": error: ")[0] for line in problems) == [
        "five.json:10:64",
        "five.json:13:5",
        "five.json:3:5",
        "five.json:7:17",
        "five.json:9:41",
    ]
    told = "\n".join(problems)
    for path in ("actions.Last:", "actions.Loop.limit.count:", "actions.Loop.actions['check it'].inputs:"):
        assert path in told
    assert "(did you mean 'check it'?)" in told


def test_json_has_the_same_for_programs() -> None:
    result = loom("validate", "five.json", "fine.json", "--json")
    assert result.exit_code == 1
    five, fine = json.loads(result.stdout)
    assert fine == {"file": "fine.json", "valid": True, "problems": []}
    assert not five["valid"]
    (count,) = [problem for problem in five["problems"] if problem["path"] == "actions.Loop.limit.count"]
    assert count == {
        "path": "actions.Loop.limit.count",
        "line": 7,
        "column": 17,
        "severity": "error",
        "message": "Loop count exceeds system limit: 1000",
        "hint": None,
    }


def test_the_limit_holds_for_the_retry_action() -> None:
    action = {"type": "retry", "action": {"type": "compose", "inputs": 1}, "retryPolicy": {"count": 1_001}}
    Path("retry.json").write_text(json.dumps({"actions": {"again": action}}))
    assert (
        "actions.again.retryPolicy.count: Retry count exceeds system limit: 1000"
        in loom("validate", "retry.json").output
    )
    good("validate", "retry.json", "--max-iterations", "1001")


def test_warnings_alone_are_fine_unless_strict() -> None:
    assert "odd.json: 2 warnings." in good("validate", "odd.json")
    assert loom("validate", "odd.json", "--strict").exit_code == 1
    assert data("validate", "odd.json")[0]["valid"]


def test_the_operator_can_raise_the_limits() -> None:
    assert loom("validate", "long.json").exit_code == 1
    good("validate", "long.json", "--max-iterations", "5000")
    Path("slow.json").write_text(LONG.replace('"count": 5000', '"timeout": "P3D"'))
    assert loom("validate", "slow.json").exit_code == 1
    good("validate", "slow.json", "--max-duration", "P3D")
    good("validate", "slow.json", "--max-duration", "72h")
    assert loom("validate", "slow.json", "--max-duration", "Pnope").exit_code == 2


def test_folders_are_searched_and_what_is_no_flow_there_is_not(place: Path) -> None:
    folder = place / "app"
    (folder / "Orders").mkdir(parents=True)
    (folder / "Orders" / "workflow.json").write_text(FINE)
    (folder / "more.yaml").write_text("actions:\n  a: {type: compose, inputs: 1}\n")
    (folder / "package.json").write_text("{}")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.json").write_text("{}")
    assert [Path(entry["file"]).name for entry in data("validate", "app")] == ["workflow.json", "more.yaml"]


@pytest.mark.parametrize(("file", "message"), [("nowhere.json", "is not there"), ("empty", "has no .json")])
def test_what_is_not_there_is_told_with_exit_code_2(place: Path, file: str, message: str) -> None:
    (place / "empty").mkdir()
    result = loom("validate", file)
    assert result.exit_code == 2
    assert message in result.stderr


def test_text_that_is_no_json_is_a_problem_of_its_file(place: Path) -> None:
    (place / "broken.json").write_text('{"actions": {')
    result = loom("validate", "broken.json")
    assert result.exit_code == 1
    assert "broken.json:1:14: error: (document): this is not JSON" in result.stdout


def test_places_in_yaml() -> None:
    places = SourceMap("actions:\n  say it:\n    type: compose\n    inputs:\n      - 1\n      - a: 2\n")
    assert places.find("actions['say it'].inputs[1].a") == Spot(6, 9)
    assert places.find("actions['say it'].runAfter") == Spot(2, 3), "where it should be"
    assert places.find("nowhere") is None
    assert places.find("") is None


def test_places_in_json() -> None:
    places = SourceMap('{"a\\"b": [1, [true, {"x": "}], {"}], {\n "c": {}}, null],\n "d": {"e.f": -1.5e3}}')
    assert places.find("""['a"b'][1][1].x""") == Spot(1, 22)
    assert places.find("""['a"b'][1][0]""") == Spot(1, 15)
    assert places.find("d['e.f']") == Spot(3, 8)


@pytest.mark.parametrize("dialect", [(), ("loom",), ("logicapps",)])
def test_the_schema_accepts_what_the_command_accepts(dialect: tuple[str, ...]) -> None:
    import jsonschema_rs

    schema = jsonschema_rs.validator_for(json.loads(good("schema", *dialect)))
    assert schema.is_valid(json.loads(FINE))
    assert not schema.is_valid({"actions": 5})


def test_a_project_of_standard_is_more_than_its_workflows(place: Path) -> None:
    project = place / "project"
    (project / "MyFlow").mkdir(parents=True)
    (project / "MyFlow" / "workflow.json").write_text(FINE)
    for beside in ("parameters.json", "package.json", "azuredeploy.parameters.json"):
        (project / beside).write_text('{"key": {"type": "String", "value": "x"}}')
    assert good("validate", "project").splitlines() == [
        "project/MyFlow/workflow.json: no problems.",
        "project/parameters.json: no problems.",
    ]


def test_a_file_that_is_too_large_is_not_read(place: Path) -> None:
    with (place / "huge.json").open("wb") as file:
        file.truncate((16 << 20) + 1)
    result = loom("validate", "huge.json")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (
        1,
        "huge.json: error: (document): it is larger than 16 MiB",
    )

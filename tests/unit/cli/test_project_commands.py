"""Projects on the command line: validate, run, worker and serve take their folder, and files with parameters."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_rig import failure, good, loom

sys.path.insert(0, str(Path(__file__).parents[2]))

from project_shapes import HANDLERS, MANAGED, PROVIDED, Shape, compose, local, shapes, text, workflow

from loom.cli.targets import named_workflows
from loom.cli.work_commands import retention
from loom.runtime.project import Project
from loom.testing import isolated_handlers


def write(name: str, **files: Any) -> None:
    main = {"Main/workflow.json": workflow({}, "x"), "host.json": {"version": "2.0"}}
    Shape(name, main | files, "Main", {}, None, {}).write(Path())


def test_all_shapes_are_valid(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in shapes():
        shape.write(Path())
        for name, value in shape.settings.items():
            monkeypatch.setenv(name, value)
    Path("connectors.py").write_text(HANDLERS)
    with isolated_handlers():
        folders = [shape.name for shape in shapes()]
        told = good("validate", *folders, "--handlers", "connectors.py", "--strict").splitlines()
    assert all(line.endswith(": no problems.") for line in told)
    assert "project_Mail/connections.json: no problems." in told


def test_validate_names_what_a_project_lacks_with_its_place(shop: Path) -> None:
    read = workflow({"Read": compose("@appsetting('REGION')")}, "@outputs('Read')")
    settings = {"Runtime.Backend.FlowRunTimeout": "1.00:00:00"}
    host = {"version": "2.0", "extensions": {"workflow": {"settings": settings}}}
    write("app", **{"Main/workflow.json": read, "host.json": host, "connections.json": PROVIDED})
    result = loom("validate", "app")
    assert result.exit_code == 1
    told = result.output
    assert "app/Main/workflow.json:8:9: error: definition.actions.Read.inputs: there is no setting 'REGION'" in told
    assert "app/connections.json:5:9: error: serviceProviderConnections.bus.parameterValues.connectionString" in told
    assert "app/host.json:6:9: warning: extensions.workflow.settings['Runtime.Backend.FlowRunTimeout']" in told
    found = json.loads(loom("validate", "app", "--json").output)
    assert [Path(each["file"]).name for each in found] == ["workflow.json", "host.json", "connections.json"]
    assert [each["valid"] for each in found] == [False, True, False]


def test_validate_of_a_broken_project_tells_errors_and_warnings(shop: Path) -> None:
    write("app", **{"parameters.json": {"n": {"type": "Int", "value": "x"}}, "connections.json": {"odd": {}}})
    result = loom("validate", "app/Main")
    assert "app/parameters.json:4:5: error: n.value: the value is String, and the type is Int" in result.output
    assert "app/connections.json:2:3: warning: odd: this is no section of connections" in result.output
    assert result.exit_code == 1


def test_places_are_right_below_comments(shop: Path) -> None:
    write("app", **{"parameters.json": '// {\n{\n  /* [ */ "n": {"type": "Int", "value": "x"},\n}'})
    assert "app/parameters.json:3:32: error: n.value: the value is String" in loom("validate", "app").output


def test_run_takes_the_folder_of_a_workflow_and_its_siblings(shop: Path) -> None:
    parent = next(shape for shape in shapes() if shape.workflow == "Parent")
    parent.write(Path())
    assert failure(2, "run", parent.name) == f"{parent.name} has 2 flows: name the file of one."
    for target in (f"{parent.name}/Parent", f"{parent.name}/Parent/workflow.json"):
        found = json.loads(good("run", target, "--body", "{}", "--json"))
        assert found["response"]["body"] == "hello kid"


def test_a_file_of_parameters_serves_single_files(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("one.json").write_text(json.dumps(workflow({"Say": compose("@parameters('word')")}, "@outputs('Say')")))
    Path("p.json").write_text(json.dumps({"word": text("@{appsetting('WORD')}!"), "other": text("x")}))
    monkeypatch.setenv("WORD", "hello")
    assert "there is no parameter 'word'" in good("validate", "one.json")
    assert good("validate", "one.json", "--parameters", "p.json", "--strict") == "one.json: no problems.\n"
    found = json.loads(good("run", "one.json", "--parameters", "p.json", "--body", "{}", "--json"))
    assert found["response"]["body"] == "hello!"
    flow = named_workflows(["one.json"], parameters={"word": "given"})["one"]
    assert flow.run_sync({}).response["body"] == "given"  # type: ignore[call-arg]
    Path("bad.json").write_text(json.dumps({"word": {"type": "Int", "value": "x"}}))
    result = loom("validate", "one.json", "--parameters", "bad.json")
    assert "error: word.value: the value is String, and the type is Int" in result.output


def test_a_folder_without_workflows_is_refused(shop: Path) -> None:
    write("app")
    Path("app/Main/workflow.json").unlink()
    result = loom("worker", "app")
    assert (result.exit_code, result.stderr) == (2, "Error: app has no flows: it has no .json or .yaml files.\n")


def test_workflows_deeper_in_a_folder_have_the_values_of_their_project(shop: Path) -> None:
    read = workflow({"Say": compose("@parameters('word')")}, "@outputs('Say')")
    write("around/app", **{"Main/workflow.json": read, "parameters.json": {"word": text("deep")}})
    found = named_workflows(["around"])
    assert found["Main"].run_sync({}).response["body"] == "deep"  # type: ignore[call-arg]


def test_a_workflow_without_its_handlers_is_loaded_and_named(shop: Path) -> None:
    mail = next(shape for shape in shapes() if shape.workflow == "Mail")
    mail.write(Path())
    with isolated_handlers(empty=True):
        told = good("validate", mail.name)
    assert "project_Mail/connections.json:3:5: warning: managedApiConnections.office365: nothing here does" in told
    assert 'register @loom.action("ApiConnection")' in told
    assert MANAGED["managedApiConnections"].keys() == {"office365"}
    assert local(A="1")["Values"]["A"] == "1"


def test_host_json_says_how_long_runs_are_kept_if_nothing_else_does(shop: Path) -> None:
    settings = {"Runtime.FlowRetentionThreshold": "1.00:00:00"}
    write("app", **{"host.json": {"version": "2.0", "extensions": {"workflow": {"settings": settings}}}})
    Path("one.json").write_text(json.dumps(workflow({}, "x")))
    projects: list[Project] = []
    alone = named_workflows(["app"], projects=projects)
    assert retention(None, alone, projects) == 86_400.0
    assert retention(60.0, alone, projects) == 60.0
    assert retention(None, named_workflows(["app", "one.json"]), projects) is None

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import loom
from loom.cli import main

FLOW = """
from loom import Event, StartEvent, StopEvent, Workflow, step


class Middle(Event):
    pass


class Flow(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Middle:
        return Middle()

    @step
    async def finish(self, ev: Middle) -> StopEvent:
        return StopEvent()


flow = Flow()
number = 5
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory to work in; what is loaded from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    (tmp_path / "drawn_flow.py").write_text(FLOW)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def graph(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["graph", *arguments])


@pytest.mark.parametrize("target", ["drawn_flow.py:Flow", "drawn_flow.py:flow", "drawn_flow:Flow", "drawn_flow:flow"])
@pytest.mark.usefixtures("place")
def test_prints_mermaid_of_classes_and_instances(target: str) -> None:
    result = graph(target)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "flowchart TD"
    assert "    step_begin --> event_Middle" in lines
    assert "    event_Middle --> step_finish" in lines


def test_path_may_lead_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.parent)
    assert graph(f"{place.name}/drawn_flow.py:Flow").output.startswith("flowchart TD\n")
    assert graph(f"{place / 'drawn_flow.py'}:Flow").exit_code == 0


def test_file_can_import_its_neighbours(place: Path) -> None:
    (place / "drawn_user.py").write_text("from drawn_flow import Flow\n\n\nclass Other(Flow):\n    pass\n")
    assert "step_begin" in graph("drawn_user.py:Other").output


@pytest.mark.usefixtures("place")
def test_prints_json() -> None:
    drawn = json.loads(graph("drawn_flow.py:Flow", "--json").output)
    assert drawn["name"] == "Flow"
    assert {"begin", "finish", "Middle", "StartEvent", "StopEvent"} == {node["id"] for node in drawn["nodes"]}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py:Flow", "File not found: nowhere.py"),
        ("no_such_module:Flow", "Module not found: no_such_module"),
        ("drawn_flow.no_such_module:Flow", "Module not found: drawn_flow.no_such_module"),
        ("drawn_flow.py:Nope", "drawn_flow.py has no 'Nope'. Workflows in it: Flow, flow."),
        ("drawn_flow.py:number", "drawn_flow.py:number is not a workflow but int. Workflows in it: Flow, flow."),
        ("drawn_flow.py:Middle", "drawn_flow.py:Middle is not a workflow but Middle."),
        ("drawn_flow.py", "'drawn_flow.py' lacks the name of a workflow in it: use drawn_flow.py:name."),
        ("drawn_flow.py:", "'drawn_flow.py:' is not a target"),
        (":Flow", "':Flow' is not a target"),
    ],
)
@pytest.mark.usefixtures("place")
def test_wrong_target_is_named_with_exit_code_2(target: str, message: str) -> None:
    result = graph(target)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nnonsense\n", "NameError: name 'nonsense' is not defined"),
        ("x = 1\ndef broken(:\n", "SyntaxError"),
        ("x = 1\nimport not_installed_anywhere\n", "ModuleNotFoundError: No module named 'not_installed_anywhere'"),
    ],
)
@pytest.mark.parametrize("form", ["drawn_broken.py:Flow", "drawn_broken:Flow"])
def test_broken_module_is_reported_with_its_line(place: Path, text: str, message: str, form: str) -> None:
    (place / "drawn_broken.py").write_text(text)
    result = graph(form)
    assert result.exit_code == 2
    assert message in result.output
    assert "drawn_broken.py, line 2" in result.output
    assert "drawn_broken" not in sys.modules


def test_file_that_hides_a_loaded_module_is_refused(place: Path) -> None:
    (place / "json.py").write_text(FLOW)
    result = graph("json.py:Flow")
    assert result.exit_code == 2
    assert "another module named 'json' is loaded already" in result.output


def test_help_and_version() -> None:
    runner = CliRunner()
    assert runner.invoke(main, ["--version"]).output == f"loom, version {loom.__version__}\n"
    assert "graph" in runner.invoke(main, ["--help"]).output


def test_module_runs_as_a_program(place: Path) -> None:
    command = [sys.executable, "-m", "loom", "graph"]
    drawn = subprocess.run([*command, "drawn_flow.py:Flow"], capture_output=True, text=True, check=False, cwd=place)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert drawn.stdout.startswith("flowchart TD\n")
    wrong = subprocess.run([*command, "drawn_flow.py:Nope"], capture_output=True, text=True, check=False, cwd=place)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "has no 'Nope'" in wrong.stderr


def test_workflow_of_the_original_gets_a_hint(place: Path) -> None:
    (place / "drawn_old.py").write_text(
        FLOW.replace(
            "from loom import Event, StartEvent, StopEvent, Workflow, step",
            "from workflows import Workflow, step\nfrom workflows.events import Event, StartEvent, StopEvent",
        )
    )
    command = [sys.executable, "-m", "loom", "graph", "drawn_old.py:Flow"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place)
    assert done.returncode == 2
    assert "built on llama-index-workflows" in done.stderr


def test_start_is_light() -> None:
    program = "import sys, loom.cli; print([m for m in ('asyncio', 'pydantic', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

from __future__ import annotations

from pathlib import Path

import pytest
from cli_rig import DOUBLE, data, failure, good, working

from loom.cli.targets import TargetError, is_flow_target, named_workflows
from loom.runtime.flow import Flow

FINE = '{"actions": {"a": {"type": "compose", "inputs": 1}}}'


def test_flows_go_by_their_files_and_those_of_standard_by_their_folders(flows: Path) -> None:
    folder = flows / "app" / "Orders"
    folder.mkdir(parents=True)
    (folder / "workflow.json").write_text(FINE)
    (flows / "app" / "sync.yaml").write_text("actions: {a: {type: compose, inputs: 1}}")
    found = named_workflows(["app", "count.json", "renamed=nested.json", DOUBLE])
    assert list(found) == ["Orders", "sync", "count", "renamed", "Double"]
    assert [isinstance(workflow, Flow) for workflow in found.values()] == [True, True, True, True, False]


def test_a_folder_alone_names_all_its_flows(flows: Path) -> None:
    assert list(named_workflows([str(flows)])) == ["count", "nested", "retried", "secret"]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (("count.json", "count=nested.json"), "Two targets are named count"),
        (("x=.",), "names a folder: its flows go by the names of their files"),
        (("empty",), "empty has no flows"),
        (("no.json",), "File not found: no.json"),
    ],
)
def test_wrong_targets_are_told(flows: Path, targets: tuple[str, ...], message: str) -> None:
    (flows / "empty").mkdir()
    with pytest.raises(TargetError, match=message):
        named_workflows(targets)


def test_what_is_a_flow_and_what_is_code(flows: Path) -> None:
    assert [is_flow_target(target) for target in ("a.json", "x=a.YAML", "b.yml", ".", "a.py:b", "pkg.mod:Name")] == [
        *(True, True, True, True),
        *(False, False),
    ]


def test_a_worker_works_for_a_folder_of_flows_and_for_python(flows: Path) -> None:
    folder = flows / "app"
    folder.mkdir()
    (flows / "count.json").rename(folder / "count.json")
    with working(flows, "app", DOUBLE, "--handlers", "flow_handlers.py"):
        good("workflow", "start", "count", "--parameter", "to=2", "--run-id", "c")
        good("workflow", "start", "Double", '{"number": 4}', "--run-id", "d")
        assert good("workflow", "events", "c", "--follow").splitlines()[-1].endswith("outputs { twice: 4 }")
        good("workflow", "events", "d", "--follow")
    assert {run["workflow"] for run in data("workflow", "list", "--status", "completed")} == {"count", "Double"}


def test_python_workflows_have_no_flow_options(flows: Path) -> None:
    good("db", "upgrade")
    told = failure(2, "workflow", "start", "Double", "--parameter", "a=1", "--target", DOUBLE)
    assert told == "Double is a workflow in Python: it has no parameters, variables or headers."

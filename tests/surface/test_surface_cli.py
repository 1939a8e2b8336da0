"""What each command that only looks prints of the fixed store, for people and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from surface_commands import EVERY_RUN, shown
from surface_golden import FOLDER, Compare, without_keys
from surface_script import AFTER
from surface_workflows import FAILING, LOOP

LISTS = (
    "",
    "--status completed",
    "--status failed",
    "--status running",
    "--status cancelled",
    "--workflow asks",
    "--idle",
    "--not-idle",
    "--idle-longer-than 2h",
    "--waiting-for Approval",
    "--waiting-for Go",
    "--paused",
    "--parked",
    "--stuck",
    "--parent parent-1",
    "--tag team=blue",
    "--tag team=blue --tag kind=weekly",
    "--limit 3",
    "--workflow nobody",
)
CODE = f"--target {FOLDER}/surface_workflows.py"


def test_lists_of_runs(place: Path, golden: Compare) -> None:
    golden("cli/list.txt", shown((f"workflow list {options}".rstrip() for options in LISTS), forms=("",)))


def test_lists_of_runs_as_json(place: Path, golden: Compare) -> None:
    wanted = ("", "--results", "--status failed", "--waiting-for Approval", "--parked")
    golden("cli/list-json.txt", shown((f"workflow list {options}".rstrip() for options in wanted), forms=(" --json",)))


def test_the_status_of_every_run(place: Path, golden: Compare) -> None:
    golden("cli/status.txt", shown((f"workflow status {run_id}" for run_id in EVERY_RUN), forms=("",)))


def test_the_status_of_every_run_as_json(place: Path, golden: Compare) -> None:
    golden("cli/status-json.txt", shown((f"workflow status {run_id}" for run_id in EVERY_RUN), forms=(" --json",)))


def test_other_forms_of_a_status(place: Path, golden: Compare) -> None:
    wanted = [
        "report-1 --tick 1",
        "broken-1 --tick 2",
        "loop-1 --tick 4",
        "loop-1 --actions",
        "loop-2 --actions",
        "failed-flow-1 --actions",
        f"asks-1 {CODE}:Asks",
        "report-1 --tick 99",
        "nobody",
    ]
    golden("cli/status-more.txt", shown(f"workflow status {arguments}" for arguments in wanted))


def test_streams_of_events(place: Path, golden: Compare) -> None:
    wanted = [
        *(f"{run_id} --all" for run_id in ("report-1", "broken-1", "asks-1", "parent-1", "loop-1", "failed-flow-1")),
        "report-1",
        "report-1 --after 3",
        "report-1 --follow",
        "loop-1",
        "nobody",
    ]
    golden("cli/events.txt", shown(f"workflow events {arguments}" for arguments in wanted))


def test_histories(place: Path, golden: Compare) -> None:
    people = [run_id for run_id in EVERY_RUN if run_id != "chatty-1"] + ["chatty-1 --start 599"]
    golden("cli/history.txt", shown((f"workflow history {each}" for each in people), forms=("",)))
    wanted = ["report-1", "broken-1", "paused-1", "early-1", "parent-1", "parked-1", "loop-1", "failed-flow-1"]
    cut = ["loop-1 --start 3 --limit 2", "nobody"]
    golden("cli/history-json.txt", shown((f"workflow history {each}" for each in (*wanted, *cut)), forms=(" --json",)))


def test_what_holds_every_run(place: Path, golden: Compare) -> None:
    golden("cli/why.txt", shown(f"why {run_id}" for run_id in (*EVERY_RUN, "nobody")))


def test_timelines(place: Path, golden: Compare) -> None:
    wanted = ("report-1", "broken-1", "slow-1", "loop-1", "failed-flow-1", "nobody")
    lanes = ("loop-1 --lane each", "loop-1 --lane nothing")
    golden("cli/timeline.txt", shown(f"runs timeline {each}" for each in (*wanted, *lanes)))


def test_replays(place: Path, golden: Compare) -> None:
    golden("cli/replay.txt", shown(f"workflow replay {run_id}" for run_id in (*EVERY_RUN, "nobody")))


def test_exports(place: Path, golden: Compare) -> None:
    wanted = ("report-1", "paused-1", "loop-2", "nobody")
    golden("cli/export.txt", shown((f"workflow export {run_id}" for run_id in wanted), forms=("",)))


def test_schedules(place: Path, golden: Compare) -> None:
    wanted = ("schedule list", "schedule show nightly", "schedule show rarely", "schedule show nobody")
    golden("cli/schedules.txt", shown(wanted))


def test_keys(place: Path, golden: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [
        "keys list",
        "keys create ops --scope admin",
        "keys list",
        "keys create reader --scope read --workflow asks --expires 90d --json",
        "keys list",
        "keys list --json",
        "keys revoke 000000000000",
    ]
    pages = []
    for hours, command in enumerate(commands):
        # Keys of one moment would be listed by their ids, which chance draws.
        monkeypatch.setattr(time, "time", lambda hours=hours: AFTER + hours * 3600)
        pages.append(shown([command], forms=("",)))
    golden("cli/keys.txt", without_keys("\n".join(pages)))


def test_the_database(place: Path, golden: Compare) -> None:
    commands = [
        "db verify",
        "db verify --run loop-1",
        "db verify --run nobody",
        "db upgrade",
        "db upgrade --sql",
        "workflow list --store sqlite:///missing.db",
        "workflow list --store nothing://here",
    ]
    text = shown(commands) + "\n" + shown(["db anchor"], forms=("",))
    golden("cli/database.txt", text)


@pytest.fixture
def flows(place: Path) -> Path:
    """Write files of flows beside the store: two good ones, and one with problems."""
    for name, document in (("loop", LOOP), ("failing", FAILING)):
        (place / f"{name}.json").write_text(json.dumps(document, indent=2))
    bad = {"actions": {"a": {"type": "until", "actions": {}}, "b": {"type": "nothing", "runAfter": {"c": ["No"]}}}}
    (place / "bad.json").write_text(json.dumps(bad, indent=2))
    (place / "torn.json").write_text('{"actions": ')
    return place


def test_drawings(flows: Path, golden: Compare) -> None:
    wanted = [*(f"loop.json --format {name}" for name in ("mermaid", "dot", "text")), "failing.json --format text"]
    wanted += [f"{FOLDER}/surface_workflows.py:{name}" for name in ("Report", "Asks", "Nobody")]
    golden("cli/graph.txt", shown(f"graph {arguments}" for arguments in wanted))


def test_validations(flows: Path, golden: Compare) -> None:
    wanted = ("loop.json", "failing.json", "bad.json", "torn.json", "missing.json", "--strict bad.json loop.json")
    golden("cli/validate.txt", shown(f"validate {arguments}" for arguments in wanted))


def test_evaluations(place: Path, golden: Compare) -> None:
    (place / "context.json").write_text('{"variables": {"name": "Ada"}, "utcNow": "2024-02-29T12:00:00Z", "seed": 1}')
    wanted = [
        "'@add(1, 2)'",
        "'Hello @{variables(\"name\")}' --context context.json",
        "\"Hello @{variables('name')}, it is @{utcNow()}\" --context context.json",
        "\"@createArray(1, 'two', null)\"",
        "'@div(1, 0)'",
        "'@add(1'",
        "--list",
    ]
    golden("cli/eval.txt", shown(f"eval {arguments}" for arguments in wanted))

"""One act on many runs from the command line: what it counts, asks, does and says."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from cli_rig import data, failure, good, loom, until_end
from server_rig import Serving

from loom.api.requests import RunFilters
from loom.cli.app import runs

pytestmark = pytest.mark.usefixtures("shop")


def stored(*run_ids: str) -> None:
    good("db", "upgrade")
    for run_id in run_ids:
        good("runs", "start", "Order", "--run-id", run_id, "--tag", "kind=tea")


def test_counts_asks_and_cancels() -> None:
    stored("a", "b")
    many = ("runs", "cancel", "--status", "running", "--workflow", "Order")
    assert data(*many, "--dry-run")["matched"] == 2
    first, *ids = good(*many, "--dry-run").splitlines()
    assert (first, sorted(ids)) == ("2 runs would be asked to cancel.", ["a", "b"])
    refused = loom(*many, text="n\n")
    assert (refused.exit_code, "Cancel 2 runs?" in refused.stderr) == (1, True)
    assert {run["status"] for run in data("runs", "list")} == {"running"}
    assert good(*many, "--yes") == "cancel: 2 of 2 runs done, 0 failed.\n"
    until_end("a")
    until_end("b")
    again = loom("workflow", "cancel", "--tag", "kind=tea", "--yes")
    assert again.exit_code == 0  # what is cancelled stays so
    assert good("runs", "delete", "--status", "cancelled", "--yes") == "delete: 2 of 2 runs done, 0 failed.\n"
    assert data("runs", "list") == []


def test_failures_are_named_and_the_code_says_so() -> None:
    good("run", "shop.py:Double", "--run-id", "d")
    result = loom("runs", "pause", "--id-prefix", "d", "--yes")
    assert (result.exit_code, result.stdout) == (1, "pause: 0 of 1 run done, 1 failed.\n")
    assert result.stderr.startswith("d: run-finished: Run 'd' has ended (completed)")


def test_one_run_or_filters() -> None:
    stored("a")
    assert "Name a RUN_ID, or filters" in loom("runs", "cancel").stderr
    assert "Name a RUN_ID, or filters" in loom("runs", "cancel", "a", "--status", "running").stderr
    assert "--event is for one RUN_ID" in loom("runs", "retry", "--status", "failed", "--event", "X", "{}").stderr
    assert good("runs", "cancel", "a") == "Run a was asked to cancel.\n"
    until_end("a")
    assert good("runs", "delete", "a") == "1 run was deleted.\n"
    assert failure(1, "runs", "delete", "a") == "Run 'a' was not found."


def test_over_a_server(flows: object) -> None:
    del flows
    with Serving().running() as server:
        for run_id in ("a", "b"):
            server.begun(run_id)
        told = server.data("runs", "pause", "--workflow", "Order", "--yes")
        assert (told["matched"], told["done"], told["finished"]) == (2, 2, True)
        assert server.good("runs", "cancel", "--id-prefix", "a", "--yes") == "cancel: 1 of 1 run done, 0 failed.\n"


def test_every_filter_of_lists_is_an_option() -> None:
    # The page writes down the command for whatever its list is filtered by.
    wanted = {*get_type_hints(RunFilters)} - {"order", "include"}
    for name in ("cancel", "delete", "pause", "resume", "retry"):
        found = {parameter.name for parameter in runs.commands[name].params}
        assert wanted - found == set(), name


def test_several_statuses_and_workflows_mean_any_of_them() -> None:
    stored("a", "b")
    good("run", "shop.py:Double", "--run-id", "d")
    good("runs", "cancel", "a")
    until_end("a")
    both = ("--status", "cancelled", "--status", "completed")
    assert {run["run_id"] for run in data("runs", "list", *both)} == {"a", "d"}
    assert {run["run_id"] for run in data("runs", "list", *both, "--workflow", "Order", "--workflow", "None")} == {"a"}
    assert data("runs", "delete", *both, "--dry-run")["matched"] == 2
    assert data("runs", "delete", *both, "--workflow", "Order", "--dry-run")["sample"] == ["a"]
    for option in (["--not-asleep"], ["--not-waiting"], ["--updated-after", "1d"], ["--not-idle"]):
        assert "d" in data("runs", "delete", "--status", "completed", *option, "--dry-run")["sample"], option
    assert data("runs", "delete", "--parent", "d", "--dry-run")["matched"] == 0
    assert data("runs", "cancel", "--idle-longer-than", "1h", "--dry-run")["matched"] == 0

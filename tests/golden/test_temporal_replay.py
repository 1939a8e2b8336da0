"""Histories that were recorded on a real Temporal server replay, without one, to the same rows, states and streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import temporal_cases
import temporal_check
import temporal_history
from msgspec.structs import replace
from temporal_history import Execution, KeepingRunner
from temporalio.workflow import NondeterminismError

from loom.temporal.workflow.policy import CANCELS_FIRST, POLICIES, flag_of

FILES = temporal_history.files()


def _id(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.json.xz')}"


def _executions(name: str) -> list[Execution]:
    return temporal_history.read(temporal_history.folder(0) / f"{name}.json.xz")


def _events(execution: Execution) -> str:
    return bytes(execution.history).decode()


def _runner(**options: object) -> KeepingRunner:
    return KeepingRunner(temporal_cases.codes(), **options)


@pytest.mark.parametrize("path", FILES, ids=_id)
async def test_a_recorded_history_gives_the_same_row_state_and_stream(path: Path) -> None:
    assert await temporal_check.problems(path) == []


@pytest.mark.parametrize("path", FILES, ids=_id)
async def test_the_code_at_hand_has_no_part_in_a_replay(path: Path) -> None:
    runner = KeepingRunner(temporal_cases.other_codes())
    for execution in temporal_history.read(path):
        assert await temporal_history.replayed(execution, runner) == execution.ended


@pytest.mark.parametrize("seed", ["1", "4711"] if "LOOM_FULL" in os.environ else ["4711"])
def test_no_history_follows_the_order_of_hashes(seed: str) -> None:
    done = subprocess.run(
        [sys.executable, temporal_check.__file__],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{len(FILES)} cases\n"), done.stderr


def test_every_case_is_recorded_with_every_row() -> None:
    rows = {str(row) for row in range(len(POLICIES))}
    assert {path.parent.name for path in FILES} == rows
    for row in rows:
        assert set(temporal_cases.CASES) <= {path.name.removesuffix(".json.xz") for path in FILES if row in path.parts}


def test_the_cases_are_what_they_are_kept_for() -> None:
    [fence], [window], continued = _executions("fence"), _executions("window"), _executions("continued")
    assert '"startToFireTimeout":"0.001s"' in _events(fence)
    assert _events(window).count('"EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"') > POLICIES[0].window
    assert len(continued) > 2
    assert all("loom.mail" in _events(execution) for execution in continued[:2]), "signals arrive meanwhile"
    [without_code], [other_code] = _executions("without_code"), _executions("other_code")
    assert '"activityType":{"name":"loom.code"}' in _events(without_code)
    assert '"signalName":"loom.code"' in _events(other_code)
    assert _executions("parked")[0].ended.row.head.parked
    assert _executions("cancelled")[0].ended.row.head.status == "cancelled"
    assert '"EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED"' in _events(_executions("updated")[0])
    assert len(_executions("children")) == 3


async def test_a_cancel_overtakes_only_in_runs_whose_history_says_so() -> None:
    for execution in _executions("cancelled_first"):
        assert execution.ended.row.head.status == "cancelled"
        older = _events(execution).replace(f",{CANCELS_FIRST}", "")
        assert older != _events(execution)
        replayed = await temporal_history.replayed(
            replace(execution, history=type(execution.history)(older.encode())), _runner()
        )
        assert replayed.state != execution.ended.state


@pytest.mark.parametrize(
    ("name", "changed"),
    [("fence", {"budget": 1_400_000}), ("window", {"window": 900}), ("continued", {"carried": 100})],
)
async def test_a_changed_row_fails_loudly(name: str, changed: dict[str, int]) -> None:
    runner = _runner(policies=(replace(POLICIES[0], **changed),))
    with pytest.raises(NondeterminismError):
        await temporal_history.replayed(_executions(name)[0], runner)


@pytest.mark.parametrize("name", ["fence", "window"])
async def test_a_newer_row_is_for_new_runs_only(name: str) -> None:
    runner = _runner(policies=(*POLICIES, replace(POLICIES[-1], budget=10_000, window=10)))
    [execution] = _executions(name)
    assert await temporal_history.replayed(execution, runner) == execution.ended


async def test_a_row_from_the_future_is_refused() -> None:
    [execution] = _executions("retries")
    known, unknown = str(flag_of(0)), str(flag_of(len(POLICIES)))
    assert known in _events(execution)
    newer = replace(execution, history=type(execution.history)(_events(execution).replace(known, unknown).encode()))
    with pytest.raises(Exception, match=f"made with policy {len(POLICIES)}"):
        await temporal_history.replayed(newer, _runner())


async def test_a_reducer_that_deviates_is_noticed() -> None:
    [execution] = _executions("retries")
    other = _events(execution).replace('"activityType":{"name":"call"}', '"activityType":{"name":"ring"}', 1)
    with pytest.raises(NondeterminismError):
        await temporal_history.replayed(replace(execution, history=type(execution.history)(other.encode())), _runner())

"""Flows whose process dies at each of its commits, or whose commits fail: one result, one stream, whatever happens.

By default every commit of a few kinds of loops is tried; `LOOM_FLOW_COMMITS=all` tries all kinds, and both sides of
every commit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dying_sqlite import HeldStore, lived
from flow_samples import LOOPS, PLACES, RETRY, Work, install, iterations, log_of, paths
from runtime_watching import Witness

import loom
from loom import FlowResult
from loom.runtime.durable.runtime import DurableRuntime
from loom.testing import FaultPlan, FaultyStore, run_virtual

ALL = os.environ.get("LOOM_FLOW_COMMITS") == "all"
KINDS = (*LOOPS, "retry") if ALL else ("delayed", "Azure's Until", "nested", "retry")
SIDES = (False, True)


def new_flow(kind: str) -> loom.Flow:
    return RETRY() if kind == "retry" else LOOPS[kind]()


async def run_it(kind: str, path: Path, plan: FaultPlan) -> tuple[FlowResult | None, list[str]]:
    """One process: the result and the stream's iterations, or None if it has died."""

    async def work(runtime: DurableRuntime) -> tuple[FlowResult, list[str]]:
        result: FlowResult = await (await runtime.start("flow", run_id="a"))
        return result, await iterations(runtime, "a")

    return await lived(FaultyStore(HeldStore(path), plan), new_flow(kind), work) or (None, [])


def check(kind: str, result: FlowResult, seen: list[str], work: Work) -> None:
    """That nothing is to be seen of what went wrong, but for what an activity was asked again."""
    log = log_of(kind) if kind != "retry" else [{"at": "at 0", "seen": "nothing"}]
    assert (result.status, result.variables["log"]) == ("Succeeded", log)
    assert seen == (paths(kind) if kind != "retry" else [])
    places = PLACES.get(kind, ("at 0",))
    assert set(work.keys) == set(places)
    assert all(len(keys) == 1 for keys in work.keys.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_process_dies_at_each_commit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = 0
    for number in range(1, 100):
        died = False
        for after in SIDES if ALL else (bool(number % 2),):
            work = install(monkeypatch, Witness())
            work.failing = {"at 0": 2} if kind == "retry" else {}
            path = tmp_path / f"{number}{after}.db"
            result, seen = run_virtual(run_it(kind, path, FaultPlan(crash_at=number, crash_after=after)))
            if result is None:
                died = True
                result, seen = run_virtual(run_it(kind, path, FaultPlan()), start=1_700_000_500.0)
            assert result is not None
            check(kind, result, seen, work)
            tried += died
        if not died:
            break
    assert tried >= len(PLACES.get(kind, "12"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["fail_before", "fail_after"])
def test_commits_fail(kind: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5 if ALL else 2):
        work = install(monkeypatch, Witness())
        work.failing = {"at 0": 2} if kind == "retry" else {}
        plan = FaultPlan(seed=seed, **{fault: 0.3})
        result, seen = run_virtual(_starting(kind, tmp_path / f"{seed}.db", plan))
        assert result is not None
        check(kind, result, seen, work)


async def _starting(kind: str, path: Path, plan: FaultPlan) -> tuple[FlowResult | None, list[str]]:
    """The start itself may fail, and is made again: the same start is the same run."""
    for _ in range(20):
        try:
            return await run_it(kind, path, plan)
        except loom.StoreUnavailable:
            plan = FaultPlan(seed=plan.seed + 100, fail_before=plan.fail_before, fail_after=plan.fail_after)
    raise AssertionError("the run could not be started")

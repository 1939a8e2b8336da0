"""Flows whose process dies at each of its commits, or whose commits fail: one result, one stream, whatever happens.

By default every commit of a few kinds of loops is tried; `LOOM_FLOW_COMMITS=all` tries all kinds, and both sides of
every commit.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from flow_samples import LOOPS, PLACES, RETRY, Work, install, iterations, log_of, paths
from runtime_watching import Witness
from typing_extensions import override

import loom
from loom import FlowResult
from loom.store.sqlite import SqliteStore
from loom.testing import FaultPlan, FaultyStore, run_virtual
from loom.testing.faults import Crash

ALL = os.environ.get("LOOM_FLOW_COMMITS") == "all"
KINDS = (*LOOPS, "retry") if ALL else ("delayed", "Azure's Until", "nested", "retry")
SIDES = (False, True)


class HeldStore(SqliteStore):
    """Virtual time stands still while its threads are at work, or the limits of loops would be reached by waiting."""

    @override
    async def apply(self, group: Any) -> Any:
        with asyncio.get_running_loop().hold():  # type: ignore[attr-defined]
            return await super().apply(group)

    @override
    async def load(self, run_id: str) -> Any:
        with asyncio.get_running_loop().hold():  # type: ignore[attr-defined]
            return await super().load(run_id)

    @override
    async def get(self, run_id: str) -> Any:
        with asyncio.get_running_loop().hold():  # type: ignore[attr-defined]
            return await super().get(run_id)

    @override
    async def stream(self, run_id: str, cursor: int, limit: int) -> Any:
        with asyncio.get_running_loop().hold():  # type: ignore[attr-defined]
            return await super().stream(run_id, cursor, limit)


def new_flow(kind: str) -> loom.Flow:
    return RETRY() if kind == "retry" else LOOPS[kind]()


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody is left in a crashed process to ask what became of its tasks."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


async def lived(kind: str, path: Path, plan: FaultPlan) -> tuple[FlowResult | None, list[str]]:
    """One process: the result and the stream's iterations, or None if it has died."""
    asyncio.get_running_loop().set_exception_handler(_tell)
    store, crashed = FaultyStore(HeldStore(path), plan), asyncio.Event()
    store.on_crash = crashed.set
    runtime = loom.connect(store)
    runtime.register(new_flow(kind))

    async def work_on_it() -> tuple[FlowResult, list[str]]:
        await runtime.__aenter__()
        result: FlowResult = await (await runtime.start("flow", run_id="a"))
        return result, await iterations(runtime, "a")

    tasks = [asyncio.create_task(work_on_it()), asyncio.create_task(crashed.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    found, _ = await asyncio.gather(*tasks, return_exceptions=True)
    await runtime.close()
    if store.crashed:
        store.inner._fence = None  # type: ignore[attr-defined]  # the dead say no goodbye
        await store.inner.close()
        return None, []
    if isinstance(found, BaseException):
        raise found
    return found


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
            result, seen = run_virtual(lived(kind, path, FaultPlan(crash_at=number, crash_after=after)))
            if result is None:
                died = True
                result, seen = run_virtual(lived(kind, path, FaultPlan()), start=1_700_000_500.0)
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
            return await lived(kind, path, plan)
        except loom.StoreUnavailable:
            plan = FaultPlan(seed=plan.seed + 100, fail_before=plan.fail_before, fail_after=plan.fail_after)
    raise AssertionError("the run could not be started")

"""Random flows on the real runtimes: in memory, on SQLite, and on SQLite with crashes at any commit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from flow_driver import Driver
from flow_programs import comparable, flows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

import loom
from loom import ActionContext
from loom.effects.flow_result import FlowResult
from loom.flows import planner, walk
from loom.store.sqlite import SqliteStore
from loom.testing import FaultPlan, FaultyStore, run_virtual
from loom.testing.faults import Crash

# A database for each of them takes its time.
some_flows = settings(max_examples=max(5, settings().max_examples // 25), suppress_health_check=list(HealthCheck))


class Flaky(Exception):
    """What the activity fails with."""


async def work(given: dict[str, Any], context: ActionContext) -> dict[str, Any]:
    if context.attempt < given["failures"]:
        raise Flaky(f"attempt {context.attempt}")
    return {"worked": given["value"]}


@pytest.fixture(autouse=True)
def _activity(monkeypatch: pytest.MonkeyPatch) -> None:
    from loom.effects.actions.handlers import HANDLERS

    monkeypatch.setitem(HANDLERS.activities, "work", work)


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


async def in_memory(definition: Any) -> FlowResult:
    result: FlowResult = await loom.load(definition, name="random").run()
    return result


async def on_sqlite(definition: Any, path: Path, crashes: list[int]) -> FlowResult:
    """Each number is the write at which a process dies. The one after them lives."""
    asyncio.get_running_loop().set_exception_handler(_tell)
    for crash_at in crashes:
        plan = FaultPlan(crash_at=crash_at, crash_after=bool(crash_at % 2))
        result = await _process(definition, FaultyStore(HeldStore(path), plan))
        if result is not None:
            return result
    result = await _process(definition, FaultyStore(HeldStore(path), FaultPlan()))
    assert result is not None
    return result


async def _process(definition: Any, store: FaultyStore) -> FlowResult | None:
    """One process that works on the run: the result, or None if it has died before."""
    crashed = asyncio.Event()
    store.on_crash = crashed.set
    runtime = loom.connect(store)
    runtime.register(loom.load(definition, name="random"))

    async def work_on_it() -> FlowResult:
        await runtime.__aenter__()
        result: FlowResult = await (await runtime.start("random", run_id="a"))
        return result

    tasks = [asyncio.create_task(work_on_it()), asyncio.create_task(crashed.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    result, _ = await asyncio.gather(*tasks, return_exceptions=True)
    await runtime.close()
    if store.crashed:
        store.inner._fence = None  # type: ignore[attr-defined]  # the dead say no goodbye
        await store.inner.close()
        return None
    assert isinstance(result, FlowResult), result
    return result


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody is left in a crashed process to ask what became of its tasks."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


@given(flows(), st.lists(st.integers(1, 12), max_size=3), st.sampled_from([1, 3, walk.FUEL]))
@some_flows
def test_memory_and_sqlite_give_the_same_result(definition: Any, crashes: list[int], fuel: int) -> None:
    expected = comparable(Driver(loom.load(definition, name="random").program).go_on())
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(planner, "FUEL", fuel)
        assert comparable(run_virtual(in_memory(definition))) == expected
        assert comparable(run_virtual(on_sqlite(definition, Path(folder) / "runs.db", crashes))) == expected

"""Random flows on the real runtimes: in memory, on SQLite, and on SQLite with crashes at any commit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dying_sqlite import HeldStore, lived
from flow_driver import Driver
from flow_programs import comparable, flows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import loom
from loom import ActionContext
from loom.effects.flow_result import FlowResult
from loom.flows import planner, walk
from loom.runtime.durable.runtime import DurableRuntime
from loom.testing import FaultPlan, FaultyStore, run_virtual

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


async def in_memory(definition: Any) -> FlowResult:
    result: FlowResult = await loom.load(definition, name="random").run()
    return result


async def on_sqlite(definition: Any, path: Path, crashes: list[int]) -> FlowResult:
    """Each number is the write at which a process dies. The one after them lives."""
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

    async def work(runtime: DurableRuntime) -> FlowResult:
        result: FlowResult = await (await runtime.start("random", run_id="a"))
        return result

    return await lived(store, loom.load(definition, name="random"), work)


@given(flows(), st.lists(st.integers(1, 12), max_size=3), st.sampled_from([1, 3, walk.FUEL]))
@some_flows
def test_memory_and_sqlite_give_the_same_result(definition: Any, crashes: list[int], fuel: int) -> None:
    expected = comparable(Driver(loom.load(definition, name="random").program).go_on())
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(planner, "FUEL", fuel)
        assert comparable(run_virtual(in_memory(definition))) == expected
        assert comparable(run_virtual(on_sqlite(definition, Path(folder) / "runs.db", crashes))) == expected

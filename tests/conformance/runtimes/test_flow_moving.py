"""Flows that move from one store to another in the middle of a loop, with their document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from flow_samples import LOOPS, PLACES, flow, install, iterations, log_of, paths
from runtime_deployments import Deployment, new_deployment
from runtime_watching import Witness, result, until, until_idle, until_status

import loom
from loom import FlowEvent
from loom.runtime.durable.runtime import DurableRuntime

WAYS = [("sqlite", "memory"), ("memory", "sqlite"), ("sqlite", "postgres")]


@pytest.fixture(params=WAYS, ids=[f"{one} to {other}" for one, other in WAYS])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Deployment, Deployment]]:
    """Two databases."""
    (tmp_path / "there").mkdir()
    here, there = new_deployment(request.param[0], tmp_path), new_deployment(request.param[1], tmp_path / "there")
    try:
        yield here, there
    finally:
        await here.dispose()
        await there.dispose()


@pytest.mark.parametrize("kind", ["nested", "Azure's Until", "foreach"])
async def test_a_loop_goes_on_in_another_store(
    stores: tuple[Deployment, Deployment], kind: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each iteration on: there a run is exported before, whatever it does afterwards."""
    activity = install(monkeypatch, witness)
    for at in PLACES[kind]:
        witness.hold(at)
    here = await stores[0].open({"flow": LOOPS[kind]()})
    await here.start("flow", {"x": 1}, run_id="a", tags={"t": "1"})
    exported = []
    for at in PLACES[kind]:
        await witness.came(at)
        exported.append(await here.export_run("a"))
        witness.let(at)
    await result(await here.handler("a"))
    # Nobody there knows the flow by anything but what came along.
    there = await stores[1].open({"flow": flow({})})
    for number, data in enumerate(exported):
        before = len(witness.calls)
        assert await there.import_run(data) == "a"
        ended = await result(await there.handler("a"))
        assert (ended.status, ended.variables["log"]) == ("Succeeded", log_of(kind))
        assert await iterations(there, "a") == paths(kind)
        assert witness.calls[before:] == list(PLACES[kind][number:])
        assert (await there.get("a")).tags == {"t": "1"}
        await there.purge("a")
    assert all(len(keys) == 1 for keys in activity.keys.values())


async def _rests(runtime: DurableRuntime, run_id: str) -> bool:
    """Whether the run has a timer under way."""
    stored = await runtime.store.load(run_id)
    return stored is not None and bool(stored.timers)


async def test_a_flow_that_waits_moves_with_what_it_waits_for(stores: tuple[Deployment, Deployment]) -> None:
    def patient() -> loom.Flow:
        ask = {"type": "waitForEvent", "inputs": {"event": "Word"}}
        rest = {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}}
        return flow({"ask": ask, "rest": rest})

    here = await stores[0].open({"flow": patient()})
    await here.start("flow", run_id="a")
    await until_idle(here, "a")
    there = await stores[1].open({"flow": patient()}, lease=100_000)
    await there.import_run(await here.export_run("a"))
    await there.send_event("a", FlowEvent(name="Word", data="there"))
    await until(lambda: _rests(there, "a"), "the wait of an hour")
    stores[0].clock.ahead_s = 3601
    back = await there.export_run("a")
    await here.cancel("a")
    await until_status(here, "a", "cancelled")
    await here.purge("a")
    await here.import_run(back)
    ended = await result(await here.handler("a"))
    assert (ended.status, ended.actions["ask"].outputs) == ("Succeeded", "there")

"""Loops of flows: a crash at any iteration, and the loop goes on where it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from flow_samples import LOOPS, PLACES, RETRY, azure_flow, install, iterations, log_of, paths, work
from runtime_deployments import Deployment, new_deployment
from runtime_watching import Witness, result, until_info

import loom

CASES = [pytest.param("sqlite", kind, True, id=f"{kind}-crash-sqlite") for kind in LOOPS]
CASES += [pytest.param("sqlite", "nested", False, id="nested-close-sqlite")]
CASES += [pytest.param(store, "nested", True, id=f"nested-crash-{store}") for store in ("memory", "postgres")]
"""Every kind of loop on one store; all stores have the same promises, and one kind says whether they keep them."""


@pytest.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A database of the kind that the test names."""
    deployment = new_deployment(request.param, tmp_path)
    try:
        yield deployment
    finally:
        await deployment.dispose()


@pytest.mark.parametrize(("place", "kind", "crashes"), CASES, indirect=["place"])
async def test_a_loop_goes_on_at_the_iteration_where_it_was(
    place: Deployment, kind: str, crashes: bool, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    for at in PLACES[kind]:
        witness.hold(at)
    runtime = await place.open({"flow": LOOPS[kind]()})
    await runtime.start("flow", run_id="a")
    for at in PLACES[kind]:
        await witness.came(at)
        await (place.crash(runtime) if crashes else place.close(runtime))
        runtime = await place.open({"flow": LOOPS[kind]()})
        await witness.came(at, 2)
        witness.let(at)
    ended = await result(await runtime.handler("a"))
    assert (ended.status, ended.variables) == ("Succeeded", {"n": len(PLACES[kind]), "log": log_of(kind)})
    assert await iterations(runtime, "a") == paths(kind)
    assert activity.times() == dict.fromkeys(PLACES[kind], 2), "only what was under way is done again"
    assert all(len(keys) == 1 for keys in activity.keys.values()), "and by the key that it had before"
    assert len({key for keys in activity.keys.values() for key in keys}) == len(PLACES[kind])


def parallel() -> loom.Flow:
    """Six elements, three at a time."""
    each = {"type": "Foreach", "foreach": "@range(0, 6)", "actions": {"step": work("@concat('at ', string(item()))")}}
    return azure_flow({"each": {**each, "runtimeConfiguration": {"concurrency": {"repetitions": 3}}}})


async def test_a_parallel_foreach_repeats_only_what_had_not_ended(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    for number in range(6):
        witness.hold(f"at {number}")
    runtime = await deployment.open({"flow": parallel()})
    await runtime.start("flow", run_id="a")
    times, under_way, begun = dict.fromkeys(range(6), 0), [0, 1, 2], 3
    for ended in (1, 0, 3, 2, 5, 4):
        for number in under_way:
            times[number] += 1
            await witness.came(f"at {number}", times[number])
        before = (await runtime.get("a")).ticks
        witness.let(f"at {ended}")
        under_way.remove(ended)
        await until_info(runtime, "a", lambda info, before=before: info.ticks > before)
        if begun < 6:
            await witness.came(f"at {begun}")
            times[begun] += 1
            under_way.append(begun)
            begun += 1
        await deployment.crash(runtime)
        runtime = await deployment.open({"flow": parallel()})
    outcome = await result(await runtime.handler("a"))
    assert [entry["step"]["at"] for entry in outcome.actions["each"].outputs] == [f"at {n}" for n in range(6)]
    assert outcome.actions["each"].iterations == 6
    assert activity.times() == {f"at {number}": count for number, count in times.items()}
    assert all(len(keys) == 1 for keys in activity.keys.values())


async def test_a_retry_goes_on_at_the_attempt_where_it_was(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    activity.failing["at 0"] = 4
    witness.hold("at 0")
    runtime = await deployment.open({"flow": RETRY()})
    await runtime.start("flow", run_id="a")
    for attempt in range(3):
        await witness.came("at 0", 2 * attempt + 1)
        await deployment.crash(runtime)
        runtime = await deployment.open({"flow": RETRY()})
        await witness.came("at 0", 2 * attempt + 2)
        witness.let("at 0")
        witness.hold("at 0")
    ended = await result(await runtime.handler("a"))
    assert ended.variables["log"] == [{"at": "at 0", "seen": "nothing"}]
    assert [entry["code"] for entry in ended.actions["step_action"].retry_history] == ["ConnectionError"] * 2
    assert (witness.count("at 0"), len(activity.keys["at 0"])) == (6, 1)

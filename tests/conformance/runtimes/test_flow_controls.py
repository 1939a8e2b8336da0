"""Flows under way: paused and resumed, cancelled, forked, retried after a failure, terminated."""

from __future__ import annotations

from typing import Any

import pytest
from applicable import not_on
from flow_samples import LOOPS, PLACES, azure_flow, flow, install, iterations, log_of, paths, statuses, stream, work
from runtime_deployments import Deployment
from runtime_watching import Witness, failure, result, until, until_idle, until_info, until_released, until_status

from loom import FlowEvent, LoopIterationEvent, StopEvent
from loom.core.ticks import TickTimerFired
from loom.steps.errors import WorkflowCancelledByUser

HALF_AN_HOUR = {"interval": {"count": 30, "unit": "minute"}}


async def test_a_paused_loop_begins_nothing(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    witness.hold("at 1")
    runtime = await deployment.open({"flow": LOOPS["until"]()})
    await runtime.start("flow", run_id="a")
    await witness.came("at 1")
    await runtime.pause("a")
    before = await until_info(runtime, "a", lambda info: info.paused)
    witness.let("at 1")
    await until_info(runtime, "a", lambda info: info.ticks > before.ticks)
    # The body at work ended what it did, and its iteration with it. The next one has not begun.
    assert witness.calls == ["at 0", "at 1"]
    await deployment.crash(runtime)
    runtime = await deployment.open({"flow": LOOPS["until"]()})
    assert (await runtime.get("a")).paused
    assert witness.calls == ["at 0", "at 1"]
    await runtime.resume("a")
    ended = await result(await runtime.handler("a"))
    assert (ended.status, ended.variables["log"]) == ("Succeeded", log_of("until"))
    assert await iterations(runtime, "a") == paths("until")
    assert witness.calls == list(PLACES["until"])


@pytest.mark.parametrize("restarts", [False, True], ids=["here", "after a restart"])
async def test_a_timer_that_fires_in_a_paused_run_counts_when_it_is_resumed(
    deployment: Deployment, restarts: bool, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    actions = {
        "both": {
            "type": "parallel",
            "actions": {"short": {"type": "wait", "inputs": HALF_AN_HOUR}, "loop": _delayed_loop()},
        },
        "last": work("last"),
    }
    options = {"idle_timeout": 0, "lease": 100_000, "poll_interval": 0.1}
    runtime = await deployment.open({"flow": flow(actions)}, **options)
    await runtime.start("flow", run_id="a")
    await witness.came("in loop")
    await runtime.pause("a")
    await until_info(runtime, "a", lambda info: info.paused)
    deployment.clock.ahead_s += 1801

    async def fired_twice() -> bool:
        return [isinstance(tick, TickTimerFired) async for _, _, tick in runtime.history("a")].count(True) == 2

    await until(fired_twice)
    assert witness.calls == ["in loop"]
    if restarts:
        await deployment.crash(runtime)
        runtime = await deployment.open({"flow": flow(actions)}, **options)
        assert (await runtime.get("a")).paused
    await runtime.resume("a")
    ended = await result(await runtime.handler("a"))
    assert (ended.status, witness.calls) == ("Succeeded", ["in loop", "in loop", "last"])


def _delayed_loop() -> dict[str, Any]:
    body = {"step": work("in loop")}
    return {
        "type": "doUntil",
        "condition": "@equals(variables('loopIndex'), 2)",
        "delay": HALF_AN_HOUR,
        "actions": body,
    }


async def test_a_loop_is_cancelled(deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, witness)
    witness.hold("at 1")
    runtime = await deployment.open({"flow": LOOPS["while"]()}, idle_timeout=0)
    handler = await runtime.start("flow", run_id="a")
    await witness.came("at 1")
    await runtime.cancel("a")
    assert isinstance(await failure(handler), WorkflowCancelledByUser)
    assert (await until_status(runtime, "a", "cancelled")).status == "cancelled"
    assert await iterations(runtime, "a") == ["loop[0]"]


async def test_a_released_wait_is_cancelled(deployment: Deployment) -> None:
    rest = {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "day"}}}
    runtime = await deployment.open({"flow": flow({"rest": rest})}, idle_timeout=0)
    handler = await runtime.start("flow", run_id="a")
    await until_released(runtime, "a")
    await runtime.cancel("a")
    assert isinstance(await failure(handler), WorkflowCancelledByUser)
    exported = await runtime.store.export("a")
    assert exported is not None
    assert exported.timers == ()


@not_on("postgres", "temporal", when=lambda given: given["kind"] != "nested", reason="One loop is enough there.")
@pytest.mark.parametrize("kind", ["nested", "Azure's Until", "foreach", "delayed"])
async def test_a_fork_at_any_tick_ends_the_same(
    deployment: Deployment, kind: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    runtime = await deployment.open({"flow": LOOPS[kind]()})
    origin = await result(await runtime.start("flow", run_id="a"))
    ticks = (await runtime.get("a")).ticks
    for tick in range(ticks - 1):
        forked = await result(await runtime.fork("a", tick=tick, run_id=f"fork {tick}"))
        assert (forked.status, forked.variables) == (origin.status, origin.variables)
        assert await iterations(runtime, f"fork {tick}") == paths(kind)
        info = await runtime.get(f"fork {tick}")
        assert (info.forked_from, info.status) == ("a", "completed")
    # Whatever a fork does again, it does under its own name.
    for keys in activity.keys.values():
        assert {key.partition(":")[0] for key in keys} <= {"a", *(f"fork {tick}" for tick in range(ticks))}


async def test_whoever_lacks_the_flow_sees_and_forks_it_all_the_same(deployment: Deployment) -> None:
    ask = {"type": "waitForEvent", "inputs": {"event": "Word", "requirements": {"n": 1}}}
    worker = await deployment.open({"flow": flow({"ask": ask})})
    client = await deployment.open()
    handler = await worker.start("flow", run_id="a")
    await until_idle(worker, "a")
    for number in (2, 1):
        await client.send_event("a", FlowEvent(name="Word", data={"n": number}))
    await result(handler)
    ticks = (await worker.get("a")).ticks
    for tick in range(ticks):
        assert await client.state_at("a", tick) == await worker.state_at("a", tick)
    forked = await result(await client.fork("a", tick=ticks - 2, run_id="b"))
    assert forked.actions["ask"].outputs == {"n": 1}


def _weak() -> Any:
    """Something good, something that fails in a loop, something that runs behind it."""
    body = {"step": work("@concat('weak ', string(variables('loopIndex')))")}
    loop = {"type": "until", "condition": "@equals(variables('loopIndex'), 2)", "actions": body}
    return flow({"first": work("first"), "loop": loop, "last": work("last")})


@pytest.mark.parametrize("restarts", [False, True], ids=["here", "after a restart"])
async def test_a_failed_flow_goes_on_from_what_failed(
    deployment: Deployment, restarts: bool, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    activity.failing["weak 1"] = 1
    runtime = await deployment.open({"flow": _weak()})
    failed = await result(await runtime.start("flow", run_id="a"))
    assert statuses(failed) == {
        "init": "Succeeded",
        "first": "Succeeded",
        "loop": "Failed",
        "step": "Failed",
        "last": "Skipped",
    }
    info = await until_status(runtime, "a", "failed")
    assert info.error is not None
    assert "not yet at weak 1" in str(info.error)
    if restarts:
        await deployment.crash(runtime)
        runtime = await deployment.open({"flow": _weak()})
    await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    ended = await result(await runtime.handler("a"))
    assert set(statuses(ended).values()) == {"Succeeded"}
    assert (await runtime.get("a")).error is None
    assert witness.calls == ["first", "weak 0", "weak 1", "weak 1", "last"]
    assert len(activity.keys["weak 1"]) == 1


async def test_only_failed_iterations_of_a_parallel_foreach_run_again(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    activity.failing |= {"in 2": 1, "in 5": 1}
    each = {
        "type": "Foreach",
        "foreach": "@range(0, 8)",
        "actions": {"step": work("@concat('in ', string(item()))")},
        "runtimeConfiguration": {"concurrency": {"repetitions": 3}},
    }
    runtime = await deployment.open({"flow": azure_flow({"each": each})})
    failed = await result(await runtime.start("flow", run_id="a"))
    assert failed.status == "Failed"
    await until_status(runtime, "a", "failed")
    await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    ended = await result(await runtime.handler("a"))
    assert [entry["step"]["at"] for entry in ended.actions["each"].outputs] == [f"in {n}" for n in range(8)]
    assert activity.times() == {f"in {n}": 2 if n in (2, 5) else 1 for n in range(8)}


async def test_the_stream_of_a_retried_flow_goes_on(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    activity.failing["weak 1"] = 1
    runtime = await deployment.open({"flow": _weak()})
    await result(await runtime.start("flow", run_id="a"))
    await until_status(runtime, "a", "failed")
    await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    events = await stream(runtime, "a")
    assert [cursor for cursor, _ in events] == list(range(len(events)))
    seen = [event.status for _, event in events if isinstance(event, LoopIterationEvent)]
    seen += [event.result.status for _, event in events if isinstance(event, StopEvent)]
    assert seen == ["Succeeded", "Failed", "Succeeded", "Failed", "Succeeded"]


async def test_a_flow_may_fail_and_be_retried_again(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = install(monkeypatch, witness)
    activity.failing["last"] = 2
    runtime = await deployment.open({"flow": _weak()})
    await runtime.start("flow", run_id="a")
    for number in (1, 2):
        await witness.came("last", number)
        await until_status(runtime, "a", "failed")
        await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    assert witness.calls == ["first", "weak 0", "weak 1", "last", "last", "last"]


def _terminating(status: str) -> Any:
    ends = {"type": "terminate", "inputs": {"runStatus": status, "runError": {"code": "E1", "message": "enough"}}}
    after = {"step": ["Succeeded"]}
    busy = {"loop": {"type": "until", "condition": "false", "limit": {"count": 5}, "actions": {"held": work("held")}}}
    branches = {
        "one": {"type": "scope", "actions": {"step": work("first"), "end": {**ends, "runAfter": after}}},
        "two": {"type": "scope", "actions": busy},
        "three": {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "day"}}},
    }
    return flow({"both": {"type": "parallel", "actions": branches}, "never": work("never")})


@pytest.mark.parametrize(
    ("status", "stored"), [("Succeeded", "completed"), ("Failed", "failed"), ("Cancelled", "cancelled")]
)
async def test_terminate_ends_the_other_branches(
    deployment: Deployment, status: str, stored: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    witness.hold("held")
    witness.hold("first")
    runtime = await deployment.open({"flow": _terminating(status)})
    handler = await runtime.start("flow", run_id="a")
    await witness.came("held")
    witness.let("first")
    ended = await result(handler)
    assert ended.status == status
    assert ended.error == (None if status == "Succeeded" else {"code": "E1", "message": "enough"})
    found = statuses(ended)
    assert [found[name] for name in ("held", "two", "three", "both")] == ["Cancelled"] * 4
    assert (found["end"], found["never"]) == ("Succeeded", "Skipped")
    info = await until_status(runtime, "a", stored)
    assert info.status == stored
    exported = await runtime.store.export("a")
    assert exported is not None
    assert exported.timers == ()
    witness.let("held")
    assert "never" not in witness.calls

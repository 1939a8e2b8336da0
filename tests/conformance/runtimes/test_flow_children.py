"""Flows that run other workflows and talk to actors: nothing is lost or done twice when any of them crashes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from applicable import not_on
from flow_samples import Data, flow, install, statuses, work
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, soon, until, until_info, until_status

import loom
from loom import ActionContext, StartEvent, StopEvent, step
from loom.effects.actions.handlers import HANDLERS
from loom.runtime.durable.runtime import DurableRuntime


def child() -> loom.Flow:
    """Works, and answers with what it was given."""
    answer = {
        "type": "response",
        "inputs": {"body": {"got": "@triggerBody()?['n']", "work": "@outputs('step')?['at']"}},
    }
    return flow({"step": work("child"), "answer": answer}, name="child")


def parent() -> loom.Flow:
    """Runs the child three times."""
    call = {"type": "workflow", "inputs": {"host": {"workflow": {"id": "child"}}, "body": {"n": "@item()"}}}
    note = {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": "@body('call')"}}
    loop = {"type": "foreach", "items": "@range(0, 3)", "actions": {"call": call, "note": note}}
    return flow({"loop": loop, "last": work("parent")}, name="parent")


def both() -> dict[str, loom.Workflow]:
    return {"parent": parent(), "child": child()}


async def _children(runtime: DurableRuntime) -> list[str]:
    return [info.run_id async for info in runtime.list(workflow="child")]


async def test_a_crash_in_each_of_the_children(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    witness.hold("child")
    runtime = await deployment.open(both())
    await runtime.start("parent", run_id="a")
    for number in range(3):
        await witness.came("child", 2 * number + 1)
        await deployment.crash(runtime)
        runtime = await deployment.open(both())
        await witness.came("child", 2 * number + 2)
        witness.let("child")
        witness.hold("child")
    ended = await result(await runtime.handler("a"))
    assert (ended.status, ended.variables["log"]) == ("Succeeded", [{"got": n, "work": "child"} for n in range(3)])
    assert len(await _children(runtime)) == 3, "each of them is one run, however often somebody crashed"
    assert (witness.count("child"), witness.count("parent")) == (6, 1)


@not_on("sqlite", reason="Only one process works on the runs of a file.")
async def test_parent_and_child_in_processes_of_their_own(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    witness.hold("child")
    first, second = await deployment.open({"parent": parent()}), await deployment.open({"child": child()})
    await first.start("parent", run_id="a")
    await witness.came("child")
    await deployment.crash(first)
    witness.let("child")
    await until(lambda: _completed(second, 1))
    await deployment.crash(second)
    first = await deployment.open({"parent": parent()})
    await deployment.open({"child": child()})
    ended = await result(await first.handler("a"))
    assert (ended.status, [entry["got"] for entry in ended.variables["log"]]) == ("Succeeded", [0, 1, 2])
    assert witness.count("child") == 3


async def _completed(runtime: DurableRuntime, least: int) -> bool:
    found = [info.status async for info in runtime.list(workflow="child")]
    return found.count("completed") >= least


async def test_how_a_child_ends(deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    activity = install(monkeypatch, witness)
    activity.failing["child"] = 2
    call = {"type": "workflow", "inputs": {"workflow": "child", "body": {"n": 1}}}
    caught = {"type": "compose", "inputs": "@actions('call').error.message", "runAfter": {"call": ["Failed"]}}
    runtime = await deployment.open(
        {"child": child(), "parent": flow({"call": {**call, "runAfter": {"init": ["Succeeded"]}}, "caught": caught})}
    )
    ended = await result(await runtime.start("parent", run_id="caught"))
    assert statuses(ended) | {"init": ""} == {"init": "", "call": "Failed", "caught": "Succeeded"}
    assert "not yet at child" in str(ended.actions["caught"].outputs)
    # A policy gives it another run.
    runtime.register(
        flow(
            {"call": {**call, "retry": {"type": "fixed", "count": 1, "interval": "PT0.01S", "minimumInterval": "PT0S"}}}
        ),
        name="two",
    )
    ended = await result(await runtime.start("two", run_id="retried"))
    assert ended.actions["call"].outputs["body"] == {"got": 1, "work": "child"}
    assert len(await _children(runtime)) == 3


async def test_a_cancelled_parent_takes_its_child_along(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    witness.hold("child")
    runtime = await deployment.open(both())
    await runtime.start("parent", run_id="a")
    await witness.came("child")
    await runtime.cancel("a")
    await until_status(runtime, "a", "cancelled")
    [run_id] = await _children(runtime)
    await until_status(runtime, run_id, "cancelled")


class Doubler(Watched):
    """A workflow in Python."""

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await self.witness.at("python")
        return StopEvent(result=ev.n * 2)


async def test_a_workflow_in_python_as_a_child(deployment: Deployment, witness: Witness) -> None:
    witness.hold("python")
    call = {"type": "workflow", "inputs": {"workflow": "doubler", "body": {"n": 21}}}
    workflows = {"parent": flow({"call": call}), "doubler": Doubler(witness)}
    runtime = await deployment.open(workflows)
    await runtime.start("parent", run_id="a")
    await witness.came("python")
    await deployment.crash(runtime)
    witness.let("python")
    runtime = await deployment.open({"parent": flow({"call": call}), "doubler": Doubler(witness)})
    assert (await result(await runtime.handler("a"))).actions["call"].outputs == 42


# -- actors ---------------------------------------------------------------------------------------------------------


class Counting:
    """The type of the actors: they add up what they are told, and tell a witness."""

    def __init__(self, witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.witness = witness
        self.inside = 0
        self.most = 0
        monkeypatch.setitem(HANDLERS.actors, "counter", self.receive)

    async def receive(self, message: Any, state: Data, context: ActionContext) -> Data:
        del context
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.witness.at(f"told {message}")
            await asyncio.sleep(0)
            before = list(state.get("told", []))
            state["told"] = [*before, message]
            return {"before": before}
        finally:
            self.inside -= 1


def talking(actor_id: str | None) -> loom.Flow:
    """Tells an actor three numbers, one after the other."""
    inputs = {"actorType": "counter", "input": "@item()"} | ({"actorId": actor_id} if actor_id is not None else {})
    note = {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": "@length(outputs('tell')?['before'])"}}
    actions = {"tell": {"type": "actor", "inputs": inputs}, "note": note}
    return flow({"loop": {"type": "foreach", "items": "@range(0, 3)", "actions": actions}})


@pytest.mark.parametrize("actor_id", [None, "x"], ids=["private", "by id"])
async def test_an_actor_remembers_across_crashes(
    deployment: Deployment, actor_id: str | None, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    Counting(witness, monkeypatch)
    for number in range(3):
        witness.hold(f"told {number}")
    runtime = await deployment.open({"flow": talking(actor_id)})
    await runtime.start("flow", run_id="a")
    for number in range(3):
        await witness.came(f"told {number}")
        await deployment.crash(runtime)
        runtime = await deployment.open({"flow": talking(actor_id)})
        await witness.came(f"told {number}", 2)
        witness.let(f"told {number}")
    ended = await result(await runtime.handler("a"))
    assert ended.variables["log"] == [0, 1, 2], "each message counts once, however often it was worked on"


@pytest.mark.parametrize("actor_id", [None, "x"], ids=["private", "by id"])
async def test_an_actor_takes_one_message_at_a_time(
    deployment: Deployment, actor_id: str | None, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(witness, monkeypatch)
    inputs = {"actorType": "counter", "input": "@item()"} | ({"actorId": actor_id} if actor_id is not None else {})
    each = {"type": "foreach", "items": "@range(0, 8)", "actions": {"tell": {"type": "actor", "inputs": inputs}}}
    each["runtimeConfiguration"] = {"concurrency": {"repetitions": 8}}
    runtime = await deployment.open({"flow": flow({"each": each})}, idle_timeout=0)
    handlers = [await runtime.start("flow", run_id=str(number)) for number in range(3)]
    ended = await soon(asyncio.gather(*handlers))
    lengths = [sorted(len(entry["tell"]["before"]) for entry in e.actions["each"].outputs) for e in ended]
    if actor_id is None:
        assert lengths == [list(range(8))] * 3, "each run has its own"
        assert counting.most <= 3
    else:
        assert sorted(number for run in lengths for number in run) == list(range(24)), "all talk to the same one"
        assert counting.most == 1
    await until_info(runtime, "0", lambda info: info.status == "completed")


async def test_an_actors_failure_is_the_callers(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    async def moody(message: Any, state: Data) -> str:
        calls.append(message)
        state["calls"] = state.get("calls", 0) + 1
        if len(calls) < 3:
            raise ConnectionError("not in the mood")
        return f"call {state['calls']}"

    monkeypatch.setitem(HANDLERS.actors, "moody", moody)
    inputs = {"actorType": "moody", "actorId": "m", "input": "hello"}
    tell = {
        "type": "actor",
        "inputs": inputs,
        "retry": {"type": "fixed", "count": 1, "interval": "PT0.01S", "minimumInterval": "PT0S"},
    }
    runtime = await deployment.open({"flow": flow({"tell": tell})})
    failed = await result(await runtime.start("flow", run_id="a"))
    assert (failed.status, failed.actions["tell"].code) == ("Failed", "ConnectionError")
    await until_status(runtime, "a", "failed")
    await runtime.retry("a")
    await until_status(runtime, "a", "completed")
    ended = await result(await runtime.handler("a"))
    # What a failed call did to the state is forgotten.
    assert (ended.actions["tell"].outputs, len(calls)) == ("call 1", 3)

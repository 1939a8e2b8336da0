"""Forks that are otherwise than their source: another input, another store or variables, an event that comes first."""

from __future__ import annotations

from typing import Any

import pytest
from flow_samples import flow, install, work
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, tick_names, until_idle

from loom import Context, FlowEvent, HumanResponseEvent, RunNotFound, StartEvent, StopEvent, step
from loom.runtime.durable.fork_changes import CannotFork


class Topic(StartEvent):
    topic: str


class Word(HumanResponseEvent):
    text: str = ""


class Asks(Watched):
    """Keeps its topic, waits for a word, and ends with both."""

    @step
    async def ask(self, ctx: Context, ev: Topic) -> StopEvent:
        await ctx.store.set("order", {"topic": ev.topic, "amount": 1})
        word = await ctx.wait_for_event(Word, timeout=None)
        order = await ctx.store.get("order")
        return StopEvent(result=[ev.topic, word.text, order["topic"], order["amount"]])


class Waits(Watched):
    """Keeps its topic in one step, and waits in the next."""

    @step
    async def begin(self, ctx: Context, ev: Topic) -> Word:
        await ctx.store.set("order", {"topic": ev.topic, "amount": 1})
        return Word(text="inside")

    @step
    async def ask(self, ctx: Context, ev: Word) -> StopEvent:
        word = await ctx.wait_for_event(Word, waiter_id="again", timeout=None)
        order = await ctx.store.get("order")
        return StopEvent(result=[word.text, order["topic"], order["amount"]])


async def last_tick(runtime: Any, run_id: str) -> int:
    return (await runtime.get(run_id)).ticks - 1


async def test_a_fork_begins_with_another_input(deployment: Deployment) -> None:
    runtime = await deployment.open({"asks": Asks()})
    await runtime.start("asks", {"topic": "tea"}, run_id="a")
    await until_idle(runtime, "a")
    forked = await runtime.fork("a", tick=0, run_id="b", input={"topic": "coffee"})
    await until_idle(runtime, "b")
    await runtime.send_event("b", Word(text="yes"))
    assert await result(forked) == ["coffee", "yes", "coffee", 1]
    assert (await runtime.get("b")).forked_from == "a"
    await runtime.send_event("a", Word(text="no"))
    assert await result(await runtime.handler("a")) == ["tea", "no", "tea", 1]


async def test_a_fork_has_another_store_and_gets_an_event_first(deployment: Deployment) -> None:
    runtime = await deployment.open({"waits": Waits()})
    await runtime.start("waits", {"topic": "tea"}, run_id="a")
    await until_idle(runtime, "a")
    tick = await last_tick(runtime, "a")
    forked = await runtime.fork(
        "a", tick=tick, run_id="b", store={"order.amount": 5, "note": "new"}, event=Word(text="first")
    )
    assert await result(forked) == ["first", "tea", 5]
    assert (await tick_names(runtime, "b"))[tick + 1 : tick + 4] == ["TickEditStore", "TickEditStore", "TickAddEvent"]
    assert (await runtime.read_store("a")).get("note", None) is None
    await runtime.send_event("a", Word(text="own"))
    assert await result(await runtime.handler("a")) == ["own", "tea", 1]


async def test_a_fork_with_changes_survives_a_crash(deployment: Deployment) -> None:
    first = await deployment.open({"waits": Waits()})
    await first.start("waits", {"topic": "tea"}, run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    client = await deployment.open()
    if deployment.kind != "temporal":
        await client.store_fork("a", tick=await last_tick(client, "a"), run_id="b", store={"order.amount": 7})
    second = await deployment.open({"waits": Waits()})
    if deployment.kind == "temporal":  # nobody answers for a run without a worker
        await second.store_fork("a", tick=await last_tick(second, "a"), run_id="b", store={"order.amount": 7})
    await second.send_event("b", Word(text="later"))
    assert await result(await second.handler("b")) == ["later", "tea", 7]


async def test_what_does_not_fit_is_refused_and_nothing_is_stored(deployment: Deployment) -> None:
    runtime = await deployment.open({"asks": Asks()})
    await runtime.start("asks", {"topic": "tea"}, run_id="a")
    await until_idle(runtime, "a")
    for field, wrong in (
        ("input", {"tick": 1, "input": {"topic": "late"}}),
        ("input", {"tick": 0, "input": {}}),
        ("input", {"tick": 0, "input": 5}),
        ("event", {"tick": 0, "event": StopEvent()}),
        ("store", {"tick": await last_tick(runtime, "a"), "store": {"order.topic.x.y": 1}}),
    ):
        with pytest.raises(CannotFork) as refused:
            await runtime.fork("a", run_id="b", **wrong)
        assert refused.value.field == field
    with pytest.raises(RunNotFound):
        await runtime.get("b")


def counted() -> dict[str, Any]:
    return {
        "asked": {"type": "waitForEvent", "inputs": {"event": "Go"}},
        "last": work("@concat(string(variables('n')), ' ', string(triggerBody()?['topic']))"),
    }


async def test_a_flow_is_forked_with_another_body_and_other_variables(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, witness)
    runtime = await deployment.open({"flow": flow(counted())})
    await runtime.start("flow", {"topic": "tea"}, run_id="a")
    await until_idle(runtime, "a")
    tick = await last_tick(runtime, "a")
    forked = await runtime.fork("a", tick=tick, run_id="b", store={"N": 41}, event=FlowEvent(name="Go", data={}))
    assert (await result(forked)).status == "Succeeded"
    assert witness.calls == ["41 tea"]
    again = await runtime.fork("a", tick=0, run_id="c", input={"topic": "coffee"})
    await until_idle(runtime, "c")
    await runtime.send_event("c", FlowEvent(name="Go", data={}))
    assert (await result(again)).status == "Succeeded"
    assert witness.calls == ["41 tea", "0 coffee"]
    for wrong in ({"nothing": 1}, {"n": "text"}, {"n.x": 1}):
        with pytest.raises(CannotFork):
            await runtime.fork("a", tick=tick, run_id="d", store=wrong)

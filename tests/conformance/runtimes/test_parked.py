"""Runs that the code at hand cannot go on with: parked with a reason, and taken up when the code is back."""

from __future__ import annotations

import gc

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until_idle, until_info, until_status

from loom import Context, Event, HumanResponseEvent, RunFinished, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime


class Word(HumanResponseEvent):
    text: str = ""


class Job(Event):
    n: int = 0


class Both(Watched):
    @step
    async def begin(self, ev: StartEvent) -> Job:
        return Job(n=1)

    @step
    async def work(self, ctx: Context, ev: Job) -> StopEvent:
        await self.witness.at("work")
        word = await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result=[word.text, ev.n])


class Without(Watched):
    """The same workflow by code that has lost a step."""

    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="begun")


async def parked(runtime: DurableRuntime) -> list[str]:
    return [info.run_id async for info in runtime.list(parked=True)]


@pytest.mark.parametrize("idle", [False, True], ids=["at work", "waiting"])
async def test_a_run_without_its_step_is_parked(deployment: Deployment, witness: Witness, idle: bool) -> None:
    if not idle:
        witness.hold("work")
    first = await deployment.open({"both": Both(witness)})
    await first.start("both", run_id="a")
    await witness.came("work")
    if idle:
        await until_idle(first, "a")
    await deployment.crash(first)
    second = await deployment.open({"both": Without(witness)})
    if idle:
        # Nothing has to be done for it until something comes.
        await second.send_event("a", Word(text="x"), event_id="1")
    info = await until_info(second, "a", lambda info: info.parked)
    assert info.parked is not None
    assert "has no step 'work'" in info.parked
    assert info.status == "running"
    assert await parked(second) == ["a"]
    # Other runs of that code go on.
    assert await result(await second.start("both", run_id="b")) == "begun"
    # What is sent meanwhile is kept.
    await second.send_event("a", Word(text="x"), event_id="1")
    await deployment.close(second)
    if not idle:
        witness.let("work")
    third = await deployment.open({"both": Both(witness)})
    assert await result(await third.handler("a")) == ["x", 1]
    assert await parked(third) == []
    assert (await third.get("a")).parked is None


async def test_a_parked_run_stays_parked_without_growing(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    runtime = await deployment.open({"both": Both(witness)})
    await runtime.start("both", run_id="a")
    await witness.came("work")
    await deployment.crash(runtime)
    sizes = []
    for _ in range(4):
        runtime = await deployment.open({"both": Without(witness)})
        sizes.append((await until_info(runtime, "a", lambda info: info.parked)).ticks)
        # This process has looked at it: what it was told behind that has been done.
        assert await result(await runtime.start("both")) == "begun"
        await deployment.close(runtime)
    if deployment.kind == "temporal":
        sizes = sizes[1:]  # there the body finds out first, and the other code comes in behind it
    assert len(set(sizes)) == 1


async def test_code_that_comes_back_in_the_same_process(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    first = await deployment.open({"both": Both(witness)})
    await first.start("both", run_id="a")
    await witness.came("work")
    await deployment.crash(first)
    second = await deployment.open({"both": Without(witness)})
    await until_info(second, "a", lambda info: info.parked)
    witness.let("work")
    second.register(Both(witness), name="both")
    await second.send_event("a", Word(text="y"))
    assert await result(await second.handler("a")) == ["y", 1]


async def test_a_parked_run_can_be_cancelled(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    first = await deployment.open({"both": Both(witness)})
    await first.start("both", run_id="a")
    await witness.came("work")
    await deployment.crash(first)
    second = await deployment.open({"both": Without(witness)})
    await until_info(second, "a", lambda info: info.parked)
    await second.cancel("a")
    info = await until_status(second, "a", "cancelled")
    assert info.parked is None
    assert await parked(second) == []
    with pytest.raises(RunFinished):
        await second.send_event("a", Word())


class Taker(Watched):
    """Takes any event that is a job or a kind of it."""

    @step
    async def begin(self, ev: StartEvent) -> Job | None:
        return None

    @step(accept_event_subclasses=True)
    async def take(self, ctx: Context, ev: Job) -> StopEvent:
        await self.witness.at("take")
        return StopEvent(result=[type(ev).__name__, ev.n])


def _new_class() -> type[Job]:
    """The class of an event, as a module that is not there yet, or no more, would define it."""
    return type("Vanishing", (Job,), {"__module__": "a.module.that.comes.and.goes", "__annotations__": {}})


async def test_a_run_with_an_event_of_an_unknown_class_is_parked(deployment: Deployment, witness: Witness) -> None:
    client = await deployment.open()
    await client.start("taker", run_id="a")
    await client.send_event("a", _new_class()(n=7))
    gc.collect()  # the class is known for as long as it lives
    first = await deployment.open({"taker": Taker(witness)})
    info = await until_info(first, "a", lambda info: info.parked)
    assert info.parked is not None
    assert "a.module.that.comes.and.goes.Vanishing" in info.parked
    assert witness.calls == []
    await deployment.crash(first)
    back = _new_class()
    second = await deployment.open({"taker": Taker(witness)})
    assert await result(await second.handler("a")) == ["Vanishing", 7]
    assert back.__name__ == "Vanishing"

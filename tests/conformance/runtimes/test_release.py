"""Runs that leave memory when nothing can happen to them, and come back when something does."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, soon, stored, until, until_idle, until_info, until_released

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, step


class Word(HumanResponseEvent):
    text: str = ""


class Question(InputRequiredEvent):
    pass


class Note(Event):
    n: int


class Talker(Watched):
    """Waits for so many words, with effects before and between."""

    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("begin")
        ctx.write_event_to_stream(Note(n=0))
        words = []
        for number in range(ev.get("words", 1)):
            words.append((await ctx.wait_for_event(Word, timeout=None)).text)
            ctx.write_event_to_stream(Note(n=number + 1))
            async with ctx.store.edit_state() as state:
                state["heard"] = state.get("heard", 0) + 1
        return StopEvent(result=words)


class Interview(Watched):
    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question()

    @step
    async def hear(self, ctx: Context, ev: Word) -> StopEvent:
        return StopEvent(result=ev.text)


class Worker(Watched):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        now = self.witness.saw("in") - self.witness.count("out")
        self.witness.saw(f"at once {now}")
        await asyncio.sleep(0)
        await self.witness.at("work")
        self.witness.saw("out")
        return StopEvent(result=ev.get("n"))


async def test_an_idle_run_is_released_and_woken_by_each_event(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"talker": Talker(witness)}, idle_timeout=0)
    handler = await runtime.start("talker", {"words": 3}, run_id="a")
    for number, word in enumerate("xyz"):
        await until_idle(runtime, "a")
        await until_released(runtime, "a")
        assert runtime.figures["in_memory"] == 0
        await until(lambda least=number + 1: runtime.figures["released"] >= least)
        await runtime.send_event("a", Word(text=word))
        await until_info(runtime, "a", lambda info, least=number + 2: info.status != "running" or info.events >= least)
    assert await result(handler) == ["x", "y", "z"]
    assert runtime.figures["resumed"] == 3
    assert await stored(runtime, "a") == {"heard": 3}
    notes = [event.n async for event in handler.stream_events() if isinstance(event, Note)]
    assert notes == [0, 1, 2, 3], "the body ran again, what it had written did not appear again"
    assert witness.count("begin") == 4


class TwoWays(Watched):
    """Sleeps and waits; a body that begins anew may take another way."""

    way = "wait"

    @step
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("begin")
        await ctx.sleep(0.0)
        if self.way == "sleep":
            await ctx.sleep(0.0)
        first = await ctx.wait_for_event(Word, timeout=None, waiter_id="first")
        second = await ctx.wait_for_event(Word, timeout=None, waiter_id="second")
        return StopEvent(result=[first.text, second.text])


async def test_a_body_that_runs_again_has_the_answers_that_it_has_had(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"two": TwoWays(witness)}, idle_timeout=0)
    handler = await runtime.start("two", run_id="a")
    for number, word in enumerate("xy"):
        await until_info(runtime, "a", lambda info, least=number: info.idle_since and len(info.active_waiters) == 1)
        await until_released(runtime, "a")
        await until(lambda least=number + 1: runtime.figures["released"] >= least)
        await runtime.send_event("a", Word(text=word))
    assert await result(handler) == ["x", "y"]
    assert witness.count("begin") == 3


async def test_a_body_that_takes_another_way_when_it_runs_again_parks_its_run(
    deployment: Deployment, witness: Witness
) -> None:
    workflow = TwoWays(witness)
    runtime = await deployment.open({"two": workflow}, idle_timeout=0)
    await runtime.start("two", run_id="a")
    await until_idle(runtime, "a")
    await until_released(runtime, "a")
    workflow.way = "sleep"
    await runtime.send_event("a", Word(text="x"))
    await until_info(runtime, "a", lambda info: info.parked)


async def test_a_run_in_memory_goes_on_where_it_waits(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"talker": Talker(witness)}, idle_timeout=None)
    handler = await runtime.start("talker", {"words": 3}, run_id="a")
    for number, word in enumerate("xyz"):
        await until_info(runtime, "a", lambda info, least=number + 1: info.idle_since and info.events > least)
        await runtime.send_event("a", Word(text=word))
    assert await result(handler) == ["x", "y", "z"]
    assert witness.calls == ["begin"]
    assert runtime.figures["released"] == 0


async def test_a_run_that_asked_by_an_event_is_released_too(deployment: Deployment) -> None:
    runtime = await deployment.open({"interview": Interview()}, idle_timeout=0)
    client = await deployment.open()
    handler = await runtime.start("interview", run_id="a")
    await until_idle(runtime, "a")
    await until_released(runtime, "a")
    await client.send_event("a", Word(text="yes"))
    assert await result(handler) == "yes"


async def test_looking_does_not_bring_a_run_back(deployment: Deployment) -> None:
    runtime = await deployment.open({"talker": Talker()}, idle_timeout=0)
    handler = await runtime.start("talker", run_id="a")
    await until_idle(runtime, "a")
    await until_released(runtime, "a")
    state = await runtime.state_at("a")
    assert state.is_idle()
    assert [report.event_type.rpartition(".")[2] for report in state.waiter_reports()] == ["Word"]
    assert await stored(runtime, "a") == {}
    assert len([entry async for entry in runtime.history("a")]) == state.ticks
    assert runtime.figures == {"in_memory": 0, "released": 1, "resumed": 0}
    await runtime.send_event("a", Word(text="x"))
    assert await result(handler) == ["x"]


async def test_events_that_come_at_the_moment_of_release_are_not_lost(deployment: Deployment) -> None:
    """Each word is sent as soon as the wait for it can be seen, which is when the release begins."""
    runtime = await deployment.open({"talker": Talker()}, idle_timeout=0)
    client = await deployment.open()
    runs = 6 if deployment.stride == 1 else 2
    handlers = [await runtime.start("talker", {"words": 4}, run_id=str(number)) for number in range(runs)]

    async def talk(run_id: str) -> None:
        for word in "wxyz":
            await (runtime if word in "wy" else client).send_event(run_id, Word(text=word))
            await asyncio.sleep(0)

    await asyncio.gather(*(talk(str(number)) for number in range(runs)))
    assert await soon(asyncio.gather(*handlers)) == [["w", "x", "y", "z"]] * runs


async def test_no_more_runs_in_memory_than_allowed(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"talker": Talker(witness)}, idle_timeout=None, max_in_memory=3)
    handlers = await asyncio.gather(*(runtime.start("talker", run_id=str(number)) for number in range(10)))
    for number in range(10):
        await until_idle(runtime, str(number))
        assert runtime.figures["in_memory"] <= 3
    for number in reversed(range(10)):
        await runtime.send_event(str(number), Word(text=str(number)))
        assert runtime.figures["in_memory"] <= 3
    assert await soon(asyncio.gather(*handlers)) == [[str(number)] for number in range(10)]


async def test_no_more_runs_at_once_than_their_workflow_allows(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    runtime = await deployment.open({"worker": Worker(witness, num_concurrent_runs=2)})
    client = await deployment.open()
    starts = [(runtime if number % 2 else client).start("worker", {"n": number}) for number in range(8)]
    handlers = await asyncio.gather(*starts)
    await witness.came("work", 2)
    witness.let("work")
    assert await soon(asyncio.gather(*handlers)) == list(range(8))
    assert {call for call in witness.calls if call.startswith("at once")} <= {"at once 1", "at once 2"}


async def test_a_waiting_run_gives_its_place_to_others(deployment: Deployment) -> None:
    runtime = await deployment.open({"talker": Talker(num_concurrent_runs=1)}, idle_timeout=0)
    handlers = [await runtime.start("talker", run_id=str(number)) for number in range(3)]
    for number in range(3):
        await until_idle(runtime, str(number))
    for number in (2, 0, 1):
        await runtime.send_event(str(number), Word(text=str(number)))
    assert await soon(asyncio.gather(*handlers)) == [["0"], ["1"], ["2"]]


async def test_released_runs_wait_for_another_process(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"talker": Talker(witness)}, idle_timeout=0)
    for number in range(5):
        await first.start("talker", run_id=str(number))
        await until_idle(first, str(number))
        await until_released(first, str(number))
    await deployment.crash(first)
    second = await deployment.open({"talker": Talker(witness)}, idle_timeout=0)
    await second.send_event("3", Word(text="x"))
    assert await result(await second.handler("3")) == ["x"]
    assert witness.count("begin") == 6, "the others were not taken up"
    assert second.figures["resumed"] == 1


@pytest.mark.parametrize("option", ["idle_timeout", "max_in_memory", "lease", "poll_interval"])
async def test_options_out_of_range_are_refused(deployment: Deployment, option: str) -> None:
    with pytest.raises(ValueError, match=option):
        await deployment.open(**{option: -1})

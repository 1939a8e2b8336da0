"""Crashes: what was committed is not repeated, what was not is done again, and both look like one execution."""

from __future__ import annotations

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, soon, stored, until, until_info, until_status

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Mark(Event):
    n: int


class Sent(Event):
    n: int


class Word(HumanResponseEvent):
    text: str = ""


class Busy(Watched):
    """Has every kind of effect on its run, and is held up before it ends."""

    @step
    async def before(self, ev: StartEvent) -> Mark:
        self.witness.saw("before")
        return Mark(n=1)

    @step
    async def work(self, ctx: Context, ev: Mark) -> StopEvent | Sent:
        self.witness.saw(f"key {ctx.idempotency_key}")
        async with ctx.store.edit_state() as state:
            state["edits"] = state.get("edits", 0) + 1
        await ctx.store.set("last", "work")
        ctx.write_event_to_stream(Mark(n=10))
        ctx.send_event(Sent(n=1))
        ctx.write_event_to_stream(Mark(n=11))
        billed = await ctx.once("bill", lambda: self.witness.saw("bill"))
        await self.witness.at("held")
        return StopEvent(result=[billed, await ctx.store.get("edits"), self.witness.count("got 1")])

    @step
    async def take(self, ctx: Context, ev: Sent) -> None:
        self.witness.saw(f"got {ev.n}")


async def marks(runtime: DurableRuntime, run_id: str) -> list[int]:
    handler = await runtime.handler(run_id)
    events = [event async for event in handler.stream_events(after=-1)]
    return [event.n for event in events if isinstance(event, Mark)]


@pytest.mark.parametrize("crashes", [False, True], ids=["close", "crash"])
async def test_effects_are_not_repeated(deployment: Deployment, witness: Witness, crashes: bool) -> None:
    witness.hold("held")
    runtime = await deployment.open({"busy": Busy(witness)})
    await runtime.start("busy", run_id="a")
    await witness.came("held")
    await witness.came("got 1")
    # The step behind the sent event has ended too.
    await until(lambda: _has_result_of(runtime, "take"))
    for times in (2, 3):
        await (deployment.crash(runtime) if crashes else deployment.close(runtime))
        runtime = await deployment.open({"busy": Busy(witness)})
        await witness.came("held", times)
    assert await stored(runtime, "a") == {"edits": 1, "last": "work"}
    witness.let("held")
    assert await result(await runtime.handler("a")) == [1, 1, 1]
    assert await soon(marks(runtime, "a")) == [10, 11]
    assert [witness.count(what) for what in ("before", "bill", "got 1", "held")] == [1, 1, 1, 3]
    assert len({call for call in witness.calls if call.startswith("key")}) == 1


async def _has_result_of(runtime: DurableRuntime, name: str) -> bool:
    return any([getattr(tick, "step", "") == name async for _, _, tick in runtime.history("a")])


class Unsaved(Watched):
    """Is held up between its effects, whose commits nobody waits for."""

    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(5):
            ctx.write_event_to_stream(Mark(n=number))
            await ctx.store.set(f"at {number}", number)
            await self.witness.at(f"step {number}")
        return StopEvent()


async def test_a_crash_at_any_place_leaves_one_stream_and_one_store(deployment: Deployment, witness: Witness) -> None:
    for number in range(5):
        witness.hold(f"step {number}")
    runtime = await deployment.open({"unsaved": Unsaved(witness)})
    await runtime.start("unsaved", run_id="a")
    for number in range(5):
        await witness.came(f"step {number}")
        await deployment.crash(runtime)
        witness.let(f"step {number}")
        runtime = await deployment.open({"unsaved": Unsaved(witness)})
    await result(await runtime.handler("a"))
    assert await soon(marks(runtime, "a")) == [0, 1, 2, 3, 4]
    assert await stored(runtime, "a") == {f"at {number}": number for number in range(5)}


class Again(Watched):
    """Fails once: a retry is a new execution, whose effects apply again."""

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Mark(n=1))
        async with ctx.store.edit_state() as state:
            state["edits"] = state.get("edits", 0) + 1
        billed = await ctx.once("bill", lambda: self.witness.saw("bill"))
        self.witness.saw(f"key {ctx.idempotency_key}")
        if await self.witness.at("end") == 1:
            raise ConnectionError
        return StopEvent(result=[billed, await ctx.store.get("edits")])


async def test_a_retry_has_its_effects_again_but_not_what_was_recorded(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"again": Again(witness)})
    assert await result(await runtime.start("again", run_id="a")) == [1, 2]
    assert await soon(marks(runtime, "a")) == [1, 1]
    assert len({call for call in witness.calls if call.startswith("key")}) == 1


class Many(Watched):
    """Several pieces of work of the same step."""

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> list[Mark]:
        return [Mark(n=number) for number in range(3)]

    @step
    async def work(self, ctx: Context, ev: Mark) -> Sent:
        await self.witness.at(f"{ev.n} {ctx.idempotency_key}")
        await self.witness.at("work")
        return Sent(n=ev.n)

    @step
    async def join(self, ev: list[Sent]) -> StopEvent:
        return StopEvent(result=sorted(sent.n for sent in ev))


async def test_each_piece_of_work_has_a_key_of_its_own_for_ever(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    first = await deployment.open({"many": Many(witness)})
    await first.start("many", run_id="a")
    await witness.came("work", 3)
    await deployment.crash(first)
    keys = {call for call in witness.calls if call != "work"}
    assert len(keys) == 3
    witness.let("work")
    second = await deployment.open({"many": Many(witness)})
    assert await result(await second.handler("a")) == [0, 1, 2]
    assert {call for call in witness.calls if call != "work"} == keys


class Recorded(Watched):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.once("one", lambda: 1)
        await self.witness.at("held")
        return StopEvent()


class Rewritten(Watched):
    """The same step by other code, whose first effect is another one."""

    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result="rewritten")


async def test_code_that_does_other_things_parks_the_run(deployment: Deployment, witness: Witness) -> None:
    witness.hold("held")
    first = await deployment.open({"code": Recorded(witness)})
    await first.start("code", run_id="a")
    await witness.came("held")
    await deployment.crash(first)
    second = await deployment.open({"code": Rewritten(witness)})
    info = await until_info(second, "a", lambda info: info.parked)
    assert info.parked is not None
    assert "once:one" in info.parked
    assert "wait" in info.parked
    assert info.status == "running"
    await deployment.close(second)
    witness.let("held")
    third = await deployment.open({"code": Recorded(witness)})
    await until_status(third, "a", "completed")
    assert (await third.get("a")).parked is None


async def test_a_failed_record_is_not_recorded(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"flaky": Flaky(witness)})
    assert await result(await runtime.start("flaky", run_id="a")) == 2
    assert witness.count("call") == 2


class Flaky(Watched):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.once("call", self.call))

    async def call(self) -> int:
        times = self.witness.saw("call")
        if times == 1:
            raise ConnectionError
        return times

"""The past of a run: its ticks, its state after each of them, and runs that go on from one of them differently."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, stored, tick_names, until_idle, until_info, until_status

from loom import Context, Event, HumanResponseEvent, RunExists, RunFinished, RunNotFound, StartEvent, StopEvent, step
from loom.core.invariants import violations
from loom.core.reducer import replay
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.planner import StepsPlanner
from loom.store.errors import StoreError


class Word(HumanResponseEvent):
    text: str = ""


class Item(Event):
    n: int


class Piece(Event):
    n: int


class Story(Watched):
    """A bit of everything."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Item]:
        await ctx.store.set("topic", ev.get("topic", ""))
        return [Item(n=number) for number in range(3)]

    @step(num_workers=2)
    async def work(self, ctx: Context, ev: Item) -> Piece:
        ctx.write_event_to_stream(Item(n=-ev.n))
        return Piece(n=await ctx.once("double", lambda: 2 * ev.n))

    @step
    async def join(self, ctx: Context, pieces: list[Piece]) -> StopEvent:
        self.witness.saw("join")
        first = await ctx.wait_for_event(Word, timeout=3600)
        await ctx.store.set("first", first.text)
        await ctx.sleep(0.01)
        second = await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result=[first.text, second.text, sorted(piece.n for piece in pieces)])


async def told(runtime: DurableRuntime, run_id: str) -> None:
    """A story that has heard its first word and slept, and waits for the second one."""
    await runtime.start("story", {"topic": "x"}, run_id=run_id)
    await until_info(runtime, run_id, lambda info: info.active_waiters)
    await runtime.send_event(run_id, Word(text="once"))
    await until_info(runtime, run_id, lambda info: info.idle_since and info.active_waiters[0]["deadline"] is None)


async def test_history_is_the_list_of_ticks(deployment: Deployment) -> None:
    runtime = await deployment.open({"story": Story()})
    await told(runtime, "a")
    client = await deployment.open()
    entries = [entry async for entry in client.history("a")]
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    assert len(entries) == (await client.get("a")).ticks
    assert type(entries[0].tick).__name__ == "TickStartRun"
    assert all(at == tick.at for _, at, tick in entries)
    assert [at for _, at, _ in entries] == sorted(at for _, at, _ in entries)
    assert [entry async for entry in client.history("a", start=5)] == entries[5:]
    assert [entry async for entry in client.history("a", start=1000)] == []
    with pytest.raises(RunNotFound):
        [entry async for entry in client.history("nobody")]


async def test_replay_equals_live_at_every_tick(deployment: Deployment) -> None:
    runtime = await deployment.open({"story": Story()}, idle_timeout=None)
    await told(runtime, "a")
    active = runtime.active_run("a")
    assert active is not None or deployment.kind == "temporal", "a cluster holds its runs itself"
    ticks = [tick async for _, _, tick in runtime.history("a")]
    states = [await runtime.state_at("a", tick=number) for number in range(len(ticks))]
    for number, state in enumerate(states):
        assert state.ticks == number + 1
        assert violations(state) == []
        replayed = replay(ticks[: number + 1], StepsPlanner())
        assert state == replayed
    assert active is None or states[-1] == active.state
    assert await runtime.state_at("a") == states[-1]
    await deployment.crash(runtime)
    second = await deployment.open_reader({"story": Story()})
    assert await second.state_at("a") == states[-1]
    for number in (-1, len(ticks)):
        with pytest.raises(ValueError, match=f"there is no tick {number}"):
            await second.state_at("a", tick=number)


async def test_the_past_of_an_ended_run_can_be_looked_at(deployment: Deployment) -> None:
    runtime = await deployment.open({"story": Story()})
    await told(runtime, "a")
    await runtime.send_event("a", Word(text="upon"))
    assert await result(await runtime.handler("a")) == ["once", "upon", [0, 2, 4]]
    states = [await runtime.state_at("a", tick=number) for number in range((await runtime.get("a")).ticks)]
    assert [state.is_running for state in states] == [True] * (len(states) - 1) + [False]
    assert states[-1].outcome is not None
    assert states[-1].outcome.status == "completed"


async def test_a_long_run_is_the_same_by_its_snapshot(deployment: Deployment, witness: Witness) -> None:
    """More ticks than a snapshot waits for: a fresh process reads the snapshot and the tail behind it."""
    witness.hold("end")
    first = await deployment.open({"long": Long(witness)})
    await first.start("long", {"times": 700}, run_id="a")
    await witness.came("end")
    await until_info(first, "a", lambda info: info.ticks > 600)
    active = first.active_run("a")
    assert active is not None
    live = active.state
    await deployment.crash(first)
    second = await deployment.open()
    loaded = await second.store.load("a")
    assert loaded is not None
    assert loaded.snapshot is not None
    assert loaded.chunks[-1].first_tick + loaded.chunks[-1].ticks == live.ticks
    assert await second.state_at("a") == live
    ticks = [tick async for _, _, tick in second.history("a")]
    replayed = replay(ticks, StepsPlanner())
    assert replayed == live
    early = replay(ticks[:50], StepsPlanner())
    assert await second.state_at("a", tick=49) == early
    witness.let("end")
    third = await deployment.open({"long": Long(witness)})
    assert await result(await third.handler("a")) == 700
    assert await stored(third, "a") == {"count": 700}


class Long(Watched):
    @step
    async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(ev.times):
            await ctx.store.set("count", number + 1)
            if number % 50 == 0:
                await ctx.once(f"commit {number}", lambda: None)
        await ctx.once("all", lambda: None)
        await self.witness.at("end")
        return StopEvent(result=await ctx.store.get("count"))


async def test_a_pruned_run_goes_on_without_its_past(deployment: Deployment, witness: Witness) -> None:
    witness.hold("end")
    first = await deployment.open({"long": Long(witness)}, prune=True)
    await first.start("long", {"times": 1500}, run_id="a")
    await witness.came("end")
    ticks = (await until_info(first, "a", lambda info: info.ticks > 1500)).ticks
    await deployment.crash(first)
    second = await deployment.open(prune=True)
    entries = [entry async for entry in second.history("a")]
    assert entries[0].seq > 0
    assert [entry.seq for entry in entries] == list(range(entries[0].seq, ticks))
    assert (await second.state_at("a")).ticks == ticks
    with pytest.raises(StoreError, match="were pruned"):
        await second.state_at("a", tick=0)
    with pytest.raises(StoreError, match="were pruned"):
        await second.fork("a", tick=ticks - 1)
    witness.let("end")
    third = await deployment.open({"long": Long(witness)}, prune=True)
    assert await result(await third.handler("a")) == 1500
    assert await stored(third, "a") == {"count": 1500}


async def test_a_fork_goes_on_differently(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"story": Story(witness)})
    await told(runtime, "a")
    await runtime.send_event("a", Word(text="upon"))
    assert await result(await runtime.handler("a")) == ["once", "upon", [0, 2, 4]]
    names, before = await tick_names(runtime, "a"), await runtime.get("a")
    whole = [entry async for entry in runtime.history("a")]
    awaited = names.index("TickAwaitEvent")
    handler = await runtime.fork("a", tick=awaited, run_id="b")
    info = await until_info(runtime, "b", lambda info: info.active_waiters)
    assert (info.forked_from, info.workflow) == ("a", "story")
    await runtime.send_event("b", Word(text="long"))
    await runtime.send_event("b", Word(text="ago"))
    assert await result(handler) == ["long", "ago", [0, 2, 4]]
    assert await runtime.get("a") == before
    assert [entry async for entry in runtime.history("a")] == whole
    assert await stored(runtime, "a") == {"topic": "x", "first": "once"}
    assert await stored(runtime, "b") == {"topic": "x", "first": "long"}


async def test_every_past_tick_can_be_forked(deployment: Deployment) -> None:
    runtime = await deployment.open({"story": Story()})
    await told(runtime, "a")
    await runtime.send_event("a", Word(text="upon"))
    await until_status(runtime, "a", "completed")
    ticks = (await runtime.get("a")).ticks
    numbers = [*range(0, ticks - 2, deployment.stride), ticks - 2]
    for number in numbers:
        await runtime.fork("a", tick=number, run_id=f"f{number}")
        with contextlib.suppress(RunFinished):  # it may have heard both words already, or the first one
            await runtime.send_event(f"f{number}", Word(text="x"))
            await runtime.send_event(f"f{number}", Word(text="y"))
    endings = await asyncio.gather(*[_ending(runtime, f"f{number}") for number in numbers])
    assert all(ending[2] == [0, 2, 4] for ending in endings)
    assert endings[0][:2] == ["x", "y"]
    assert endings[-1][0] == "once"


async def _ending(runtime: DurableRuntime, run_id: str) -> list[object]:
    return await result(await runtime.handler(run_id))  # type: ignore[no-any-return]


async def test_a_fork_by_a_client_is_run_by_whoever_has_the_code(deployment: Deployment) -> None:
    first = await deployment.open({"story": Story()})
    await told(first, "a")
    await deployment.close(first)
    client = await deployment.open()
    await client.fork("a", tick=(await client.get("a")).ticks - 1, run_id="b")
    await client.send_event("b", Word(text="end"))
    second = await deployment.open({"story": Story()})
    assert await result(await second.handler("b")) == ["once", "end", [0, 2, 4]]
    assert (await until_idle(second, "a")).status == "running"


async def test_forks_that_cannot_be(deployment: Deployment) -> None:
    runtime = await deployment.open({"story": Story()})
    await told(runtime, "a")
    ticks = (await runtime.get("a")).ticks
    with pytest.raises(RunNotFound):
        await runtime.fork("nobody", tick=1)
    with pytest.raises(ValueError, match=f"there is no tick {ticks}"):
        await runtime.fork("a", tick=ticks)
    with pytest.raises(RunExists, match="so it cannot be the name of a fork"):
        await runtime.fork("a", tick=1, run_id="a")
    await runtime.send_event("a", Word(text="end"))
    await until_status(runtime, "a", "completed")
    last = (await runtime.get("a")).ticks - 1
    with pytest.raises(ValueError, match=f"had ended by tick {last}"):
        await runtime.fork("a", tick=last)

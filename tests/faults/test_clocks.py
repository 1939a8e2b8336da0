"""Clocks that are set and machines that sleep: timers fire once and never early, and not long after their time."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from fault_waiting import until

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickTimeout, TickTimerFired
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

HOUR, DAY = 3600.0, 86400.0


class Word(HumanResponseEvent):
    pass


class Naps(Workflow):
    @step
    async def nap(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for _ in range(ev.get("times", 1)):
            await ctx.sleep(ev.seconds)
        return StopEvent(result="rested")


class Fails(Workflow):
    """Its first attempt fails; the second waits for its turn."""

    @step(retry_policy=retry_policy(wait=wait_fixed(HOUR), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ctx.retry_info().retry_number == 0:
            raise RuntimeError("not yet")
        return StopEvent(result="done")


class Waits(Workflow):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await ctx.wait_for_event(Word, timeout=HOUR)
        except TimeoutError:
            return StopEvent(result="nobody")
        return StopEvent(result="somebody")


class Clock:
    """The date, which somebody may set. Where the event loop's time is virtual, so is this."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        wall = getattr(asyncio.get_running_loop(), "wall_time", time.time)
        return float(wall()) + self.ahead


def connect(clock: Clock, idle_timeout: float | None, store: Any = None, poll_interval: float = 1.0) -> Any:
    store = store or MemoryStore(MemoryDatabase())
    runtime = loom.connect(
        store, clock=clock, idle_timeout=idle_timeout, poll_interval=poll_interval, lease=3 * poll_interval
    )
    for workflow in (Naps(timeout=None), Fails(timeout=None), Waits(timeout=None)):
        runtime.register(workflow, name=type(workflow).__name__)
    return runtime


async def timers_of(runtime: Any, run_id: str) -> list[int]:
    """The timers that have fired, in order. None was early, and the run's time has never gone back."""
    fired, latest = [], float("-inf")
    async for seq, at, tick in runtime.history(run_id):
        assert at >= latest, f"{run_id}: its time goes back at tick {seq}"
        latest = at
        if isinstance(tick, TickTimerFired | TickTimeout):
            before = await runtime.state_at(run_id, seq - 1)
            assert at >= before.timers[tick.timer].due, f"{run_id}: timer {tick.timer} was early"
            fired.append(tick.timer)
    assert len(fired) == len(set(fired)), f"{run_id}: a timer fired twice"
    return fired


@pytest.mark.parametrize("idle_timeout", [0.0, None])
def test_a_clock_that_is_set_back_makes_no_timer_early(idle_timeout: float | None) -> None:
    async def main() -> None:
        clock = Clock()
        async with connect(clock, idle_timeout) as runtime:
            began = clock()
            handler = await runtime.start("Naps", {"seconds": 10.0}, run_id="r")
            await asyncio.sleep(5)
            clock.ahead = -HOUR
            await asyncio.sleep(60)
            assert await timers_of(runtime, "r") == []
            clock.ahead = 0.0
            assert await handler == "rested"
            assert clock() >= began + 10
            assert len(await timers_of(runtime, "r")) == 1

    run_virtual(main())


@pytest.mark.parametrize("idle_timeout", [0.0, None])
def test_a_clock_that_stays_back_only_makes_timers_late(idle_timeout: float | None) -> None:
    async def main() -> None:
        clock = Clock()
        async with connect(clock, idle_timeout) as runtime:
            began = clock()
            handlers = [await runtime.start("Naps", {"seconds": 10.0, "times": 3}), await runtime.start("Waits")]
            await asyncio.sleep(5)
            clock.ahead = -HOUR
            assert [await handler for handler in handlers] == ["rested", "nobody"]
            assert began + 10 <= clock() <= began + 3 * HOUR
            assert [len(await timers_of(runtime, handler.run_id)) for handler in handlers] == [3, 1]

    run_virtual(main())


@pytest.mark.parametrize("idle_timeout", [0.0, None])
@pytest.mark.parametrize("jump", [DAY, 2 * HOUR], ids=["set forward by a day", "a laptop that slept two hours"])
def test_after_a_jump_forward_what_is_due_happens_at_once(idle_timeout: float | None, jump: float) -> None:
    async def main() -> None:
        clock = Clock()
        loop = asyncio.get_running_loop()
        async with connect(clock, idle_timeout) as runtime:
            handlers = [
                await runtime.start("Naps", {"seconds": HOUR}),
                await runtime.start("Fails"),
                await runtime.start("Waits"),
            ]
            later = await runtime.start("Naps", {"seconds": jump + HOUR})
            await asyncio.sleep(100)
            clock.ahead = jump
            jumped = loop.time()
            assert [await handler for handler in handlers] == ["rested", "done", "nobody"]
            assert loop.time() - jumped < 5
            for handler in handlers:
                assert len(await timers_of(runtime, handler.run_id)) == 1
            assert await timers_of(runtime, later.run_id) == []
            assert await later == "rested"
            assert len(await timers_of(runtime, later.run_id)) == 1

    run_virtual(main())


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_a_clock_that_is_set_while_nobody_works(jump: float) -> None:
    async def main() -> None:
        clock, database = Clock(), MemoryDatabase()
        async with connect(clock, None, MemoryStore(database)) as runtime:
            began = clock()
            await runtime.start("Naps", {"seconds": 10.0}, run_id="r")
            await asyncio.sleep(5)
        clock.ahead = jump
        async with connect(clock, None, MemoryStore(database)) as runtime:
            assert await (await runtime.handler("r")) == "rested"
            assert clock() >= began + 10
            assert len(await timers_of(runtime, "r")) == 1

    run_virtual(main())


@pytest.mark.parametrize("seed", range(6))
def test_any_jumps(seed: int) -> None:
    async def main() -> None:
        chance, clock = random.Random(seed), Clock()
        async with connect(clock, chance.choice([0.0, 5.0, None]), poll_interval=30.0) as runtime:
            handlers = []
            for _ in range(8):
                inputs = {"seconds": chance.choice([0.5, 10.0, 600.0, HOUR]), "times": chance.randint(1, 3)}
                handlers.append((await runtime.start("Naps", inputs), inputs["times"]))
            for _ in range(20):
                await asyncio.sleep(chance.uniform(0.0, 400.0))
                clock.ahead = chance.choice([0.0, -HOUR, HOUR, chance.uniform(-10.0, 10.0)])
            for handler, times in handlers:
                assert await handler == "rested"
                assert len(await timers_of(runtime, handler.run_id)) == times

    run_virtual(main())


async def _has_timers(runtime: Any, run_id: str) -> bool:
    return bool((await runtime.state_at(run_id)).timers)


async def test_a_laptop_that_slept_on_sqlite(tmp_path: Path) -> None:
    clock = Clock()
    runtime = loom.connect(f"sqlite:///{tmp_path / 'runs.db'}", clock=clock, idle_timeout=None, poll_interval=0.05)
    runtime.register(Naps(timeout=None), name="Naps")
    async with asyncio.timeout(60), runtime:
        handler = await runtime.start("Naps", {"seconds": HOUR}, run_id="r")
        await until(lambda: _has_timers(runtime, "r"))
        clock.ahead = HOUR + 1
        assert await handler == "rested"
        assert len(await timers_of(runtime, "r")) == 1

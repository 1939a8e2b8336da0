"""Events against releases: whatever comes at the moment at which a run leaves memory is neither lost nor doubled."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.settings import Settings
from loom.store.operations import ReleaseRun
from loom.testing import Ended, FaultPlan, Faults
from loom.testing.simulation_world import ShuffledLoop, World, listening

PARTS, RUNS = (8, 200) if "LOOM_FULL" in os.environ else (2, 100)
LETTERS = 10
"""In the long form 16,000 letters in all, into more than 10,000 releases. Few per run: each return repeats a body's
earlier waits."""


class Letter(HumanResponseEvent):
    number: int


class Vote(HumanResponseEvent):
    number: int


class Reader(Workflow):
    """A body that waits for one letter after the other: the run is idle between any two."""

    @step
    async def read(self, ctx: Context, ev: StartEvent) -> StopEvent:
        numbers = [(await ctx.wait_for_event(Letter, timeout=None)).number for _ in range(LETTERS)]
        return StopEvent(result=numbers)


class Box(Workflow):
    """A step that takes what comes from outside, and nothing else happens: the run is idle between any two."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.store.set("numbers", [])

    @step(num_workers=1)
    async def count(self, ctx: Context, ev: Vote) -> StopEvent | None:
        numbers = [*await ctx.store.get("numbers"), ev.number]
        await ctx.store.set("numbers", numbers)
        return StopEvent(result=numbers) if len(numbers) == LETTERS else None


class Mail:
    """The program of the simulated world: nobody but this test sends anything."""

    def workflows(self) -> dict[str, Workflow]:
        return {"reader": Reader(timeout=None), "box": Box(timeout=None)}

    def start(self, number: int) -> tuple[str, dict[str, Any]]:
        return ("reader", "box")[number % 2], {}

    def answer(self, run_id: str, event: Event) -> None:
        return None

    def noise(self, chance: Random) -> None:
        return None

    def heal(self, run_id: str) -> bool:
        return False

    def check(self, ended: Ended) -> Iterator[str]:
        yield from ()


async def send_all(runtime: DurableRuntime, world: World, number: int) -> list[int]:
    """Start a run and send it letters, each at some moment around the one at which it is released."""
    chance, idle = world.chance, world.settings.idle_timeout or 0.0
    name, inputs = world.program.start(number)
    kind = Letter if name == "reader" else Vote
    handler = await runtime.start(name, inputs, run_id=f"run-{number}")
    for letter in range(LETTERS):
        await asyncio.sleep(idle + chance.choice([0.0, 0.01, 0.02, 0.04]) * chance.random())
        await runtime.send_event(
            handler.run_id, kind(number=letter), event_id=chance.choice([None, f"letter {letter}"])
        )
    result: list[int] = await handler
    return result


def raced(seed: int) -> Counter[str]:
    """One simulation of all runs. Counts what releases came to."""
    chance = Random(f"race {seed}")
    disk = FaultPlan(slow=0.5, slow_s=0.002, slow_read=0.5, slow_read_s=0.002)
    settings = Settings(idle_timeout=chance.choice([0.0, 0.001, 0.003]), poll_interval=0.5, lease=5.0)
    outcomes: Counter[str] = Counter()

    async def main() -> None:
        world = World(Mail(), chance, Faults(store=disk), settings, workers=1 + seed % 2)
        applied = world.checker.wrote

        def wrote(worker: Any, group: Any, results: Any, *tables: Any) -> None:
            for operation, result in zip(group, results, strict=True):
                if isinstance(operation, ReleaseRun):
                    outcomes["released" if result else "mail came first"] += 1
            applied(worker, group, results, *tables)

        world.checker.wrote = wrote  # type: ignore[method-assign]
        with listening(world.checker):
            workers = [asyncio.create_task(worker.live()) for worker in world.workers]
            await asyncio.sleep(0.1)
            runtimes = [worker.runtime for worker in world.workers if worker.runtime is not None]
            async with asyncio.timeout(600):
                results = await asyncio.gather(*(send_all(chance.choice(runtimes), world, n) for n in range(RUNS)))
            for number, result in enumerate(results):
                assert result == list(range(LETTERS)), f"run-{number} got {result}"
            world.checker.finish(world.database.tables)
            assert world.checker.problems == []
            for worker in workers:
                worker.cancel()
            for runtime in runtimes:
                await runtime.close()

    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(Random(f"schedule {seed}"))) as runner:
        runner.run(main())
    return outcomes


@pytest.mark.parametrize("part", range(PARTS))
def test_no_event_is_lost_or_doubled_when_its_run_is_released(
    part: int, record_property: Callable[[str, Any], None]
) -> None:
    outcomes = raced(part)
    assert outcomes["mail came first"] > RUNS * LETTERS // 20
    assert outcomes.total() > RUNS * LETTERS // 2
    record_property("events sent into releases", RUNS * LETTERS)
    record_property("releases that were raced for", outcomes.total())
    record_property("releases that an event came before", outcomes["mail came first"])

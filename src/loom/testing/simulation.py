"""Simulates workflows on the real durable runtime: from one seed, with everything that can go wrong.

    from loom.testing import simulate

    report = simulate(MyWorkflow, seed=7, inputs={"topic": "x"}, answer=lambda run_id, event: ...)

Workers, clocks, disk and news are virtual; crashes, lost leases, clock jumps, slow and failing writes, and late, lost and
repeated news come from the seed. Checkers look at every write. A promise that does not hold is a `SimulationFailure`, and
its text has the seed that repeats it. May import loom.runtime, loom.steps and loom.store.

    python -m loom.testing.simulation --sim-seed 7             # one seed
    python -m loom.testing.simulation --ticks 10000000         # as many seeds as it takes
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from loom.runtime.durable.settings import Settings
from loom.store.errors import RunFinished, StoreError
from loom.testing.faults import Crash
from loom.testing.simulation_actors import Shepherd, follow_children, make_trouble
from loom.testing.simulation_programs import ScriptedProgram
from loom.testing.simulation_world import Faults, ShuffledLoop, World, listening, snapshots_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.events import Event
    from loom.steps.workflow import Workflow
    from loom.testing.simulation_programs import Ended, Program

PATIENCE_S = 3600.0
"""So much virtual time may pass when nothing goes wrong any more, until everything has ended."""


class SimulationFailure(AssertionError):
    """A promise did not hold. The text says which, and how to see it again."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation came to."""

    seed: int
    ticks: int
    """How many ticks the journals have."""
    writes: int
    runs: int
    seconds: float
    """How much virtual time passed."""
    counts: dict[str, int]
    """What was written, and what went wrong, how often."""
    statuses: dict[str, int]
    digest: str
    """A fingerprint of all writes: the same seed gives the same one."""


def simulate(program: Program, *, seed: int, runs: int = 6, faults: Faults | None = None) -> Report:
    chance = Random(f"world {seed}")
    loop = ShuffledLoop(Random(f"schedule {seed}"))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_simulate(program, chance, seed, runs, faults))


async def _simulate(program: Program, chance: Random, seed: int, runs: int, faults: Faults | None) -> Report:
    faults = faults if faults is not None else Faults.drawn(chance)
    settings = Settings(
        idle_timeout=chance.choice([0.0, 0.0, 0.5, 5.0, None]),
        max_in_memory=chance.choice([None, None, 2, 4]),
        lease=chance.choice([3.0, 10.0]),
        poll_interval=chance.choice([0.5, 2.0]),
        name="simulated",
    )
    world = World(program, chance, faults, settings, chance.randint(1, 3))
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: _unhandled(world, context))
    with listening(world.checker), snapshots_after(chance.choice([1, 10, 50, 50])):
        background = [asyncio.create_task(worker.live()) for worker in world.workers]
        background += [asyncio.create_task(make_trouble(world)), asyncio.create_task(follow_children(world))]
        world.followed.update(f"run-{number}" for number in range(runs))
        tasks = [asyncio.create_task(Shepherd(world, f"run-{number}").start(number)) for number in range(runs)]
        _, left = await asyncio.wait(tasks, timeout=faults.lasts_s)
        world.calm()
        _, left = await asyncio.wait(tasks, timeout=PATIENCE_S) if left else (None, left)
        await _settled(world)
        for task in [*tasks, *background]:
            if task.done() and (task.cancelled() or task.exception() is not None):
                world.checker.problem(f"{task!r} ended")
            elif task in left:
                world.checker.problem(f"{task!r} did not end, although nothing has gone wrong for {PATIENCE_S} s")
            task.cancel()
        await asyncio.gather(*tasks, *background, return_exceptions=True)
        world.checker.finish(world.database.tables)
        for worker in world.workers:
            if worker.runtime is not None:
                await worker.runtime.close()
    if world.checker.problems:
        raise SimulationFailure(_failure(world, seed))
    statuses = Counter(run.row.head.status for run in world.database.tables.runs.values())
    return Report(
        seed=seed,
        ticks=world.checker.ticks,
        writes=world.checker.writes,
        runs=len(world.checker.runs),
        seconds=world.loop.time() - world.began_at,
        counts=dict(world.checker.counts),
        statuses=dict(statuses),
        digest=world.checker.digest,
    )


async def _settled(world: World) -> None:
    """Wait for the runs that nobody follows: children."""
    for _ in range(600):
        if all(run.row.head.status != "running" for run in world.database.tables.runs.values()):
            return
        await asyncio.sleep(1.0)


def _unhandled(world: World, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, Crash):
        world.checker.problem(f"{context.get('message')}: {error!r}")


def _failure(world: World, seed: int) -> str:
    checker = world.checker
    problems = "\n  ".join(checker.problems[:10])
    trace = "\n  ".join(checker.trace)
    return (
        f"{len(checker.problems)} promises were broken in the simulation with seed {seed}:\n  {problems}\n"
        f"The last writes:\n  {trace}\n"
        f"To see it again: python -m loom.testing.simulation --sim-seed {seed}"
    )

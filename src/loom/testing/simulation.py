"""Simulation of workflows on the real durable runtime, with everything that can go wrong, from one seed.

    from loom.testing import simulate

    simulate(MyWorkflow, seed=7, inputs={"topic": "x"}, answer=lambda event: ...)

The workers, their clocks, the disk and the notifications are virtual, so days pass at once. The seed gives crashes,
lost leases, clock jumps, slow and failing writes, and notifications that are late, lost or repeated. Checkers see every
write. A promise that does not hold raises `SimulationFailure`, whose text has the seed that shows it again.

    python -m loom.testing.simulation_sweep --sim-seed 7             # one seed of a made-up program
    python -m loom.testing.simulation_sweep --ticks 10000000         # as many seeds as it takes
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from loom.runtime.durable.settings import Settings
from loom.testing.faults import Crash
from loom.testing.simulation_programs import OwnProgram, ScriptedProgram
from loom.testing.simulation_world import (
    Faults,
    Shepherd,
    ShuffledLoop,
    StandstillError,
    World,
    follow_children,
    listening,
    make_trouble,
    resume_poison,
    snapshots_after,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.events import Event, StartEvent
    from loom.steps.workflow import Workflow
    from loom.testing.simulation_programs import Ended, Program

_CHILDREN_S, _LOOK_S = 600, 10.0


class SimulationFailure(AssertionError):
    """Raised if a promise did not hold. The text names it, and says how to see it again."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a simulation."""

    seed: int
    ticks: int
    """Number of ticks in all journals."""
    writes: int
    runs: int
    """Number of runs, children among them."""
    seconds: float
    """Virtual time that passed."""
    statuses: dict[str, int]
    """Number of runs by their final status."""
    counts: dict[str, int]
    """Number of writes and of faults by kind."""
    digest: str
    """A fingerprint of all writes: the same seed gives the same one, on any machine."""


def simulate(  # noqa: PLR0913 - all but the first by name
    workflow: Callable[[], Workflow] | Program | None = None,
    *,
    seed: int,
    runs: int = 6,
    inputs: dict[str, Any] | StartEvent | Callable[[int], dict[str, Any] | StartEvent] | None = None,
    answer: Callable[[Event], Event | None] | None = None,
    check: Callable[[Ended], None] | None = None,
    faults: Faults | None = None,
    settings: Settings | None = None,
    workers: int | None = None,
    patience_s: float = 3600.0,
) -> Report:
    """Run a workflow a few times through all that can go wrong, and check every promise.

    `workflow` makes the workflow, for each worker anew: its class will do. Without one, a program is made up from the
    seed. `inputs` are the same for all runs, or a function of the run's number. `answer` gets each event of the
    streams, and may return an event to send to that run. `check` gets each run at its end; what it asserts must hold.
    `faults`, `settings` and the number of `workers` are drawn from the seed, unless they are given. Once nothing goes
    wrong any more, all must end within `patience_s` seconds of virtual time.
    """
    program: Any = workflow
    if workflow is None:
        program = ScriptedProgram(seed)
    elif callable(workflow):
        program = OwnProgram(workflow, inputs, answer, check)
    again = (
        f"python -m loom.testing.simulation_sweep --sim-seed {seed}" if workflow is None else f"simulate(..., {seed=})"
    )
    chance = Random(f"world {seed}")  # noqa: S311 - chance that can be repeated
    loop = ShuffledLoop(Random(f"schedule {seed}"))  # noqa: S311 - as above
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        world = runner.run(_made(program, chance, faults, settings, workers))
        try:
            runner.run(_live_through(world, runs, patience_s))
        except StandstillError as error:
            world.checker.problem(str(error))
    if world.checker.problems:
        raise SimulationFailure(_failure(world, seed, again))
    return _report(world, seed)


async def _made(
    program: Program, chance: Random, faults: Faults | None, settings: Settings | None, workers: int | None
) -> World:
    drawn, drawn_settings, drawn_workers = Faults.drawn(chance), _settings(chance), chance.randint(1, 3)
    world = World(program, chance, faults or drawn, settings or drawn_settings, workers or drawn_workers)
    world.loop.set_exception_handler(lambda _loop, context: _unhandled(world, context))
    return world


async def _live_through(world: World, runs: int, patience_s: float) -> None:
    """Let everything happen, then check what is left."""
    with listening(world.checker), snapshots_after(world.chance.choice([1, 10, 50, 50])):
        background = [asyncio.create_task(worker.live()) for worker in world.workers]
        beside = (make_trouble, follow_children, resume_poison)
        background += [asyncio.create_task(acts(world)) for acts in beside]
        shepherds = [Shepherd(world, f"run-{number}") for number in range(runs)]
        tasks = [asyncio.create_task(shepherd.start(number)) for number, shepherd in enumerate(shepherds)]
        await _wait(world, tasks, world.faults.lasts_s)
        world.calm()
        await _wait(world, tasks, patience_s)
        await _children_ended(world)
        if not world.checker.problems:
            _look_around(world, tasks, background)
        for task in [*tasks, *background]:
            task.cancel()
        await asyncio.gather(*tasks, *background, return_exceptions=True)
        for worker in world.workers:
            if worker.runtime is not None:
                await worker.runtime.close()


def _settings(chance: Random) -> Settings:
    return Settings(
        idle_timeout=chance.choice([0.0, 0.0, 0.5, 5.0, None]),
        max_in_memory=chance.choice([None, None, 2, 4]),
        lease=chance.choice([3.0, 10.0]),
        poll_interval=chance.choice([0.5, 2.0]),
        name="simulated",
    )


async def _wait(world: World, tasks: list[asyncio.Task[None]], limit_s: float) -> None:
    """Wait until all tasks are done, time is up, or a problem has been found."""
    until = world.loop.time() + limit_s
    left = set(tasks)
    while left and not world.checker.problems and world.loop.time() < until:
        _, left = await asyncio.wait(left, timeout=min(_LOOK_S, until - world.loop.time()))


def _look_around(world: World, tasks: list[asyncio.Task[None]], background: list[asyncio.Task[None]]) -> None:
    """Check that all has ended that should have ended, and nothing else."""
    for task in [*tasks, *background]:
        if task.done() and (task.cancelled() or task.exception() is not None):
            world.checker.problem(f"somebody had to give up: {task!r}")
        elif task in tasks and not task.done():
            world.checker.problem(f"nothing goes wrong any more, but this does not end: {task!r}")
    world.checker.finish(world.database.tables)


async def _children_ended(world: World) -> None:
    """Wait for child runs, which may end after their parents."""
    for _ in range(_CHILDREN_S):
        if world.checker.problems or all(
            run.row.head.status != "running" for run in world.database.tables.runs.values()
        ):
            return
        await asyncio.sleep(1.0)


def _unhandled(world: World, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, Crash):
        world.checker.problem(f"{context.get('message')}: {error!r}")


def _failure(world: World, seed: int, again: str) -> str:
    checker = world.checker
    problems, trace = "\n  ".join(checker.problems[:10]), "\n  ".join(checker.trace)
    return (
        f"The simulation with seed {seed} has found {len(checker.problems)} problems:\n  {problems}\n"
        f"The last writes (time, worker, what):\n  {trace}\nTo see it again: {again}"
    )


def _report(world: World, seed: int) -> Report:
    checker = world.checker
    return Report(
        seed=seed,
        ticks=checker.ticks,
        writes=checker.writes,
        runs=len(checker.runs),
        seconds=world.loop.time() - world.began_at,
        statuses=dict(Counter(run.row.head.status for run in world.database.tables.runs.values())),
        counts=dict(checker.counts),
        digest=checker.digest,
    )

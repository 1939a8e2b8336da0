"""Who acts in a simulation: those who start runs and answer them, and those who make trouble.

May import loom.runtime and loom.store.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from loom.runtime.durable.handle import RunHandle
from loom.store.deaths import POISON
from loom.store.errors import RunActive, RunBusy, RunFinished, RunNotFound
from loom.testing.simulation_programs import Ended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from loom.runtime.durable.runtime import DurableRuntime
    from loom.steps.events import Event
    from loom.testing.simulation_world import World

_STEP_S, _STEPS, _PAUSE_S = 0.5, 1000, 10.0
_NO_ID = 0.2
"""How many events are sent without an id."""
_RETRIES = 3


class Shepherd:
    """Reads the stream of one run from any worker, answers its questions, and looks at its end."""

    def __init__(self, world: World, run_id: str) -> None:
        self._world = world
        self.run_id = run_id
        world.followed[run_id] = None
        self._events: list[Event] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._retries = 0

    async def start(self, number: int) -> None:
        """Start the run of a number, some time."""
        world = self._world
        await asyncio.sleep(world.chance.choice([0.0, 1.0, 20.0]) * world.chance.random())
        name, inputs = world.program.start(number)
        await world.call(lambda runtime: runtime.start(name, inputs, run_id=self.run_id))
        if self.run_id not in world.database.tables.runs:
            world.checker.problem(f"run {self.run_id} was accepted, but is not stored")
        await self.follow()

    async def follow(self) -> None:
        """From the beginning of its stream to its end."""
        world = self._world
        while True:
            if not await world.call(self._read):
                continue
            info = await world.call(lambda runtime: runtime.get(self.run_id))
            if info.status == "failed" and self._retries < _RETRIES and world.program.heal(self.run_id):
                await self._retry()
            elif info.status != "running":
                break
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._check(info.status)

    async def _read(self, runtime: DurableRuntime) -> bool:
        """Read on, until the stream ends (True) or the reader has had enough."""
        world = self._world
        handle = (await runtime.handler(self.run_id))._run
        assert isinstance(handle, RunHandle)
        patience = world.chance.randint(1, 200)
        async with aclosing(handle.read_stream(len(self._events) - 1, True)) as stream:  # type: ignore[type-var]
            async for cursor, event in stream:
                if cursor != len(self._events):
                    world.checker.problem(f"run {self.run_id}: event {cursor} was read after {len(self._events) - 1}")
                self._events.append(event)
                answer = world.program.answer(self.run_id, event)
                if answer is not None:
                    self._spawn(self._send(answer, f"{self.run_id} {cursor}"))
                patience -= 1
                if not patience:
                    return False
        return True

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _send(self, event: Event, event_id: str | None) -> None:
        """Send an event until somebody has accepted it; now and then without an id, or once more."""
        chance, world = self._world.chance, self._world
        await asyncio.sleep(chance.choice([0.0, 0.0, 0.1, 5.0]) * chance.random())
        if chance.random() < _NO_ID:
            event_id = None
        times = 1 if event_id is None else chance.choice([1, 1, 2])
        while times:
            try:
                await world.call(lambda runtime: runtime.send_event(self.run_id, event, event_id=event_id))
                times -= 1
            except RunFinished:
                await asyncio.sleep(_STEP_S)  # if it had failed and is retried, it waits for the event still

    async def _retry(self) -> None:
        self._retries += 1
        try:
            await self._world.call(lambda runtime: runtime.retry(self.run_id))
        except (RunActive, RunFinished):
            return  # an earlier call, whose answer was lost, has had it

    async def _check(self, status: str) -> None:
        world = self._world
        result = None
        if status == "completed":
            result = await world.call(lambda runtime: _result(runtime, self.run_id))
        mirror = world.checker.runs[self.run_id]
        if len(self._events) != len(mirror.published):
            world.checker.problem(
                f"run {self.run_id}: {len(self._events)} events were read, {len(mirror.published)} were published"
            )
        ended = Ended(self.run_id, status, result, self._events, self._retries > 0)
        for text in world.program.check(ended):
            world.checker.problem(f"run {self.run_id}: {text}")


async def _result(runtime: DurableRuntime, run_id: str) -> Any:
    return await (await runtime.handler(run_id))


async def follow_children(world: World) -> None:
    """Whatever run there is, somebody follows it."""
    async with asyncio.TaskGroup() as group:
        while True:
            for run_id in [run_id for run_id in world.checker.runs if run_id not in world.followed]:
                group.create_task(Shepherd(world, run_id).follow())
            await asyncio.sleep(_STEP_S)


async def resume_poison(world: World) -> None:
    """Resume what was parked as poison, as an operator does: here it is the simulation that kills, not the runs."""
    while True:
        await asyncio.sleep(_PAUSE_S)
        parked = {run_id: stored.row.head.parked for run_id, stored in world.database.tables.runs.items()}
        for run_id in [run_id for run_id, reason in parked.items() if reason and reason.startswith(POISON)]:
            with suppress(RunFinished):  # it was cancelled since
                await world.call(partial(_resume, run_id=run_id))


async def _resume(runtime: DurableRuntime, run_id: str) -> None:
    await runtime.resume(run_id)


async def make_trouble(world: World) -> None:
    """Let things go wrong from time to time, until the world is calm."""
    chance, faults = world.chance, world.faults
    trouble: list[tuple[float, Callable[[World], Awaitable[None]]]] = [
        (faults.kill, _kill),
        (faults.leave, _leave),
        (faults.jump, _jump),
        (faults.noise, _noise),
        (faults.cancel, _cancel),
        (faults.pause, _pause),
    ]
    step_s = max(_STEP_S, faults.lasts_s / _STEPS)
    while not world.is_calm:
        await asyncio.sleep(step_s * 2 * chance.random())
        for often, happen in trouble:
            if chance.random() < often * step_s:
                world.count(happen.__name__.strip("_"))
                await happen(world)


async def _kill(world: World) -> None:
    worker = world.chance.choice(world.workers)
    if worker.runtime is not None and worker.store is not None:
        worker.store.crash()


async def _leave(world: World) -> None:
    world.chance.choice(world.workers).leave()


async def _jump(world: World) -> None:
    world.chance.choice(world.workers).jump()


async def _noise(world: World) -> None:
    event = world.program.noise(world.chance)
    if event is not None:
        await _tell(world, lambda runtime, run_id: runtime.send_event(run_id, event))


async def _cancel(world: World) -> None:
    await _tell(world, lambda runtime, run_id: runtime.cancel(run_id))


async def _pause(world: World) -> None:
    run_id = world.chance.choice(list(world.followed))
    await _tell(world, lambda runtime, run_id: runtime.pause(run_id), run_id)
    await asyncio.sleep(_PAUSE_S * world.chance.random())
    await _tell(world, lambda runtime, run_id: runtime.resume(run_id), run_id)


async def _tell(
    world: World, tell: Callable[[DurableRuntime, str], Awaitable[object]], run_id: str | None = None
) -> None:
    """Tell some run something, unless it is over or was never started."""
    told = run_id or world.chance.choice(list(world.followed))
    with suppress(RunFinished, RunNotFound, RunBusy):
        await world.call(lambda runtime: tell(runtime, told))

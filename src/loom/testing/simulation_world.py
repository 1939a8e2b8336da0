"""The world of a simulation: an event loop with virtual time, a database, workers, and the actors around them.

Workers come and go. Shepherds start runs and answer them; the other actors make trouble.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from typing_extensions import override

from loom.runtime.durable import adapter
from loom.runtime.durable.handle import RunHandle
from loom.runtime.durable.runtime import DurableRuntime
from loom.store.deaths import POISON
from loom.store.errors import (
    NothingToSkip,
    RunActive,
    RunBusy,
    RunFinished,
    RunNotFound,
    StoreError,
    StoreUnavailable,
)
from loom.store.memory import MemoryDatabase
from loom.testing.clock import VirtualLoop
from loom.testing.faults import Crash, FaultPlan, FaultyStore
from loom.testing.simulation_checks import Checker, WorkerStore
from loom.testing.simulation_programs import Ended

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from random import Random

    from loom.runtime.durable.settings import Settings
    from loom.steps.events import Event
    from loom.testing.simulation_programs import Program


T = TypeVar("T")

_MAX_SKEW_S = 90.0
_JUMPS = (-60.0, -5.0, -0.5, -0.01, 0.01, 0.5, 5.0, 60.0)

_TURNS = 100_000
"""Turns of the event loop at one moment after which something is going round in circles."""


class StandstillError(RuntimeError):
    """Raised if something is always ready to run, so that time cannot pass."""


class ShuffledLoop(VirtualLoop):
    """A virtual loop that runs ready callbacks in an order by its seed, so that every seed is another schedule."""

    def __init__(self, chance: Random) -> None:
        # Notifications are lost here, workers stand still past their leases: every look may find something.
        super().__init__(skips_looks=False)
        self._chance = chance
        self._moment, self._turns = 0.0, 0

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._moment != self.time():
            self._moment, self._turns = self.time(), 0
        self._turns += 1
        if self._turns > _TURNS:
            self._turns = 0
            busy = [task for task in asyncio.all_tasks(self) if getattr(task, "_fut_waiter", None) is None]
            raise StandstillError(f"Time does not pass, because of {busy or list(ready)}")
        if len(ready) > 1:
            handles = list(ready)
            self._chance.shuffle(handles)
            ready.clear()
            ready.extend(handles)
        super()._run_once()  # type: ignore[misc]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Things that go wrong, with their rates per second. `store` is for each worker's store."""

    store: FaultPlan = FaultPlan()
    kill: float = 0.0
    """A worker dies, wherever it is."""
    leave: float = 0.0
    """A worker is closed in order."""
    jump: float = 0.0
    """A worker's clock is set, forward or back."""
    cancel: float = 0.0
    """An operator cancels a run."""
    pause: float = 0.0
    """An operator pauses a run, and resumes it after a while."""
    skip: float = 0.0
    """An operator ends the delays of a run."""
    noise: float = 0.0
    """An event comes that no run has asked for."""
    lasts_s: float = 60.0
    """Seconds after which nothing goes wrong any more, and everything must come to an end."""

    @staticmethod
    def drawn(chance: Random) -> Faults:
        """Draw some of everything, in proportions that depend on the seed."""

        def now_and_then(limit: float) -> float:
            return limit * chance.random() if chance.random() < 0.5 else 0.0  # noqa: PLR2004 - a coin

        store = FaultPlan(
            fail_before=now_and_then(0.05),
            fail_after=now_and_then(0.05),
            slow=now_and_then(0.5),
            slow_s=chance.choice([0.01, 0.2, 3.0]),
            fail_read=now_and_then(0.03),
            slow_read=now_and_then(0.5),
            lose_lease=now_and_then(0.03),
            stall=now_and_then(0.005),
            crash=now_and_then(0.03),
            drop_news=now_and_then(0.5),
            repeat_news=now_and_then(0.5),
            delay_news=now_and_then(0.5),
            shuffle_news=now_and_then(0.5),
        )
        return Faults(
            store=store,
            kill=now_and_then(0.05),
            leave=now_and_then(0.02),
            jump=now_and_then(0.1),
            cancel=now_and_then(0.01),
            pause=now_and_then(0.03),
            noise=now_and_then(0.2),
            lasts_s=chance.choice([10.0, 30.0, 90.0]),
            skip=now_and_then(0.2),
        )


class SimulatedWorker:
    """A place where processes run, one after the other: when one has died, another is started."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.skew_s = 0.0
        self.runtime: DurableRuntime | None = None
        """None while there is no process."""
        self.store: FaultyStore | None = None
        self.lives = 0
        self._over: asyncio.Future[bool] | None = None

    def clock(self) -> float:
        """Return what the process takes for the time."""
        return self.world.loop.time() + self.skew_s

    def jump(self) -> None:
        """Set its clock forward or back."""
        skew = self.skew_s + self.world.chance.choice(_JUMPS)
        self.skew_s = max(-_MAX_SKEW_S, min(_MAX_SKEW_S, skew))

    def leave(self) -> None:
        """Ask the process to end."""
        if self._over is not None and not self._over.done():
            self._over.set_result(False)

    def _died(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(True)

    async def live(self) -> None:
        """Run one process after the other."""
        world = self.world
        while True:
            try:
                runtime, inner = await self._begin()
            except StoreUnavailable:
                world.count("not opened")
                await asyncio.sleep(1.0)  # its supervisor starts it again
                continue
            assert self._over is not None
            has_died = await self._over
            self.runtime = None
            with suppress(Crash):
                await runtime.close()
            world.count("died" if has_died else "left")
            if has_died and inner in world.database.stores:
                world.database.stores.remove(inner)
            await asyncio.sleep(world.chance.choice([0.0, 0.3, 4.0, 30.0]) * world.chance.random())

    async def _begin(self) -> tuple[DurableRuntime, WorkerStore]:
        world = self.world
        self.lives += 1
        inner = WorkerStore(f"{self.number}.{self.lives}", world.database, world.checker, world.loop.time)
        plan = msgspec.structs.replace(world.plan, seed=world.chance.getrandbits(32))
        self.store = store = FaultyStore(inner, plan)
        store.injected = world.injected
        store.on_crash = self._died
        self._over = world.loop.create_future()
        runtime = DurableRuntime(store, world.settings, clock=self.clock)
        inner.runtime = runtime
        for name, workflow in world.program.workflows().items():
            runtime.register(workflow, name)
        await runtime.__aenter__()
        self.runtime = runtime
        return runtime, inner


class World:
    """Everything that there is in a simulation."""

    def __init__(self, program: Program, chance: Random, faults: Faults, settings: Settings, workers: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.program = program
        self.chance = chance
        self.faults = faults
        self.settings = settings
        self.database = MemoryDatabase()
        self.checker = Checker(self._elapsed)
        self.plan = faults.store
        self.injected: Counter[str] = self.checker.counts
        self.began_at = loop.time()
        self.is_calm = False
        self.followed: dict[str, None] = {}
        """Runs that have a shepherd."""
        self.workers = [SimulatedWorker(self, number) for number in range(workers)]

    def _elapsed(self) -> float:
        return self.loop.time() - self.began_at

    def count(self, what: str) -> None:
        """Count a fault or an act."""
        self.injected[what] += 1

    async def call(self, make: Callable[[DurableRuntime], Awaitable[T]]) -> T:
        """Ask living workers, again and again, until there is an answer that does not come from a fault."""
        while True:
            living = [worker for worker in self.workers if worker.runtime is not None]
            if living:
                runtime = self.chance.choice(living).runtime
                assert runtime is not None
                with suppress(Crash):
                    answer = await self._asked(runtime, make)
                    if answer is not None:
                        return answer[0]
            await asyncio.sleep(self.chance.random())

    async def _asked(self, runtime: DurableRuntime, make: Callable[[DurableRuntime], Awaitable[T]]) -> tuple[T] | None:
        task = asyncio.ensure_future(make(runtime))
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled():
            return None  # its worker is gone
        error = task.exception()
        if error is None:
            return (task.result(),)
        if isinstance(error, StoreUnavailable) or type(error) is StoreError or not isinstance(error, Exception):
            return None  # the store has failed, or the runtime is closed
        raise error

    def calm(self) -> None:
        """Stop all faults."""
        self.is_calm = True
        self.plan = FaultPlan()
        for worker in self.workers:
            worker.skew_s = max(worker.skew_s, 0.0)  # a slow clock would only make everything late
            if worker.store is not None:
                worker.store.calm()


@contextmanager
def snapshots_after(ticks: int) -> Iterator[None]:
    """Take snapshots more often than usual, so that short runs have one too."""
    before, adapter.SNAPSHOT_TICKS = adapter.SNAPSHOT_TICKS, ticks
    try:
        yield
    finally:
        adapter.SNAPSHOT_TICKS = before


class _Ear(logging.Handler):
    """A log handler for the engine's own errors."""

    def __init__(self, checker: Checker) -> None:
        super().__init__(logging.ERROR)
        self._checker = checker

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], Crash):
            self._checker.problem(f"{record.getMessage()} {record.exc_info[1]!r}")


@contextmanager
def listening(checker: Checker) -> Iterator[None]:
    """Report errors that the engine logs as problems, and hide what it logs about faults."""
    log, ear = logging.getLogger("loom"), _Ear(checker)
    propagates, level = log.propagate, log.level
    log.propagate = False
    log.setLevel(logging.ERROR)
    log.addHandler(ear)
    try:
        yield
    finally:
        log.removeHandler(ear)
        log.propagate = propagates
        log.setLevel(level)  # assigning `level` would leave the loggers below with what they have cached


_STEP_S, _STEPS, _PAUSE_S = 0.5, 1000, 10.0
_NO_ID = 0.2
"""Share of events that are sent without an id."""
_RETRIES = 3


class Shepherd:
    """Starts one run, reads its stream from any worker, answers its questions, and checks its end."""

    def __init__(self, world: World, run_id: str) -> None:
        self._world = world
        self.run_id = run_id
        world.followed[run_id] = None
        self._events: list[Event] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._retries = 0

    async def start(self, number: int) -> None:
        """Start the run of a number after a while, and follow it."""
        world = self._world
        await asyncio.sleep(world.chance.choice([0.0, 1.0, 20.0]) * world.chance.random())
        name, inputs = world.program.start(number)
        await world.call(lambda runtime: runtime.start(name, inputs, run_id=self.run_id))
        if self.run_id not in world.database.tables.runs:
            world.checker.problem(f"run {self.run_id} was accepted, but is not stored")
        await self.follow()

    async def follow(self) -> None:
        """Follow the run from the beginning of its stream to its end."""
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
        """Read on until the stream ends (True) or the reader stops early (False)."""
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
        """Send an event until a worker accepts it; now and then without an id, or once more."""
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
    """Give a shepherd to every run that has none, such as child runs."""
    async with asyncio.TaskGroup() as group:
        while True:
            for run_id in [run_id for run_id in world.checker.runs if run_id not in world.followed]:
                group.create_task(Shepherd(world, run_id).follow())
            await asyncio.sleep(_STEP_S)


async def resume_poison(world: World) -> None:
    """Resume runs that were parked as poison, as an operator does: here the simulation kills, not the runs."""
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
    if faults.skip:  # without it, seeds that are known give what they gave
        trouble.append((faults.skip, _skip))
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


async def _skip(world: World) -> None:
    with suppress(NothingToSkip):
        await _tell(world, lambda runtime, run_id: runtime.skip(run_id))


async def _tell(
    world: World, tell: Callable[[DurableRuntime, str], Awaitable[object]], run_id: str | None = None
) -> None:
    """Tell some run something, unless it is over or was never started."""
    told = run_id or world.chance.choice(list(world.followed))
    with suppress(RunFinished, RunNotFound, RunBusy):
        await world.call(lambda runtime: tell(runtime, told))

"""The world of a simulation: one event loop with virtual time, one database, and workers that come and go.

May import loom.runtime and loom.store.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from typing_extensions import override

from loom.runtime.durable import adapter
from loom.runtime.durable.runtime import DurableRuntime
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.memory import MemoryDatabase
from loom.testing.clock import VirtualLoop
from loom.testing.faults import Crash, FaultPlan, FaultyStore
from loom.testing.simulation_checks import Checker, WorkerStore

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable, Iterator
    from random import Random

    from loom.runtime.durable.settings import Settings
    from loom.testing.simulation_programs import Program

T = TypeVar("T")

_MAX_SKEW_S = 90.0
_JUMPS = (-60.0, -5.0, -0.5, -0.01, 0.01, 0.5, 5.0, 60.0)

_TURNS = 100_000
"""After so many turns of the event loop at one and the same moment, something is going round in circles."""


class StandstillError(RuntimeError):
    """Something is always ready to run, so that time cannot pass."""


class ShuffledLoop(VirtualLoop):
    """A virtual loop that runs what is ready in an order by its seed, so that every seed is another schedule."""

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
    """What goes wrong, and how often. `store` is for each worker's store; moments are counted per second."""

    store: FaultPlan = FaultPlan()
    kill: float = 0.0
    """A worker dies, wherever it is."""
    leave: float = 0.0
    """A worker is closed in order."""
    jump: float = 0.0
    """A worker's clock is set, forward or back."""
    cancel: float = 0.0
    """Somebody cancels a run."""
    pause: float = 0.0
    """Somebody pauses a run, and resumes it after a while."""
    noise: float = 0.0
    """An event comes that nobody has asked for."""
    lasts_s: float = 60.0
    """After so long nothing goes wrong any more, and everything must come to an end."""

    @staticmethod
    def drawn(chance: Random) -> Faults:
        """Some of everything, more of this in one seed and of that in another."""

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
        )


class Worker:
    """One place where a process runs; when it has died, another one is started there."""

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
        """What the process takes for the time."""
        return self.world.loop.time() + self.skew_s

    def jump(self) -> None:
        """Its clock is set."""
        skew = self.skew_s + self.world.chance.choice(_JUMPS)
        self.skew_s = max(-_MAX_SKEW_S, min(_MAX_SKEW_S, skew))

    def leave(self) -> None:
        """The process is asked to end."""
        if self._over is not None and not self._over.done():
            self._over.set_result(False)

    def _died(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(True)

    async def live(self) -> None:
        """One process after the other."""
        world = self.world
        while True:
            try:
                runtime, inner = await self._begin()
            except StoreUnavailable:
                world.count("not opened")
                await asyncio.sleep(1.0)  # whoever looks after processes begins it again
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
        """The runs that somebody looks after."""
        self.workers = [Worker(self, number) for number in range(workers)]

    def _elapsed(self) -> float:
        return self.loop.time() - self.began_at

    def count(self, what: str) -> None:
        """Something happened."""
        self.injected[what] += 1

    async def call(self, make: Callable[[DurableRuntime], Awaitable[T]]) -> T:
        """Ask some living worker, again and again until there is an answer that does not come from a fault."""
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
        """From now on nothing goes wrong."""
        self.is_calm = True
        self.plan = FaultPlan()
        for worker in self.workers:
            worker.skew_s = max(worker.skew_s, 0.0)  # a clock that is behind would only make everything late
            if worker.store is not None:
                worker.store.calm()


@contextmanager
def snapshots_after(ticks: int) -> Iterator[None]:
    """Let runs be stored as a whole more often than usual, so that short ones are too."""
    before, adapter.SNAPSHOT_TICKS = adapter.SNAPSHOT_TICKS, ticks
    try:
        yield
    finally:
        adapter.SNAPSHOT_TICKS = before


class _Ear(logging.Handler):
    """Hears what the engine says about errors that are its own."""

    def __init__(self, checker: Checker) -> None:
        super().__init__(logging.ERROR)
        self._checker = checker

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], Crash):
            self._checker.problem(f"{record.getMessage()} {record.exc_info[1]!r}")


@contextmanager
def listening(checker: Checker) -> Iterator[None]:
    """Errors of the engine are problems; what it says about faults is not shown."""
    log, ear = logging.getLogger("loom"), _Ear(checker)
    before = log.propagate, log.level
    log.propagate = False
    log.setLevel(logging.ERROR)
    log.addHandler(ear)
    try:
        yield
    finally:
        log.removeHandler(ear)
        log.propagate, log.level = before

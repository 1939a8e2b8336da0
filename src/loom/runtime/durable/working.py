"""What every runtime does that works on runs: it knows the code, records its flows and schedules, and begins to work.

Who moves the runs is a matter of the runtime: residents in this process, or a cluster. May import loom.core,
loom.effects, loom.steps, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from loom.runtime.durable.beginning import StartedRuns
from loom.runtime.durable.callbacks import StoredCallbacks
from loom.runtime.durable.definitions import Definitions
from loom.runtime.durable.internal import internal_codes
from loom.runtime.durable.memory_limit import MemoryLimit
from loom.runtime.durable.problem_run import hook_codes
from loom.runtime.durable.problems import Problems
from loom.runtime.durable.registered import RegisteredFlow, registered
from loom.runtime.durable.schedules_triggers import is_given_up, keep_triggers
from loom.runtime.durable.services import services_for
from loom.runtime.durable.settings import Settings
from loom.runtime.watchdog import rouse, watchdog
from loom.steps.workflow import Workflow
from loom.store.chain import Links
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.loop_time import wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType

    from loom.runtime.durable.schedules_run import ScheduleStart
    from loom.runtime.flow import Flow
    from loom.runtime.watchdog import LoopWatch
    from loom.store.ports import Store

_log = logging.getLogger("loom.durable")


class WorkingRuntime(StartedRuns, ABC):
    """Runs in a store, and work on them.

    Without a registered workflow it is a client: it starts, tells and asks, and leaves the work to others.
    """

    def __init__(
        self, store: Store, settings: Settings | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(store, clock or self._wall_time)
        self._has_clock = clock is not None
        self._settings = settings or Settings()
        self.links = Links(self._settings.keyring)
        self.memory = MemoryLimit(self._settings.max_memory)
        self.watch: LoopWatch | None = None
        """What the watchdog knows of the event loop; None while this process does not work, or without a watchdog."""
        self._watches_always = False
        self._working: asyncio.Task[None] | None = None
        """The latest beginning, which waits for those before it."""
        self._beginnings: set[asyncio.Task[None]] = set()
        self._in_the_way: str | None = None
        """Why joining again has failed so far: whoever calls is told, and does not wait until it succeeds."""
        self._triggered: set[str] = set()
        self._open = False
        self.opened_by = "async with loom.connect(...)"
        """How a program opens it, for errors."""
        self.definitions = Definitions(
            self, follow=self._settings.definitions, poll_interval=self._settings.poll_interval
        )
        self.callbacks = StoredCallbacks(store, self._settings.callback_url)
        """The addresses at which services call back."""
        self.services = services_for(self, self._settings)
        """What the actions of flows find in this process."""
        told = hook_codes(self._settings)
        self.codes |= told
        self.problems = Problems(store, [name.rpartition(".")[2] for name in told], self._settings.problem_interval)
        """The hooks that are told of runs with problems."""
        store.on_news = self._on_news

    @staticmethod
    def _wall_time() -> float:
        return wall_clock(asyncio._get_running_loop())()

    # -- what a runtime has to say ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_alone(self) -> bool:
        """Whether nobody else can be at work on the store while this process is."""

    @property
    @abstractmethod
    def figures(self) -> dict[str, int]:
        """How many runs are in memory here, and how many were released and brought back so far."""

    @abstractmethod
    async def _join(self) -> None:
        """Become one of those who work on runs, unless this process is one already."""

    @abstractmethod
    async def _leave(self) -> None:
        """Work on runs no more. Also called where `_join` never was, or has failed."""

    @abstractmethod
    async def _take_up(self, names: Sequence[str]) -> None:
        """Work for names whose code has come or changed."""

    @abstractmethod
    def _on_news(self, run_ids: Sequence[str]) -> None:
        """Something has come for runs, or they have ended; without ids, for any."""

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._open_store()
        self.home = asyncio.get_running_loop()
        if not self._has_clock:  # it is read several times for every tick: the loop is asked for its clock once
            self.now = wall_clock(asyncio.get_running_loop())
        self._working = self._in_the_way = None
        self._open = True
        if self.codes or self._settings.definitions:
            self._begin_to_work()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop working. Unfinished runs stay in the store, and go on where somebody works for them."""
        if not self._open:
            return
        self._open = False
        beginnings = list(self._beginnings)
        for each in beginnings:
            each.cancel()
        await asyncio.gather(*beginnings, return_exceptions=True)
        await self.definitions.close()
        await self._leave()
        if self.watch is not None:
            watchdog().leave(self.watch, self._may_stall)
            self.watch = None
        self.watchers.wake_all()
        self.endings.wake_all()
        await self.committer.close()
        await self.store.close()

    @override
    async def ready(self) -> None:
        """Wait until calls can be made; raise why they cannot."""
        if not self._open:
            raise StoreError(f"The runtime is closed: use it inside of `{self.opened_by} as runtime:`.")
        if self._working is not None:
            if self._in_the_way is not None:
                raise StoreUnavailable(self._in_the_way)
            if _has_failed(self._working):
                self._begin_to_work()  # what was in the way may be gone
            await asyncio.shield(self._working)

    # -- working ------------------------------------------------------------------------------------------------------

    @override
    def register(self, workflow: Workflow, name: str | None = None, *, schedules: bool = True) -> None:
        """Work for a workflow from now on: its unfinished runs are taken up, under the name they are stored with.

        `schedules=False` leaves alone what the triggers of a flow say about time.
        """
        if not isinstance(workflow, Workflow):
            raise TypeError(f"register() takes a workflow, not {type(workflow).__name__}.")
        workflow._lock()
        workflow._validate_once()
        own = internal_codes(self, workflow)
        self.codes |= own
        code = registered(name or workflow.workflow_name, workflow, self.services)
        self.codes[code.name] = code
        self.measured.know(code.name, code.steps)
        self.definitions.registered(code)
        if schedules and self._settings.schedules:
            self._triggered.add(code.name)
        self.work_for([*own, code.name])

    def adopt(self, name: str, flow: Flow) -> None:
        """Take a flow for the code of a name that is stored as a definition. `work_for` lets the work begin."""
        own = internal_codes(self, flow)
        self.codes |= own
        self.codes[name] = code = RegisteredFlow(name, flow, self.services)
        self.measured.know(name, code.steps)
        if self._settings.schedules:
            self._triggered.add(name)
        self.work_for([*own])

    def work_for(self, names: Sequence[str]) -> None:
        """Begin to work for names whose code has come or changed."""
        if names and self._open:
            self._begin_to_work(names)

    def _begin_to_work(self, names: Sequence[str] | None = None) -> None:
        self._begin(self._work(self._working, names))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._working = beginning = asyncio.get_running_loop().create_task(work)
        self._beginnings.add(beginning)
        beginning.add_done_callback(self._beginnings.discard)
        # Whoever makes the next call is told; if nobody does, the log says it.
        beginning.add_done_callback(_log_failure)

    async def _work(self, previous: asyncio.Task[None] | None, names: Sequence[str] | None) -> None:
        """Work for these names, or for all of them, once what was begun before is done."""
        if previous is not None:
            await asyncio.wait([previous])
            names = None if _has_failed(previous) else names
        await self._join()
        self._watch_loop()
        found = await self.definitions.begin()
        names = [*names, *found] if names is not None else list(self.codes)
        await self._take_up(names)
        if self._settings.safe:
            return
        await keep_triggers(self, [name for name in names if name in self._triggered], self.definitions.deleted)

    async def is_given_up(self, schedule: ScheduleStart) -> bool:
        """Say whether the flow that a schedule was made for was deleted, or does not ask for it any more."""
        return await is_given_up(self, schedule)

    # -- being watched ------------------------------------------------------------------------------------------------

    def watch_always(self) -> None:
        """Have the event loop watched also while no run is in memory: it has other work, such as requests."""
        self._watches_always = True
        rouse()

    def _watch_loop(self) -> None:
        stall_s = self._settings.watchdog
        if self.watch is None and stall_s is not None:
            self.watch = watchdog().watch(asyncio.get_running_loop(), stall_s, self._may_stall)

    def _may_stall(self) -> bool:
        return self._watches_always or self._is_at_work

    @property
    def _is_at_work(self) -> bool:
        """Whether runs are in memory here."""
        return True

    def hindrances(self) -> list[str]:
        """Tell why this process should get no new work, as far as it is known without asking. For any thread."""
        found = {
            "stalled": self.watch is not None and self.watch.is_stalled,
            "memory-exceeded": self.memory.look(),
            "commits-failing": self._open and self.committer.failing is not None,
        }
        return [reason for reason, holds in found.items() if holds]

    # -- working again, after it had to stop --------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Join again, however long that takes."""
        try:
            while not await self._has_joined_again():  # noqa: ASYNC110 - a store is tried, and tells nobody
                await asyncio.sleep(self._settings.poll_interval)
        finally:
            self._in_the_way = None

    async def _has_joined_again(self) -> bool:
        try:
            await self._work(None, None)
        except StoreUnavailable as error:
            _log.error("Joining again has failed, and is tried again: %s", error)
            self._in_the_way = str(error)
            return False
        return True


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _log_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("This process cannot work on runs: %s", error)

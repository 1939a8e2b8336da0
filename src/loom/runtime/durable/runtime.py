"""The durable runtime: what `loom.connect(url)` gives. It makes all calls on stored runs, and works on runs itself.

May import loom.core, loom.effects, loom.steps, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from loom.runtime.durable.beginning import StartedRuns
from loom.runtime.durable.callbacks import StoredCallbacks
from loom.runtime.durable.definitions import Definitions
from loom.runtime.durable.internal import internal_codes
from loom.runtime.durable.registered import RegisteredFlow, registered
from loom.runtime.durable.residents import Residents
from loom.runtime.durable.scanner import Scanner
from loom.runtime.durable.schedules_triggers import keep_triggers
from loom.runtime.durable.services import services_for
from loom.runtime.durable.settings import Settings
from loom.steps.workflow import Workflow
from loom.store.chain import Links
from loom.store.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType

    from loom.runtime.durable.watching import News
    from loom.runtime.flow import Flow
    from loom.steps.events import StopEvent
    from loom.store.ports import Store
    from loom.store.records import Member, RunRow

_log = logging.getLogger("loom.durable")


class DurableRuntime(StartedRuns):
    """Runs workflows that live in a store.

    Without a registered workflow it is a client: it starts, tells and asks, and leaves the work to others. With one it
    owns runs, holds those in memory that something happens to, and releases them after `idle_timeout` seconds without.
    """

    def __init__(
        self, store: Store, settings: Settings | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(store, clock or self._wall_time)
        self._has_clock = clock is not None
        self._settings = settings or Settings()
        self.links = Links(self._settings.keyring)
        self._name = self._settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._member: Member | None = None
        self._scanner: Scanner | None = None
        self._working: asyncio.Task[None] | None = None
        """The latest beginning, which waits for those before it."""
        self._beginnings: set[asyncio.Task[None]] = set()
        self._in_the_way: str | None = None
        """Why joining again has failed so far: whoever calls is told, and does not wait until it succeeds."""
        self._triggered: set[str] = set()
        self._open = False
        self.definitions = Definitions(
            self, follow=self._settings.definitions, poll_interval=self._settings.poll_interval
        )
        self.callbacks = StoredCallbacks(store, self._settings.callback_url)
        """The addresses at which services call back."""
        self.services = services_for(self, self._settings)
        """What the actions of flows find in this process."""
        store.on_news = self._on_news

    @staticmethod
    def _wall_time() -> float:
        loop = asyncio._get_running_loop()
        clock: Callable[[], float] = getattr(loop, "wall_time", time.time)
        return clock()

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._open_store()
        if not self._has_clock:  # it is read several times for every tick: the loop is asked for its clock once
            self.now = getattr(asyncio.get_running_loop(), "wall_time", time.time)
        self._residents = self._scanner = self._working = self._in_the_way = None
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
        if self._scanner is not None:
            await self._scanner.close()
        if self._residents is not None:
            await self._residents.close()
        self.watchers.wake_all()
        self.endings.wake_all()
        await self.committer.close()
        await self.store.close()

    @override
    async def ready(self) -> None:
        """Wait until calls can be made; raise why they cannot."""
        if not self._open:
            raise StoreError("The runtime is closed: use it inside of `async with loom.connect(...) as runtime:`.")
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
        self.definitions.registered(code)
        if schedules and self._settings.schedules:
            self._triggered.add(code.name)
        self.work_for([*own, code.name])

    def adopt(self, name: str, flow: Flow) -> None:
        """Take a flow for the code of a name that is stored as a definition. `work_for` lets the work begin."""
        own = internal_codes(self, flow)
        self.codes |= own
        self.codes[name] = RegisteredFlow(name, flow, self.services)
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
        if previous is not None:
            await asyncio.wait([previous])
            names = None if _has_failed(previous) else names
        if self._residents is None:
            await self._join()
        scanner = self._scanner  # if the lease is lost meanwhile, another one begins anew
        assert scanner is not None
        found = await self.definitions.begin()
        names = [*names, *found] if names is not None else list(self.codes)
        for name in names:
            await scanner.retry_parked(name)
        scanner.look_soon()
        await keep_triggers(self, [name for name in names if name in self._triggered], self.definitions.deleted)

    async def _join(self) -> None:
        self._check_keys()
        self._member = await self.store.join(self._name, self._settings.lease)
        self._residents = Residents(self, self._settings, self._member, self._on_end, self._on_release, self._on_room)
        self._scanner = Scanner(self, self._residents, self._settings, self._lease_lost)
        self._scanner.start()

    def _lease_lost(self) -> None:
        """This process slept past its lease: others have its runs. It begins anew, as another member."""
        _log.error("The lease of %s was lost: its runs belong to others now. Joining again.", self._name)
        self.measured.lease_losses += 1
        residents, scanner = self._residents, self._scanner
        self._residents = self._scanner = None
        self._begin(self._rejoin(residents, scanner))

    async def _rejoin(self, residents: Residents | None, scanner: Scanner | None) -> None:
        if scanner is not None:
            await scanner.close()
        if residents is not None:
            await residents.close()
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

    def _on_news(self, run_ids: Sequence[str]) -> None:
        """Something has come for runs, or they have ended; without ids, for any."""
        for run_id in run_ids:
            if self._residents is not None and self._residents.is_own_end(run_id):
                continue  # whoever waits for it is told in a moment, with what it has ended with
            self.watchers.wake(run_id)
            self.endings.wake(run_id)
            if self._residents is not None:
                self._residents.wake(run_id)
        if not run_ids:
            self.watchers.wake_all()
            self.endings.wake_all()
            if self._scanner is not None:
                self._scanner.look_soon()

    def _on_release(self, run_id: str, due: float) -> None:
        if self._scanner is not None:
            self._scanner.expect(run_id, due)

    def _on_room(self) -> None:
        if self._scanner is not None:
            self._scanner.on_room()

    def _on_end(self, run_id: str, ending: StopEvent | BaseException) -> None:
        """A run has ended here."""
        for handle in self._handles.get(run_id, ()):
            handle.over(ending)

    @override
    def _summon(self, row: RunRow) -> None:
        if self._residents is not None:
            self._residents.summon(row)

    @property
    def is_alone(self) -> bool:
        """Whether nobody else can be at work on the store while this process is."""
        return self._residents is not None and self.store.exclusive

    @override
    async def news(self, future: News, waits: int = 0) -> None:
        """See `StoredRuns`. Where nobody else writes runs, all news are this process' own."""
        if not self._open:
            raise StoreError("The runtime was closed: what becomes of the run can be asked where it is open.")
        if self.is_alone:
            await future
        else:
            await super().news(future, waits)

    @property
    def figures(self) -> dict[str, int]:
        """How many runs are in memory here, and how many were released and brought back so far."""
        in_memory = len(self._residents.runs) if self._residents is not None else 0
        return {"in_memory": in_memory, "released": self.measured.released, "resumed": self.measured.resumed}

    @override
    async def _downtime(self) -> float:
        return self._member.downtime if self._member is not None else 0.0


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _log_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("This process cannot work on runs: %s", error)

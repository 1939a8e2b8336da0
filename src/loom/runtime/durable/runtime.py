"""The durable runtime: what `loom.connect(url)` gives for a store. It works on runs itself."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from loom.api.workers import Worker
from loom.runtime.durable.active_runs import ActiveRuns
from loom.runtime.durable.scanner import Scanner
from loom.runtime.durable.second import Second
from loom.runtime.durable.worker import WorkerRuntime
from loom.runtime.durable.workers import fields_of
from loom.store.errors import StoreError, StoreLocked
from loom.store.operations import ForgetDeaths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.api.workers import Role
    from loom.runtime.durable.readers import News
    from loom.runtime.durable.settings import Settings
    from loom.steps.events import StopEvent
    from loom.store.ports import OwnedStore
    from loom.store.records import Member, RunRow

_log = logging.getLogger("loom.durable")


class DurableRuntime(WorkerRuntime):
    """Runs workflows that live in a store.

    Without a registered workflow it is a client: it starts, tells and asks, and leaves the work to others. With one it
    owns runs, holds those in memory that something happens to, and releases them after `idle_timeout` seconds without.
    """

    def __init__(
        self, store: OwnedStore, settings: Settings | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(store, settings, clock=clock)
        self._owned_store = store
        self._name = self._settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._member: Member | None = None
        self._scanner: Scanner | None = None
        self._second: Second | None = None
        """How this process is beside another one that works on the file; None if it is not."""

    @override
    async def __aenter__(self) -> Self:
        self.active_runs = self._scanner = self._second = None
        return await super().__aenter__()

    # -- working ------------------------------------------------------------------------------------------------------

    @override
    async def _join(self) -> bool:
        if self.active_runs is not None:
            return True
        if self._second is not None:
            return False
        self.check_keys()
        wanted = self._settings.when_locked
        try:
            await self._take_place()
        except StoreLocked as error:
            if wanted == "refuse":
                raise
            self._second = Second(self._name, wanted, error.holder, self._take_place, self._took_over)
            return False
        if wanted != "refuse":
            _log.info("%s works on the runs of the store.", self._name)
        return True

    async def _take_place(self) -> None:
        """Become a member of the store, and begin to look after its runs. `StoreLocked` if another has the place."""
        self._member = await self._owned_store.join(self._name, self._settings.lease)
        self._working_since = self.now()
        await self.problems.look(self.now())
        self.active_runs = ActiveRuns(
            self,
            self._owned_store,
            self._settings,
            self._member,
            self.problems,
            self.memory,
            self._on_end,
            self._on_release,
        )
        self.active_runs.is_awaited = self.handles.__contains__
        self._scanner = Scanner(self, self._owned_store, self.active_runs, self._settings, self._lease_lost)
        self.active_runs.on_room = self._scanner.on_room
        self._scanner.start()

    def _took_over(self) -> None:
        """Go on as the process that works: the other one has ended."""
        self._second = None
        # What the other one committed last may not have been told. Readers look once more.
        self._on_notification(())
        self._begin_to_work()

    @property
    @override
    def role(self) -> Role:
        if self._second is not None:
            return self._second.role
        return "worker" if self.active_runs is not None else "client"

    @override
    async def workers(self) -> Sequence[Worker]:
        found = await super().workers()
        if self._second is None:
            return found
        known = fields_of(self.describe_worker())
        return [*found, Worker(name=self._name, alive=True, role=self.role, is_this=True, **known)]

    @override
    def worker_name(self) -> tuple[int | None, str] | None:
        """The fence and the name by which the store knows this process; None if it does not work on runs."""
        return (self.active_runs.fence, self._name) if self.active_runs is not None else None

    @override
    async def _leave(self) -> None:
        if self._second is not None:
            await self._second.close()
        await _put_down(self.active_runs, self._scanner)

    @override
    async def _recover_runs(self, names: Sequence[str]) -> None:
        scanner = self._scanner  # if the lease is lost while it works, another one begins anew
        if scanner is not None:
            for name in names:
                await scanner.retry_parked(name)
            scanner.look_soon()

    def _lease_lost(self) -> None:
        """This process slept past its lease: others have its runs. It begins anew, as another member."""
        _log.error("The lease of %s was lost: its runs belong to others now. Joining again.", self._name)
        self.metrics.lease_losses += 1
        active_runs, scanner = self.active_runs, self._scanner
        self.active_runs = self._scanner = None
        self._begin(self._begin_anew(active_runs, scanner))

    async def _begin_anew(self, active_runs: ActiveRuns | None, scanner: Scanner | None) -> None:
        await _put_down(active_runs, scanner)
        await self._rejoin()
        if active_runs is not None:
            # It was taken for dead, and is not: what it was at work on has killed nobody.
            await self.committer.submit(ForgetDeaths(fence=active_runs.fence))

    @override
    def _on_notification(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            if self.active_runs is not None and self.active_runs.is_own_end(run_id):
                continue  # callers that wait for it are told in a moment, with what it has ended with
            self.watchers.wake(run_id)
            self.endings.wake(run_id)
            if self.active_runs is not None:
                self.active_runs.notify(run_id)
        if not run_ids:
            self.watchers.wake_all()
            self.endings.wake_all()
            if self._scanner is not None:
                self._scanner.look_soon()

    def _on_release(self, run_id: str, due: float) -> None:
        if self._scanner is not None:
            self._scanner.expect(run_id, due)

    def _on_end(self, run_id: str, ending: StopEvent | BaseException) -> None:
        """Tell the handles of a run that it has ended here."""
        self.handles.over(run_id, ending)

    @override
    def _expect_message(self, row: RunRow) -> None:
        if self.active_runs is not None:
            self.active_runs.expect_message(row)

    @property
    @override
    def is_alone(self) -> bool:
        return self.active_runs is not None and self._owned_store.exclusive

    @override
    async def news(self, future: News, waits: int = 0) -> None:
        """See `RunClient`. Where nobody else writes runs, all news are this process' own."""
        if not self._open:
            raise StoreError("The runtime was closed: what becomes of the run can be asked where it is open.")
        if self.is_alone:
            await future
        else:
            await super().news(future, waits)

    @property
    @override
    def _is_at_work(self) -> bool:
        return self.active_runs is not None and bool(self.active_runs.runs)

    @property
    @override
    def figures(self) -> dict[str, int]:
        in_memory = len(self.active_runs.runs) if self.active_runs is not None else 0
        return {"in_memory": in_memory, "released": self.metrics.released, "resumed": self.metrics.resumed}

    @override
    async def downtime(self) -> float:
        return self._member.downtime if self._member is not None else 0.0


async def _put_down(active_runs: ActiveRuns | None, scanner: Scanner | None) -> None:
    if scanner is not None:
        await scanner.close()
    if active_runs is not None:
        await active_runs.close()

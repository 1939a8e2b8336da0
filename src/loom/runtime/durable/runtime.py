"""The durable runtime: what `loom.connect(url)` gives. It makes all calls on stored runs, and works on runs itself.

May import loom.core, loom.effects, loom.steps, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from typing_extensions import override

from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy
from loom.runtime.durable.actors import StoredActors
from loom.runtime.durable.elsewhere import CodeElsewhere
from loom.runtime.durable.handle import RunHandle
from loom.runtime.durable.internal import internal_codes
from loom.runtime.durable.names import check_name, check_tags
from loom.runtime.durable.registered import registered
from loom.runtime.durable.residents import Residents
from loom.runtime.durable.scanner import Scanner
from loom.runtime.durable.schedules import ScheduledRuns
from loom.runtime.durable.schedules_triggers import keep_triggers
from loom.runtime.durable.settings import Settings
from loom.runtime.durable.starting import check_same, flow_start, start_spec
from loom.steps.context import Context
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.handler import WorkflowHandler
from loom.steps.workflow import Workflow
from loom.store import codec
from loom.store.committer import Committer
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import Started, StartRun
from loom.store.records import RunHead, RunRow, StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from loom.core.state import BrokerState
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.resident import Resident
    from loom.steps.events import StartEvent, StopEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.store.ports import Store
    from loom.store.records import Member

_log = logging.getLogger("loom.durable")


class DurableRuntime(ScheduledRuns):
    """Runs workflows that live in a store.

    Without a registered workflow it is a client: it starts, tells and asks, and leaves the work to others. With one it
    owns runs, holds those in memory that something happens to, and releases them after `idle_timeout` seconds without.
    """

    def __init__(
        self, store: Store, settings: Settings | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(store, clock or self._wall_time)
        self._settings = settings or Settings()
        self._name = self._settings.name or f"{socket.gethostname()}-{os.getpid()}"
        self._member: Member | None = None
        self._residents: Residents | None = None
        self._scanner: Scanner | None = None
        self._working: asyncio.Task[None] | None = None
        self._handles: dict[str, WeakSet[RunHandle]] = {}
        self._triggered: set[str] = set()
        self._open = False
        allowed = self._settings.allowed_hosts
        self.services = Services(
            http=HttpPolicy.allowing(*allowed) if allowed is not None else None, actors=StoredActors(self)
        )
        """What the actions of flows find in this process."""
        store.on_news = self._on_news

    @staticmethod
    def _wall_time() -> float:
        loop = asyncio._get_running_loop()
        clock: Callable[[], float] = getattr(loop, "wall_time", time.time)
        return clock()

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.store.open()
        self.committer = Committer(self.store)
        self._residents = self._scanner = self._working = None
        self._open = True
        if self.codes:
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
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
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
            if _has_failed(self._working):
                self._begin_to_work()  # what was in the way may be gone
            await asyncio.shield(self._working)

    # -- working ------------------------------------------------------------------------------------------------------

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
        if schedules and self._settings.schedules:
            self._triggered.add(code.name)
        if self._open:
            self._begin_to_work(code if not own else None)

    def _begin_to_work(self, code: Registered | None = None) -> None:
        previous = self._working
        self._working = asyncio.get_running_loop().create_task(self._work(previous, code))
        # Whoever makes the next call is told; if nobody does, the log says it.
        self._working.add_done_callback(_log_failure)

    async def _work(self, previous: asyncio.Task[None] | None, code: Registered | None) -> None:
        if previous is not None:
            await asyncio.wait([previous])
            code = None if _has_failed(previous) else code
        if self._residents is None:
            await self._join()
        scanner = self._scanner  # if the lease is lost meanwhile, another one begins anew
        assert scanner is not None
        names = [code.name] if code is not None else list(self.codes)
        for name in names:
            await scanner.retry_parked(name)
        scanner.look_soon()
        await keep_triggers(self, [name for name in names if name in self._triggered])

    async def _join(self) -> None:
        self._member = await self.store.join(self._name, self._settings.lease)
        self._residents = Residents(self, self._settings, self._member, self._on_end, self._on_release, self._on_room)
        self._scanner = Scanner(self, self._residents, self._settings, self._lease_lost)
        self._scanner.start()

    def _lease_lost(self) -> None:
        """This process slept past its lease: others have its runs. It begins anew, as another member."""
        _log.error("The lease of %s was lost: its runs belong to others now. Joining again.", self._name)
        residents, scanner = self._residents, self._scanner
        self._residents = self._scanner = None
        self._working = asyncio.get_running_loop().create_task(self._rejoin(residents, scanner))
        self._working.add_done_callback(_log_failure)

    async def _rejoin(self, residents: Residents | None, scanner: Scanner | None) -> None:
        if scanner is not None:
            await scanner.close()
        if residents is not None:
            await residents.close()
        while True:
            try:
                await self._work(None, None)
            except StoreUnavailable as error:
                _log.error("Joining again has failed, and is tried again: %s", error)
                await asyncio.sleep(self._settings.poll_interval)
            else:
                return

    def _on_news(self, run_ids: Sequence[str]) -> None:
        """Something has come for runs, or they have ended; without ids, for any."""
        for run_id in run_ids:
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
    async def news(self, future: asyncio.Future[None], waits: int = 0) -> None:
        """See `StoredRuns`. Where nobody else writes runs, all news are this process' own."""
        if not self._open:
            raise StoreError("The runtime was closed: what becomes of the run can be asked where it is open.")
        if self._residents is not None and self.store.exclusive:
            await future
        else:
            await super().news(future, waits)

    def resident(self, run_id: str) -> Resident | None:
        """A run that is in memory here."""
        return self._residents.runs.get(run_id) if self._residents is not None else None

    @property
    def figures(self) -> dict[str, int]:
        """How many runs are in memory here, and how many were released and brought back so far."""
        residents = self._residents
        if residents is None:
            return {"in_memory": 0, "released": 0, "resumed": 0}
        return {"in_memory": len(residents.runs), "released": residents.released, "resumed": residents.resumed}

    @override
    async def _downtime(self) -> float:
        return self._member.downtime if self._member is not None else 0.0

    # -- starting -----------------------------------------------------------------------------------------------------

    async def start(
        self,
        workflow: str,
        inputs: Any = None,
        *,
        run_id: str | None = None,
        tags: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
    ) -> WorkflowHandler:
        """Begin a run. Returns once it is stored; the same `run_id` with the same input again is the same run.

        The input of a flow is its trigger's body, any JSON value; only flows have parameters and variables.
        """
        await self.ready()
        check_name("The name of a workflow", workflow)
        check_name("A run_id", run_id if run_id is not None else "new")
        check_tags(tags or {})
        code = self.codes.get(workflow)
        if parameters is not None or variables is not None:
            inputs = flow_start(workflow, code, inputs, parameters or {}, variables or {})
        spec = start_spec(code, self.convert_for(workflow), inputs)
        return await self._start(workflow, run_id or uuid.uuid4().hex, spec, tags or {})

    async def _start(self, name: str, run_id: str, spec: codec.StartSpec, tags: dict[str, str]) -> WorkflowHandler:
        residents, code, now = self._residents, self.codes.get(name), self.now()
        start = codec.encode_start(spec)
        here = code is not None and residents is not None and residents.expect(run_id, code)
        downtime = await self._downtime()
        document = code.document if code is not None else None
        operation = StartRun(
            run_id,
            name,
            start,
            now,
            tags=tags,
            owner=residents.fence if here and residents is not None else None,
            downtime=downtime,
            document=document,
        )
        try:
            started = await self._submit_start(operation)
            if started.created and here and residents is not None and code is not None:
                head = RunHead("running", 0, 0, now, downtime=downtime)
                digest, text = document if document is not None else (None, None)
                row = RunRow(run_id, name, now, head, tags=tags, document=digest)
                residents.begin(StoredRun(row, start, None, (), document=text), code)
        finally:
            if here and residents is not None:
                residents.arrived(run_id)
        if not started.created:
            check_same(run_id, started, name, start)
        return self._handler_for(run_id, name, None)

    async def _submit_start(self, operation: StartRun) -> Started:
        answer = self.committer.submit(operation)
        try:
            started = await asyncio.shield(answer)
        except asyncio.CancelledError:
            # Whoever asked has left, but the run will be there, and perhaps ours.
            if (residents := self._residents) is not None and operation.owner is not None:
                answer.add_done_callback(lambda _done: residents.wake(operation.run_id))
            raise
        except StoreUnavailable as error:
            if self._residents is not None and error.outcome_unknown:
                self._residents.stranded.add(operation.run_id)
            raise
        assert isinstance(started, Started)
        return started

    async def handler(self, run_id: str) -> WorkflowHandler:
        """The handler of a run, whichever process started it."""
        await self.ready()
        row = await self.row(run_id)
        return self._handler_for(run_id, row.workflow, row)

    def _handler_for(self, run_id: str, name: str, row: RunRow | None) -> WorkflowHandler:
        code = self.codes.get(name)
        workflow = code.workflow if code is not None else CodeElsewhere(workflow_name=name)
        handle = RunHandle(self, run_id, workflow, self.convert_for(name), row)
        self._keep(handle)
        context: Context[Any] = Context(workflow)
        context._run = handle
        return WorkflowHandler(context, handle)

    def _keep(self, handle: RunHandle) -> None:
        """Handles that somebody holds are told when their run ends here."""
        handles = self._handles.setdefault(handle.run_id, WeakSet())
        handles.add(handle)
        weakref.finalize(handle, self._drop_handles, handle.run_id)

    def _drop_handles(self, run_id: str) -> None:
        # The set may still count the one that goes: only going through it tells who is left.
        if not list(self._handles.get(run_id, ())):
            self._handles.pop(run_id, None)

    async def fork(self, source_id: str, /, *, tick: int, run_id: str | None = None) -> WorkflowHandler:
        """A new run that goes on from a past tick of another one, as `history` counts them."""
        await self.ready()
        fork_id = run_id if run_id is not None else uuid.uuid4().hex
        check_name("A run_id", fork_id)
        row = await self._store_fork(source_id, tick, fork_id)
        return self._handler_for(fork_id, row.workflow, None)

    # -- `workflow.run()` on this runtime -----------------------------------------------------------------------------

    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> RunHandle:
        """Begin a run of a workflow that was made for this runtime. It is stored soon; its handler waits for that."""
        if resumed is not None:
            raise WorkflowRuntimeError("A saved context cannot go on in a store: import the run, or run it in memory.")
        name = next((code.name for code in self.codes.values() if code.workflow is workflow), None)
        if name is None:
            self.register(workflow, schedules=False)
            name = workflow.workflow_name
        spec = self.codes[name].start_spec(None, start_event, staged)
        handle = RunHandle(self, run_id or uuid.uuid4().hex, workflow, self.convert_for(name), None)
        self._keep(handle)
        handle.begin_with(self._start_later(name, handle.run_id, spec))
        return handle

    async def _start_later(self, name: str, run_id: str, spec: codec.StartSpec) -> None:
        await self.ready()
        await self._start(name, run_id, spec, {})

    def track_workflow(self, workflow: Workflow) -> None:
        """A workflow was made that will use this runtime: it is registered with its first run."""


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _log_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("This process cannot work on runs: %s", error)

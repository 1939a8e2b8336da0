"""Beginning runs, and the handlers of those that have begun. May import the rest of loom.runtime and what it may."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from typing_extensions import override

from loom.effects.threads import aside_if_large
from loom.runtime.durable.calls import check_event
from loom.runtime.durable.definitions_stored import DefinitionNotFound
from loom.runtime.durable.elsewhere import CodeElsewhere
from loom.runtime.durable.handle import RunHandle
from loom.runtime.durable.memory_limit import MemoryLimit
from loom.runtime.durable.names import check_name, check_run_id, check_tags, check_workflow
from loom.runtime.durable.registered import RegisteredFlow
from loom.runtime.durable.schedules import ScheduledRuns
from loom.runtime.durable.starting import check_same, first_mail, flow_start, start_spec
from loom.steps.context import Context
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.handler import WorkflowHandler
from loom.store import codec
from loom.store.errors import RunExists, StoreUnavailable
from loom.store.operations import Started, StartRun
from loom.store.records import RunHead, RunRow, StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.state import BrokerState
    from loom.runtime.durable.definitions import Definitions
    from loom.runtime.durable.registered import Registered
    from loom.runtime.durable.resident import Resident
    from loom.runtime.durable.residents import Residents
    from loom.steps.events import Event, StartEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow
    from loom.store.operations import PostMail
    from loom.store.ports import Store


class StartedRuns(ScheduledRuns):
    """Runs in a store, and how they get there."""

    definitions: Definitions
    """The flows in the store, and which version of them a run begins with."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        super().__init__(store, clock)
        self.memory = MemoryLimit(None)
        """How much memory this process may use."""
        self._residents: Residents | None = None
        """The runs in memory, where this process works on runs."""
        self._handles: dict[str, WeakSet[RunHandle]] = {}
        self.home: asyncio.AbstractEventLoop | None = None
        """The event loop on which the runtime is open."""

    def register(self, workflow: Workflow, name: str | None = None, *, schedules: bool = True) -> None:
        """Work for a workflow from now on."""
        raise NotImplementedError

    @override
    def short_of_memory(self) -> str | None:
        return None if self.memory.has_room else self.memory.words

    @override
    def resident(self, run_id: str) -> Resident | None:
        """A run that is in memory here."""
        return self._residents.runs.get(run_id) if self._residents is not None else None

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
        version: int | None = None,
    ) -> WorkflowHandler:
        """Begin a run. Returns once it is stored; the same `run_id` with the same input again is the same run.

        The input of a flow is its trigger's body, any JSON value; only flows have parameters, variables and versions.
        `DefinitionNotFound` if the flow was deleted, or has no such version; `MemoryExceeded` above `max_memory`.
        """
        begun, _ = await self.begin(
            workflow,
            inputs,
            run_id=run_id,
            tags=tags,
            parameters=parameters,
            variables=variables,
            version=version,
        )
        return self._handler_for(begun, workflow, None)

    async def begin(
        self,
        workflow: str,
        inputs: Any = None,
        *,
        run_id: str | None = None,
        tags: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        version: int | None = None,
    ) -> tuple[str, bool]:
        """The same for those who need no handler: the id of the run, and whether it is new."""
        await self.ready()
        check_workflow(workflow)
        _check_names(workflow, run_id if run_id is not None else "new", tags)
        code = await self._code_for(workflow, version, run_id)
        if parameters is not None or variables is not None:
            inputs = flow_start(workflow, code, inputs, parameters or {}, variables or {})
        spec = await self._start_spec(workflow, code, inputs)
        run_id = run_id or uuid.uuid4().hex
        is_new = await self._start(workflow, run_id, spec, tags or {}, code)
        if version is not None and not is_new:
            row = await self.row(run_id)
            if await self.definitions.number_of(workflow, row.document) != version:
                raise RunExists(run_id, "with another version")
        return run_id, is_new

    async def start_with_event(
        self,
        workflow: str,
        event: Event,
        *,
        run_id: str,
        inputs: Any = None,
        event_id: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> WorkflowHandler:
        """Begin a run with an event that is there from its first moment, or send the event to the run of this id.

        A new run is stored together with its event, so nobody finds one without the other. The same `run_id` and
        `event_id` again change nothing. `RunExists` if the id is that of another workflow or came with another input,
        `RunFinished` if the run has ended: the event is not sent then.
        """
        await self.ready()
        _check_names(workflow, run_id, tags)
        check_event(event, event_id)
        code = await self._code_for(workflow, None, run_id)
        convert = self.convert_for(workflow)
        spec = await self._start_spec(workflow, code, inputs)
        # Where a start and an event are one call, a run that is there already may get the event by it.
        event_id = event_id or uuid.uuid4().hex
        mail = first_mail(run_id, event, event_id, code, convert, self.now())
        started = await self._store_start(workflow, run_id, spec, tags or {}, code, mail)
        if not started.created and not started.mailed:
            await self.send_event(run_id, event, event_id=event_id)
        return self._handler_for(run_id, workflow, None)

    async def _start_spec(self, workflow: str, code: Registered | None, inputs: Any) -> codec.StartSpec:
        """Encode what a run begins with. Events of authors have code of theirs, which belongs on the event loop."""
        make = partial(start_spec, code, self.convert_for(workflow))
        return await aside_if_large(make, inputs) if isinstance(code, RegisteredFlow) else make(inputs)

    async def _code_for(self, name: str, version: int | None, run_id: str | None) -> Registered | None:
        """The code that a run begins with. A start that is repeated finds its run, whatever became of the flow."""
        try:
            return await self.definitions.code_for(name, version)
        except DefinitionNotFound:
            if run_id is None or await self.store.get(run_id) is None:
                raise
            return self.codes.get(name)

    async def _start(
        self, name: str, run_id: str, spec: codec.StartSpec, tags: dict[str, str], code: Registered | None = None
    ) -> bool:
        """Store a run that begins with this. False if the same run was there already.

        `MemoryExceeded` if this process has no memory for it. Loom's own starts come another way: they wait in the
        store.
        """
        self.memory.check()
        return (await self._store_start(name, run_id, spec, tags, code)).created

    async def _store_start(
        self,
        name: str,
        run_id: str,
        spec: codec.StartSpec,
        tags: dict[str, str],
        code: Registered | None = None,
        mail: PostMail | None = None,
    ) -> Started:
        """Store a run that begins with this, of a version whose code is given or else of the one that is at hand."""
        code = code if code is not None else self.codes.get(name)
        residents, now = self._residents, self.now()
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
            mail=mail,
        )
        try:
            operation = self.signed_start(operation)
            started = await self._submit_start(operation)
            if started.created and here and residents is not None and code is not None:
                head = RunHead("running", 0, 0, now, downtime=downtime, mac=operation.mac)
                digest, text = document if document is not None else (None, None)
                row = RunRow(run_id, name, now, head, tags=tags, document=digest)
                try:
                    residents.begin(StoredRun(row, start, None, (), document=text), code)
                except Exception:  # noqa: BLE001 - whoever takes it up next gets it too, tells the log and parks the run
                    residents.wake(run_id)
        finally:
            if here and residents is not None:
                residents.arrived(run_id)
        if not started.created:
            check_same(run_id, started, name, start)
        return started

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

    @override
    def saw(self, row: RunRow) -> None:
        for handle in self._handles.get(row.run_id, ()):
            handle.saw(row)

    def _drop_handles(self, run_id: str) -> None:
        # The set may still count the one that goes: only going through it tells who is left.
        if not list(self._handles.get(run_id, ())):
            self._handles.pop(run_id, None)

    async def fork(self, source_id: str, /, *, tick: int, run_id: str | None = None) -> WorkflowHandler:
        """A new run that goes on from a past tick of another one, as `history` counts them."""
        fork_id = await self.store_fork(source_id, tick=tick, run_id=run_id)
        return self._handler_for(fork_id, (await self.row(fork_id)).workflow, None)

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
        if self.home is not None and self.home is not asyncio.get_running_loop():
            raise WorkflowRuntimeError(
                "The workflow's runtime is open on another event loop: start the run there, or by a runtime of "
                "`loom.connect_sync`, where there is no loop."
            )
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


def _check_names(workflow: str, run_id: str, tags: dict[str, str] | None) -> None:
    """What a caller calls a run and gives it along can be kept."""
    check_name("The name of a workflow", workflow)
    check_run_id(run_id)
    check_tags(tags or {})

"""Starting runs: what a run begins with, from what callers give, and how its start gets into the store.

A start that is stored here begins here, if there is a place in memory: the caller reserves it before (`expect_start`),
so that the run does not have to be claimed and loaded.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.ticks import TickAddEvent
from loom.effects.flow_codec import FlowStartEvent
from loom.effects.off_loop import aside_if_large
from loom.flows.plain import plain_value
from loom.runtime.durable.handle import RunHandle
from loom.runtime.durable.names import check_event, check_name, check_run_id, check_tags, check_workflow
from loom.runtime.durable.registration import FlowRegistration
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StartEvent
from loom.steps.ports import definition_of
from loom.store.codec import StartSpec, decode_start, encode_start, encode_tick
from loom.store.errors import RunExists, StoreUnavailable
from loom.store.operations import PostMessage, Started, StartRun
from loom.store.records import RunHead, RunRow, StoredRun

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.effects.stored_codec import StoredEventCodec
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.steps.events import Event
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow


class RunStarter:
    """Starts the runs of one runtime."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

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
        code: Registration | None = None,
    ) -> tuple[str, bool]:
        """Begin a run, and return its id and whether it is new: see `WorkerRuntime.start`.

        A caller that has looked the current code up just now may give it.
        """
        await self._runtime.ready()
        check_workflow(workflow)
        _check_names(workflow, run_id if run_id is not None else "new", tags)
        code = code or await self._code_for(workflow, version, run_id)
        if code is None:
            await self._runtime.definitions.check_known(workflow)
        if parameters is not None or variables is not None:
            inputs = flow_start(workflow, code, inputs, parameters or {}, variables or {})
        spec = await self._start_spec(workflow, code, inputs)
        run_id = run_id or uuid.uuid4().hex
        is_new = await self.store(workflow, run_id, spec, tags or {}, code)
        if version is not None and not is_new:
            row = await self._runtime.row(run_id)
            if await self._runtime.definitions.number_of(workflow, row.document) != version:
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
    ) -> None:
        """Begin a run with an event, or send the event to the run: see `WorkerRuntime.start_with_event`."""
        await self._runtime.ready()
        _check_names(workflow, run_id, tags)
        check_event(event, event_id)
        code = await self._code_for(workflow, None, run_id)
        if code is None:
            await self._runtime.definitions.check_known(workflow)
        codec = self._runtime.codec_for(workflow)
        spec = await self._start_spec(workflow, code, inputs)
        # Where a start and an event are one call, a run that is there already may get the event by it.
        event_id = event_id or uuid.uuid4().hex
        message = first_message(run_id, event, event_id, code, codec, self._runtime.now(), self._runtime.caller())
        started = await self._store_start(workflow, run_id, spec, tags or {}, code, message)
        if not started.created and not started.posted:
            await self._runtime.send_event(run_id, event, event_id=event_id)

    async def _start_spec(self, workflow: str, code: Registration | None, inputs: Any) -> StartSpec:
        """Encode what a run begins with. Events of authors have code of theirs, which belongs on the event loop."""
        make = partial(start_spec, code, self._runtime.codec_for(workflow))
        return await aside_if_large(make, inputs) if isinstance(code, FlowRegistration) else make(inputs)

    async def _code_for(self, name: str, version: int | None, run_id: str | None) -> Registration | None:
        """Return the code that a run begins with. A repeated start finds its run, whatever became of the flow."""
        try:
            return await self._runtime.definitions.code_for(name, version)
        except DefinitionNotFound:
            if run_id is None or await self._runtime.store.get(run_id) is None:
                raise
            return self._runtime.codes.get(name)

    async def store(
        self, name: str, run_id: str, spec: StartSpec, tags: dict[str, str], code: Registration | None = None
    ) -> bool:
        """Store a run that begins with this. False if the same run was there already.

        `MemoryExceeded` if this process has no memory for it. Loom's own starts come another way: they wait in the
        store.
        """
        self._runtime.memory.check()
        return (await self._store_start(name, run_id, spec, tags, code)).created

    async def _store_start(
        self,
        name: str,
        run_id: str,
        spec: StartSpec,
        tags: dict[str, str],
        code: Registration | None = None,
        message: PostMessage | None = None,
    ) -> Started:
        """Store a run that begins with this, of the version whose code is given, or else of the registered one."""
        code = code if code is not None else self._runtime.codes.get(name)
        active_runs, now = self._runtime.active_runs, self._runtime.now()
        start = encode_start(replace(spec, traceparent=self._runtime.caller()))
        here = code is not None and active_runs is not None and active_runs.expect_start(run_id, code)
        downtime = await self._runtime.downtime()
        document = code.document if code is not None else None
        operation = StartRun(
            run_id,
            name,
            start,
            now,
            tags=tags,
            owner=active_runs.fence if here and active_runs is not None else None,
            downtime=downtime,
            document=document,
            message=message,
        )
        try:
            operation = self._runtime.signed_start(operation)
            started = await self._submit_start(operation)
            if started.created and here and active_runs is not None and code is not None:
                head = RunHead("running", 0, 0, now, downtime=downtime, mac=operation.mac)
                digest, text = document if document is not None else (None, None)
                row = RunRow(run_id, name, now, head, tags=tags, document=digest)
                try:
                    active_runs.begin(StoredRun(row, start, None, (), document=text), code)
                except Exception:  # noqa: BLE001 - its recovery gets it too, tells the log and parks the run
                    active_runs.notify(run_id)
        finally:
            if here and active_runs is not None:
                active_runs.start_done(run_id)
        if not started.created:
            check_same(run_id, started, name, start)
        return started

    async def _submit_start(self, operation: StartRun) -> Started:
        answer = self._runtime.committer.submit(operation)
        try:
            started = await asyncio.shield(answer)
        except asyncio.CancelledError:
            # The caller has left, but the run will be there, and perhaps ours.
            if (active_runs := self._runtime.active_runs) is not None and operation.owner is not None:
                answer.add_done_callback(lambda _done: active_runs.notify(operation.run_id))
            raise
        except StoreUnavailable as error:
            if self._runtime.active_runs is not None and error.outcome_unknown:
                self._runtime.active_runs.start_unsure(operation.run_id, is_expected=operation.owner is not None)
            raise
        assert isinstance(started, Started)
        return started

    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> RunHandle:
        """Begin a run of a workflow that was made for this runtime. It is stored soon; its handler waits for that."""
        if self._runtime.home is not None and self._runtime.home is not asyncio.get_running_loop():
            raise WorkflowRuntimeError(
                "The workflow's runtime is open on another event loop: start the run there, or by a runtime of "
                "`loom.connect_sync`, where there is no loop."
            )
        if resumed is not None:
            raise WorkflowRuntimeError("A saved context cannot go on in a store: import the run, or run it in memory.")
        name = next((code.name for code in self._runtime.codes.values() if code.workflow is workflow), None)
        if name is None:
            self._runtime.register(workflow, schedules=False)
            name = workflow.workflow_name
        spec = self._runtime.codes[name].start_spec(None, start_event, staged)
        handle = RunHandle(
            self._runtime, run_id or uuid.uuid4().hex, definition_of(workflow), self._runtime.codec_for(name), None
        )
        self._runtime.handles.keep(handle)
        handle.begin_with(self._start_later(name, handle.run_id, spec))
        return handle

    async def _start_later(self, name: str, run_id: str, spec: StartSpec) -> None:
        await self._runtime.ready()
        await self.store(name, run_id, spec, {})


def start_spec(code: Registration | None, codec: StoredEventCodec, inputs: Any) -> StartSpec:
    """Return what a run begins with: checked if its code is registered, else as it was given."""
    event = inputs if isinstance(inputs, StartEvent) else None
    if isinstance(code, FlowRegistration):
        return code.start_spec(None if event is not None else inputs, event)
    if inputs is not None and event is None and not isinstance(inputs, dict):
        raise TypeError(f"The input of a run is a dict or a StartEvent, not {type(inputs).__name__}.")
    values = inputs if isinstance(inputs, dict) else {}
    if code is not None:
        return code.start_spec(values, event)
    if event is not None:
        return StartSpec(event=codec.record(event))
    return StartSpec(inputs=codec.value(values))


def flow_start(
    workflow: str, code: Registration | None, body: Any, parameters: dict[str, Any], variables: dict[str, Any]
) -> FlowStartEvent:
    """Return the whole start of a flow, checked if the flow is registered."""
    given = {"body": body, "parameters": parameters, "variables": variables}
    if code is None:
        return FlowStartEvent(**{key: plain_value(value, key) for key, value in given.items()})
    if not isinstance(code, FlowRegistration):
        raise TypeError(f"{workflow!r} is no flow: it has no parameters and no variables.")
    return code.definition.start_event(None, given)


def first_message(
    run_id: str,
    event: Event,
    event_id: str,
    code: Registration | None,
    codec: StoredEventCodec,
    at: float,
    caller: str | None = None,
) -> PostMessage:
    """Return the event that a run has from its first moment: checked if the run's code is registered."""
    if code is not None:
        code.definition.check_target(event, None)
    record = codec.sent(event, is_known=code is not None)
    tick = TickAddEvent(at=at, event=record, accepted=True, traceparent=caller)
    return PostMessage(run_id, encode_tick(tick), at, event_id=event_id)


def check_same(run_id: str, found: Started, name: str, start: bytes) -> None:
    """Raise if a start that found its run in the store is another one than the run's."""
    if found.workflow != name:
        raise RunExists(run_id, f"as a run of {found.workflow!r}")
    if found.start != start:
        # A start that is repeated may come from another span.
        before, now = (replace(decode_start(run_id, data), traceparent=None) for data in (found.start, start))
        if encode_start(before) != encode_start(now) and (before.inputs is None or before.inputs != now.inputs):
            raise RunExists(run_id, "with another input")


def _check_names(workflow: str, run_id: str, tags: dict[str, str] | None) -> None:
    """Raise if the store cannot keep what a caller calls a run."""
    check_name("The name of a workflow", workflow)
    check_run_id(run_id)
    check_tags(tags or {})

"""Answers to queries: views of a run's state and journal, given only from what the history records.

Temporal's server hands a query that no workflow task carries straight to a worker. If the worker does not have the run
in memory, it gets the whole history of that moment: events that no task has taken yet are in it, or a task that another
worker began and may never complete. The SDK's core activates the workflow with that tail as with a task, remembers the
commands, and leaves the run in its cache. The real task then brings only what came later. So the commands follow an
order that no replay makes, and the run is stranded.

The rule here: a query that comes by itself is answered only if what the execution has taken in is recorded. Otherwise
the activation fails with `AskAgain`. Core then evicts the run, and the caller asks again.

What is recorded is read from the newest events of the history. An execution knows the number of the event that started
its last live task. The task is recorded if that event is a start of a task and the next one completes it. An activation
of a replay comes from completed tasks alone, so it only has to be in the history still: events of a task that is tried
again, or that an update opened for the moment, are shown to workers and not stored.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest

from loom.core.persistent import EMPTY_MAP
from loom.store import codec
from loom.temporal import names
from loom.temporal.payloads import (
    MAX_PAYLOAD,
    ChunkQuery,
    Chunks,
    ExecutionQuery,
    ExecutionView,
    StoreQuery,
    StoreView,
    payload_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import Client
    from temporalio.workflow import Info

    from loom.store.records import Chunk
    from loom.temporal.bridge import activations
    from loom.temporal.payloads import StartArgument
    from loom.temporal.workflow.hosted_run import HostedRun

_log = logging.getLogger("loom.temporal")

# -- answers ----------------------------------------------------------------------------------------------------------

_STACK_TRACE, _METADATA = "__stack_trace", "__temporal_workflow_metadata"


class UnknownQuery(LookupError):
    """There is no query of this name."""


def answer(
    name: str, arguments: Sequence[Payload], host: HostedRun | None, argument: StartArgument, previous: str
) -> Payload:
    """Return the answer to a query. `previous` is the Temporal run id of the execution before this one."""
    if name == names.QUERY_ORIGIN:
        return payload_of(argument)
    if name == _METADATA:
        return _metadata(argument)
    if host is None:
        raise LookupError(f"Run {argument.metadata.run_id!r} has not begun: its code is being asked for.")
    if name == names.QUERY_CHUNKS:
        return payload_of(_chunks(host, value_of(arguments[0], ChunkQuery), previous))
    found = _VIEWS.get(name)
    if found is None:
        known = ", ".join(sorted([*_VIEWS, names.QUERY_CHUNKS, names.QUERY_ORIGIN]))
        raise UnknownQuery(f"A Loom run has no query {name!r}. It knows: {known}.")
    return found(host, arguments)


def _row(host: HostedRun, _arguments: Sequence[Payload]) -> Payload:
    return payload_of(host.row())


def _state(host: HostedRun, _arguments: Sequence[Payload]) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=codec.encode_state(host.core.state))


def _chunks(host: HostedRun, query: ChunkQuery, previous: str) -> Chunks:
    """Return a part of the journal in chunks, up to the size of an answer."""
    journal = host.journal
    taken: list[Chunk] = []
    size = 0

    def is_before(last_tick: int, last_cursor: int) -> bool:
        return last_tick <= query.first_tick if query.cursor is None else last_cursor <= query.cursor

    for chunk in journal.chunks(is_before):
        if query.cursor is not None and not chunk.events:
            continue
        size += len(chunk.data)
        if taken and (len(taken) >= query.limit or size > query.max_bytes):
            break
        taken.append(chunk)
    return Chunks(tuple(taken), journal.first_tick, journal.first_cursor, journal.ticks, journal.events, previous)


def _execution(host: HostedRun, arguments: Sequence[Payload]) -> Payload:
    query = value_of(arguments[0], ExecutionQuery)
    now = host.core.fields
    worker = now.workers.get(query.step)
    execution = worker.execution(query.item) if worker is not None else None
    # A cancelled or parked run keeps its work in its state, but nobody wants it done.
    if execution is None or host.core.is_over or execution.seq != query.seq or not execution.live:
        return payload_of(ExecutionView())
    answers = now.waiting.answers.get(query.item, EMPTY_MAP)
    found = {key: answers[key] for key in sorted(answers)}
    return payload_of(ExecutionView(execution, found, query.seq in host.lock))


def _store(host: HostedRun, arguments: Sequence[Payload]) -> Payload:
    query = value_of(arguments[0], StoreQuery) if arguments else StoreQuery()
    if query.seq and host.lock.holder != query.seq:
        return payload_of(StoreView(granted=False))
    now = host.core.fields
    values = {key: now.store[key] for key in sorted(now.store)}
    answer = payload_of(StoreView(True, values, now.store_type, now.store_version))
    size = answer.ByteSize()
    return answer if size <= MAX_PAYLOAD else payload_of(StoreView(too_large=size))


def _seen(host: HostedRun, arguments: Sequence[Payload]) -> Payload:
    return payload_of(host.has_seen(json.loads(arguments[0].data)))


def _trace(host: HostedRun, _arguments: Sequence[Payload]) -> Payload:
    """Return what a run does, where Temporal's tools show the stack of a workflow."""
    now, lines = host.core.state, []
    for step in now.active_steps():
        lines.append(f"step {step} is at work")
    for report in now.waiter_reports() if host.core.is_blocked else ():
        lines.append(f"step {report.step} waits for {report.event_type}")
    return _text("\n".join(lines) or "nothing is at work")


def _metadata(argument: StartArgument) -> Payload:
    definition = {"type": argument.metadata.workflow, "queryDefinitions": [{"name": name} for name in sorted(_VIEWS)]}
    return _text({"definition": definition})


def _text(value: object) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


_VIEWS: dict[str, Callable[[HostedRun, Sequence[Payload]], Payload]] = {
    names.QUERY_ROW: _row,
    names.QUERY_STATE: _state,
    names.QUERY_EXECUTION: _execution,
    names.QUERY_STORE: _store,
    names.QUERY_SEEN: _seen,
    _STACK_TRACE: _trace,
}


# -- what is recorded -------------------------------------------------------------------------------------------------

_BY_ITSELF = "legacy_query"
"""The id that core gives to a query that no task carries."""
_PATIENCE_S = 1.0
"""Seconds that one read of a history may take. The SDK gives up an activation after two."""
_TAIL = 10
"""Events to read beyond the ones of the last task: few follow a task as a rule."""


class AskAgain(Exception):
    """The execution is ahead of its history. It leaves memory, and the same query can be asked again at once."""

    def __init__(self) -> None:
        super().__init__(
            "Please ask again: this worker has seen events of the run that no completed task has taken yet, so it "
            "drops the run from memory and reads it anew."
        )


class Intake:
    """What one execution in memory has taken in, and how much of it is known to be recorded."""

    def __init__(self) -> None:
        self.length = 0
        """The length of the history at the last activation that was no query."""
        self.is_live = False
        """Whether that activation was none of a replay."""
        self.commands = 0
        """How many commands answered the live activations since the history had another length."""
        self._recorded_at = -1
        """The length of the history up to which all is known to be recorded."""

    def note(self, act: activations.WorkflowActivation) -> bool:
        """Note an activation. Return True for a query that needs a look at the history first."""
        first = act.jobs[0] if act.jobs else None
        kind = first.WhichOneof("variant") if first is not None else None
        if first is None or kind == "remove_from_cache":
            return False
        if kind != "query_workflow":
            if act.history_length != self.length:
                self.commands = 0
            self.length, self.is_live, self._recorded_at = act.history_length, not act.is_replaying, -1
            return False
        if first.query_workflow.query_id != _BY_ITSELF:
            # The task that carries the query brought all that is here. Its answers count only if it completes.
            return False
        return self._recorded_at != act.history_length

    def is_recorded(self, act: activations.WorkflowActivation) -> None:
        """Remember that the history has all of it, so that the next query needs no look."""
        self._recorded_at = act.history_length


class RecordedHistory:
    """The histories of a worker's executions, as the server has them. Read from the threads of activations."""

    def __init__(self, client: Callable[[], Client], loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._thread = threading.get_ident()
        self.reads = 0
        """How many histories were looked at, for benches."""

    def check(self, info: Info, taken: Intake, length: int) -> None:
        """Raise `AskAgain` unless all that an execution has taken in is recorded. This blocks the calling thread.

        A worker in debug mode activates on its event loop, which cannot read there: it answers without a look.
        """
        if threading.get_ident() == self._thread:
            return
        self.reads += 1
        reading = asyncio.run_coroutine_threadsafe(self._newest(info, taken.commands + _TAIL), self._loop)
        try:
            newest = reading.result(_PATIENCE_S)
        except Exception as error:
            reading.cancel()
            _log.debug("Run %s: its history could not be read for a query.", info.workflow_id, exc_info=error)
            raise AskAgain from error
        if not has_recorded(newest, taken, length):
            raise AskAgain

    async def _newest(self, info: Info, limit: int) -> Sequence[HistoryEvent]:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=info.namespace,
            execution=WorkflowExecution(workflow_id=info.workflow_id, run_id=info.run_id),
            maximum_page_size=limit,
        )
        service = self._client().workflow_service
        found = await service.get_workflow_execution_history_reverse(request, timeout=timedelta(seconds=_PATIENCE_S))
        return found.history.events


def has_recorded(newest: Sequence[HistoryEvent], taken: Intake, length: int) -> bool:
    """Say whether a history has what an execution has taken in, by its newest events, the last one first."""
    if not newest:
        return False
    last = newest[0].WhichOneof("attributes")
    if last in names.CLOSE_EVENTS or last == "workflow_execution_continued_as_new_event_attributes":
        return True  # no task comes any more, and nothing follows from what the execution believes
    if newest[0].event_id < length:
        return False  # the events were shown and not stored; others will have their numbers
    if not taken.is_live:
        return True
    kinds = {event.event_id: event.event_type for event in newest}
    return (
        kinds.get(taken.length) == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
        and kinds.get(taken.length + 1) == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    )

"""Keeps an execution from answering queries with what its history may never record.

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
import logging
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest

from loom.temporal.rows import is_closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.client import Client
    from temporalio.workflow import Info

_log = logging.getLogger("loom.temporal")

ASK_AGAIN = "loom.AskAgain"
"""Begins the message of a refused query, and names the type of its failure."""

_BY_ITSELF = "legacy_query"
"""The id that core gives to a query that no task carries."""
_PATIENCE_S = 1.0
"""How long one read of a history may take. The SDK gives up an activation after two seconds."""
_TAIL = 10
"""How many events to read beyond those that the last task wrote: few follow a task as a rule."""


class AskAgain(Exception):
    """The execution is ahead of its history. It leaves memory, and the same query can be asked again at once."""

    def __init__(self) -> None:
        super().__init__(
            "Please ask again: this worker has seen events of the run that no completed task has taken yet, so it "
            "drops the run from memory and reads it anew."
        )


class TakenIn:
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
        """Take note of an activation. Return True for a query that needs a look at the history first."""
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

    def check(self, info: Info, taken: TakenIn, length: int) -> None:
        """Raise `AskAgain` unless all that an execution has taken in is recorded. It holds the calling thread.

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


def has_recorded(newest: Sequence[HistoryEvent], taken: TakenIn, length: int) -> bool:
    """Say whether a history has what an execution has taken in, by its newest events, the last one first."""
    if not newest:
        return False
    if is_closing(newest[0]) or newest[0].HasField("workflow_execution_continued_as_new_event_attributes"):
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

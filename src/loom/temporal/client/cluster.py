"""The calls on a cluster that the store is made of, with the cluster's errors told as the store's."""

from __future__ import annotations

import asyncio
import atexit
import logging
import time
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition, RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from loom.store.errors import StoreError, StoreUnavailable
from loom.temporal.names import SIGNAL_MAIL
from loom.temporal.payloads import MAX_PAYLOAD, payload_of, value_of
from loom.temporal.rpc import PATIENT_S, SharedQueries, ask, in_time, is_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import msgspec
    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import WorkflowExecutionDescription, WorkflowHandle, WorkflowHistory
    from temporalio.common import TypedSearchAttributes

    from loom.temporal.address import TemporalAddress

T = TypeVar("T")

_UNKNOWN_OUTCOME = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
_UNANSWERED = {*_UNKNOWN_OUTCOME, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.RESOURCE_EXHAUSTED}
_REFUSED = {RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION}
_CONNECT_S = 10.0
_USE = WorkflowIDConflictPolicy.USE_EXISTING


class NotThere(StoreError):
    """The cluster has no such execution, or the execution takes no signals any more."""


class NotOpen(StoreError):
    """The execution is closed."""


class NoAnswer(StoreUnavailable):
    """No worker has answered a query."""


class NoSuchQuery(StoreError):
    """The execution does not understand a query, or cannot answer it."""


class Cluster:
    """One namespace of a cluster, and the task queue of its runs."""

    def __init__(self, address: TemporalAddress, client: Client | None = None) -> None:
        self.address = address
        self._given = client
        self._client: Client | None = None
        self._queries = SharedQueries()

    @property
    def client(self) -> Client:
        """Return the connection; raise `StoreUnavailable` if there is none."""
        if self._client is None:
            raise StoreUnavailable(f"The store {self.address.url} is not open. Nothing was written.")
        return self._client

    async def connect(self) -> None:
        """Connect, unless a client was given. `StoreUnavailable` if that fails."""
        settle_at_exit()
        if self._given is not None:
            self._client = self._given
        if self._client is not None:
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                self._client = await Client.connect(self.address.target, **self.address.connection())
        except (RuntimeError, RPCError, TimeoutError, ValueError) as error:
            why = str(error) or f"no answer within {_CONNECT_S:g} s"
            raise StoreUnavailable(f"Temporal at {self.address.url} cannot be reached: {why}") from error

    def close(self) -> None:
        """Let go of the connection, which ends with its last use."""
        self._client = None
        self._queries.close()

    def handle(self, run_id: str, execution: str = "") -> WorkflowHandle[Any, Any]:
        """Return the handle of a run, or of one of its executions by its Temporal run id."""
        return self.client.get_workflow_handle(run_id, run_id=execution or None)

    @contextmanager
    def calling(self, what: str, *, writes: bool = False) -> Iterator[None]:
        """Raise the errors of a call as the store's: `NotThere`, `StoreUnavailable`, or a `StoreError`."""
        try:
            yield
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND and "Namespace" not in str(error):
                raise NotThere(str(error)) from error
            message = f"Temporal at {self.address.url} could not {what}: {error}"
            if error.status in _REFUSED:
                raise StoreError(message) from error
            raise StoreUnavailable(message, outcome_unknown=writes and error.status in _UNKNOWN_OUTCOME) from error

    # -- reading ------------------------------------------------------------------------------------------------------

    async def query(
        self,
        run_id: str,
        name: str,
        expected: type[T],
        argument: msgspec.Struct | str | None = None,
        *,
        execution: str = "",
        only_open: bool = False,
        patience_s: float = PATIENT_S,
    ) -> T:
        """Return a run's answer to a query. `NotThere`, `NoAnswer`, or with `only_open` `NotOpen` for a closed run."""
        payload = await self.query_payload(
            run_id, name, argument, execution=execution, only_open=only_open, patience_s=patience_s
        )
        return value_of(payload, expected)

    async def query_payload(
        self,
        run_id: str,
        name: str,
        argument: msgspec.Struct | str | None = None,
        *,
        execution: str = "",
        only_open: bool = False,
        patience_s: float = PATIENT_S,
    ) -> Payload:
        """Return a run's answer as a payload, which `query` decodes; the errors are the same."""
        payload = None if argument is None else payload_of(argument)
        arguments = [] if payload is None else [RawValue(payload)]
        reject = QueryRejectCondition.NOT_OPEN if only_open else None
        handle = self.handle(run_id, execution)
        try:
            return await self._queries.ask(
                (run_id, execution, name, only_open, patience_s, payload and payload.data),
                lambda: ask(handle, name, arguments, patience_s=patience_s, reject=reject),
            )
        except WorkflowQueryRejectedError as error:
            raise NotOpen(str(error)) from error
        except WorkflowQueryFailedError as error:
            if is_refusal(error):
                raise NoAnswer(f"No worker could answer for run {run_id!r} in time: {error}") from error
            raise NoSuchQuery(f"Run {run_id!r} cannot answer {name!r}: {error}") from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise NotThere(str(error)) from error
            if error.status in _UNANSWERED:
                raise NoAnswer(
                    f"No worker of task queue {self.address.task_queue!r} at {self.address.url} answers for run "
                    f"{run_id!r}: {error}"
                ) from error
            raise StoreUnavailable(f"Temporal at {self.address.url} could not query {run_id!r}: {error}") from error

    async def describe(self, run_id: str, *, wrote: bool = False) -> WorkflowExecutionDescription:
        """Return what the cluster knows of a run without a worker. `NotThere`.

        With `wrote` the call tells what became of a write: if it fails, the outcome of the write is unknown.
        """
        with self.calling(f"describe {run_id!r}", writes=wrote):
            return await in_time(self.handle(run_id).describe(rpc_timeout=timedelta(seconds=PATIENT_S)))

    async def first_event(self, run_id: str, execution: str = "") -> HistoryEvent:
        """Return the event that an execution began with. `NotThere`."""
        with self.calling(f"read the start of {run_id!r}"):
            events = self.handle(run_id, execution).fetch_history_events(
                page_size=1, rpc_timeout=timedelta(seconds=PATIENT_S)
            )
            event = await in_time(anext(events, None))
        if event is None:
            raise NotThere(f"{run_id!r} has no history.")
        return event

    async def last_event(self, run_id: str) -> HistoryEvent | None:
        """Return the last event of the newest execution of a run; for a closed run its close event. `NotThere`."""
        # The server could be asked for the close event, but keeps the question open while there is none.
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self.address.namespace,
            execution=WorkflowExecution(workflow_id=run_id),
            maximum_page_size=1,
        )
        with self.calling(f"read the end of {run_id!r}"):
            found = await in_time(
                self.client.workflow_service.get_workflow_execution_history_reverse(
                    request, retry=True, timeout=timedelta(seconds=PATIENT_S)
                )
            )
        return found.history.events[0] if found.history.events else None

    async def history(self, run_id: str, execution: str = "") -> WorkflowHistory:
        """Read the history of an execution; of the newest one if none is named. `NotThere`."""
        with self.calling(f"read the history of {run_id!r}"):
            return await self.handle(run_id, execution).fetch_history(rpc_timeout=timedelta(seconds=PATIENT_S))

    async def plain(self, payload: Payload) -> Payload:
        """Return a payload of a history or a memo as it was before the client's codec."""
        [value] = await self.client.data_converter.decode([payload], [RawValue])
        found: Payload = value.payload
        return found

    # -- writing ------------------------------------------------------------------------------------------------------

    async def start(
        self,
        workflow: str,
        run_id: str,
        argument: msgspec.Struct,
        *,
        memo: Mapping[str, msgspec.Struct] | None = None,
        attributes: TypedSearchAttributes | None = None,
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
        message: msgspec.Struct | None = None,
    ) -> bool:
        """Start a workflow; False if the id is taken. A `StoreError` if its argument is too large.

        With a message it is a signal-with-start: an open workflow of the id gets the message, and only a closed one
        makes it False.
        """
        payload = payload_of(argument)
        self.check_size(payload, f"What run {run_id!r} begins with")
        told = [] if message is None else [payload_of(message)]
        for each in told:
            self.check_size(each, f"What run {run_id!r} is told")
        with self.calling(f"start {run_id!r}", writes=True):
            try:
                call = self.client.start_workflow(
                    workflow,
                    RawValue(payload),
                    id=run_id,
                    task_queue=self.address.task_queue,
                    memo={name: RawValue(payload_of(value)) for name, value in (memo or {}).items()},
                    search_attributes=attributes,
                    id_reuse_policy=reuse,
                    id_conflict_policy=_USE if told else WorkflowIDConflictPolicy.FAIL,
                    start_signal=SIGNAL_MAIL if told else None,
                    start_signal_args=[RawValue(each) for each in told],
                    rpc_timeout=timedelta(seconds=PATIENT_S),
                )
                await in_time(call)
            except WorkflowAlreadyStartedError:
                return False
        return True

    async def signal(self, run_id: str, name: str, argument: msgspec.Struct) -> None:
        """Send a signal to an open run. `NotThere` if there is none, or it is closed."""
        payload = payload_of(argument)
        self.check_size(payload, f"What run {run_id!r} is told")
        with self.calling(f"tell {run_id!r} something", writes=True):
            await in_time(self.handle(run_id).signal(name, RawValue(payload), rpc_timeout=timedelta(seconds=PATIENT_S)))

    async def delete(self, run_id: str, execution: str) -> None:
        """Delete an execution. `NotThere`."""
        request = DeleteWorkflowExecutionRequest(
            namespace=self.address.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
        )
        with self.calling(f"delete {run_id!r}", writes=True):
            await in_time(
                self.client.workflow_service.delete_workflow_execution(
                    request, retry=True, timeout=timedelta(seconds=PATIENT_S)
                )
            )

    def check_size(self, payload: Payload, what: str) -> None:
        """Raise a `StoreError` for a payload that is too large: the server would refuse it without naming it."""
        if len(payload.data) > MAX_PAYLOAD:
            raise StoreError(
                f"{what} has {len(payload.data)} bytes, and Temporal takes 2 MiB at most: send a reference to it "
                "instead."
            )


def failed_tasks(description: WorkflowExecutionDescription) -> int:
    """Return how often workers have failed the next task of an execution."""
    return max(0, description.raw_description.pending_workflow_task.attempt - 1)


def is_open(description: WorkflowExecutionDescription) -> bool:
    """Say whether an execution is still open."""
    return description.status is WorkflowExecutionStatus.RUNNING


# -- the process ------------------------------------------------------------------------------------------------------

_LOGGER = "temporalio.core"


@cache
def log_with_the_rest() -> None:
    """Let the SDK's core log by Python's loggers, for all connections from now on.

    By itself core writes to the standard output, in colors, where commands have their results. Programs of Loom call
    this; other programs set up their SDK as they like.
    """
    forwarding = LogForwardingConfig(logging.getLogger(_LOGGER), append_target_to_name=False)
    told = LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding)
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=told)), error_if_already_set=False)


_PAUSE_S = 0.1
"""The pause in seconds: five times what was enough in every trial."""


@cache
def settle_at_exit() -> None:
    """Pause for a moment when this process ends, so that the SDK's threads come to rest.

    These threads let go of Python objects a moment after a call was answered. If the interpreter goes down in this
    moment the process dies (code 134 or 139), though all its work is done. The pause leaves exit code and output as
    they are.
    """
    atexit.register(time.sleep, _PAUSE_S)

"""Workflow instances as Temporal's SDK wants them: what activations and failures of all Loom workflows share."""

from __future__ import annotations

import logging
import threading
import traceback
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import CommandType
from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance
from typing_extensions import override

from loom.temporal.bridge import completions
from loom.temporal.names import ACTIVITY_CODE, ASK_AGAIN
from loom.temporal.workflow.activation import ExecutionDriver
from loom.temporal.workflow.queries import AskAgain, Intake

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.workflow import Info

    from loom.runtime.durable.registration import Registration
    from loom.temporal.bridge import activations
    from loom.temporal.workflow.reports import WorkerContext

_log = logging.getLogger("loom.temporal")


class InstanceBase(WorkflowInstance):
    """One execution in the cache of a worker. A subclass takes activations; this class handles failures."""

    def __init__(self, info: Info, check_recorded: Callable[[Info, Intake, int], None]) -> None:
        self._info = info
        self._check_recorded = check_recorded
        self._intake = Intake()
        self._thread: int | None = None

    @abstractmethod
    def take(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """Take an activation, and put what follows from it into `success`."""

    @override
    def activate(self, act: activations.WorkflowActivation) -> completions.WorkflowActivationCompletion:
        """Take an activation. An exception fails the task, which is tried again: the run stays as it was."""
        completion = completions.WorkflowActivationCompletion(run_id=act.run_id)
        completion.successful.SetInParent()
        self._thread = threading.get_ident()
        try:
            if self._intake.note(act):
                self._check_recorded(self._info, self._intake, act.history_length)
                self._intake.is_recorded(act)
            self.take(act, completion.successful)
            self._intake.commands += len(completion.successful.commands)
        except AskAgain as refusal:  # core evicts the run and passes the message on to the client
            failure = completion.failed.failure
            failure.message = f"{ASK_AGAIN}: {refusal}"
            failure.application_failure_info.type = ASK_AGAIN
            if refusal.__cause__ is not None:
                failure.cause.message = f"{type(refusal.__cause__).__name__}: {refusal.__cause__}"
        except Exception as error:  # noqa: BLE001 - the SDK allows no exception here; the server keeps the failure
            _log.exception("Run %s: an activation has failed.", self._info.workflow_id)
            failure = completion.failed.failure
            failure.message = f"{type(error).__name__}: {error}"
            failure.stack_trace = "".join(traceback.format_exception(error))
            failure.application_failure_info.type = type(error).__name__
        finally:
            self._thread = None
        return completion

    @override
    def get_serialization_context(self, command_info: Any) -> Any:
        """Return the owner of a payload, for codecs that want to know: the workflow itself."""
        del command_info
        return WorkflowSerializationContext(namespace=self._info.namespace, workflow_id=self._info.workflow_id)

    @override
    def get_external_store_context(self, command_info: Any) -> Any:
        """Return where large payloads are kept outside of histories: with the workflow."""
        del command_info
        from temporalio.converter import StorageDriverStoreContext, StorageDriverWorkflowInfo

        info = self._info
        target = StorageDriverWorkflowInfo(
            id=info.workflow_id, run_id=info.run_id, type=info.workflow_type, namespace=info.namespace
        )
        return StorageDriverStoreContext(target=target)

    @override
    def get_info(self) -> Info:
        """Return what Temporal knows of the execution."""
        return self._info

    @override
    def get_thread_id(self) -> int | None:
        """Return the thread of an activation, for the trace of one that takes too long; None between activations."""
        return self._thread


class LoomInstance(InstanceBase):
    """One execution of a run in the cache of a worker."""

    def __init__(self, info: Info, code: Registration, around: WorkerContext) -> None:
        super().__init__(info, around.check_recorded)
        self.driver = ExecutionDriver(info, code, around)

    @override
    def take(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """Let the driver take an activation."""
        self.driver.take(act, success)

    @override
    def get_serialization_context(self, command_info: Any) -> Any:
        """Return the run, and its activity, that a payload belongs to: for a payload to another run, that run."""
        info, owner = self._info, self._info.workflow_id
        if command_info is not None:
            out, kind, number = self.driver.out, command_info.command_type, command_info.command_seq
            if kind == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
                return self._activity_context(number)
            if kind == CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION and number in out.children:
                owner = out.children[number].run_id
            elif kind == CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION:
                owner = out.externals.get(number, owner)
        return WorkflowSerializationContext(namespace=info.namespace, workflow_id=owner)

    def _activity_context(self, number: int) -> Any:
        info, sent = self._info, self.driver.out.activities.get(number)
        kind, activity_id = (sent.step, str(sent.seq)) if sent is not None else (ACTIVITY_CODE, ACTIVITY_CODE)
        return ActivitySerializationContext(
            namespace=info.namespace,
            workflow_id=info.workflow_id,
            workflow_type=info.workflow_type,
            activity_type=kind,
            activity_id=activity_id,
            activity_task_queue=info.task_queue,
            is_local=False,
        )

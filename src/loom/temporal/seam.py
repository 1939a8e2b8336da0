"""The seam to Temporal's SDK: what all workflow instances of Loom have in common."""

from __future__ import annotations

import logging
import threading
import traceback
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions
from temporalio.converter import WorkflowSerializationContext
from temporalio.worker import WorkflowInstance
from typing_extensions import override

from loom.temporal.history_shield import ASK_AGAIN, AskAgain, TakenIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.workflow import Info

_log = logging.getLogger("loom.temporal")


class Seam(WorkflowInstance):
    """One execution in the cache of a worker."""

    def __init__(self, info: Info, check_recorded: Callable[[Info, TakenIn, int], None]) -> None:
        self._info = info
        self._check_recorded = check_recorded
        self._taken_in = TakenIn()
        self._thread: int | None = None

    @abstractmethod
    def take(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """Take an activation, and put what follows from it into `success`."""

    @override
    def activate(self, act: activations.WorkflowActivation) -> completions.WorkflowActivationCompletion:
        """Take an activation. Whatever goes wrong fails the task, which is tried again: the run stays as it was."""
        completion = completions.WorkflowActivationCompletion(run_id=act.run_id)
        completion.successful.SetInParent()
        self._thread = threading.get_ident()
        try:
            if self._taken_in.note(act):
                self._check_recorded(self._info, self._taken_in, act.history_length)
                self._taken_in.is_recorded(act)
            self.take(act, completion.successful)
            self._taken_in.commands += len(completion.successful.commands)
        except AskAgain as refusal:  # core evicts the run and passes the message on to the client
            failure = completion.failed.failure
            failure.message = f"{ASK_AGAIN}: {refusal}"
            failure.application_failure_info.type = ASK_AGAIN
            if refusal.__cause__ is not None:
                failure.cause.message = f"{type(refusal.__cause__).__name__}: {refusal.__cause__}"
        except Exception as error:  # noqa: BLE001 - the seam must not raise; the server keeps what it is told
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
        """Whom a payload belongs to, for codecs that want to know: the workflow itself."""
        del command_info
        return WorkflowSerializationContext(namespace=self._info.namespace, workflow_id=self._info.workflow_id)

    @override
    def get_external_store_context(self, command_info: Any) -> Any:
        """Where large payloads are kept, if they are kept elsewhere: with the workflow."""
        del command_info
        from temporalio.converter import StorageDriverStoreContext, StorageDriverWorkflowInfo

        info = self._info
        target = StorageDriverWorkflowInfo(
            id=info.workflow_id, run_id=info.run_id, type=info.workflow_type, namespace=info.namespace
        )
        return StorageDriverStoreContext(target=target)

    @override
    def get_info(self) -> Info:
        """What Temporal knows of the execution."""
        return self._info

    @override
    def get_thread_id(self) -> int | None:
        """The thread that an activation is in, for the trace of one that takes too long."""
        return self._thread

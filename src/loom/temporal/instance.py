"""The seam to Temporal: a workflow instance that is a Loom run. See `loom.temporal.driving` for what it does.

May import temporalio and the modules beside it.
"""

from __future__ import annotations

import logging
import threading
import traceback
from typing import TYPE_CHECKING, Any

from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions
from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance
from typing_extensions import override

from loom.temporal.driving import Driving

if TYPE_CHECKING:
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.workflow import Info

    from loom.runtime.durable.registered import Registered
    from loom.temporal.driving import Surroundings

_log = logging.getLogger("loom.temporal")


class LoomInstance(WorkflowInstance):
    """One run in the cache of a worker."""

    def __init__(self, info: Info, code: Registered, around: Surroundings) -> None:
        self._info = info
        self._thread: int | None = None
        self.driving = Driving(info, code, around)

    @override
    def activate(self, act: activations.WorkflowActivation) -> completions.WorkflowActivationCompletion:
        """Take an activation. Whatever goes wrong fails the task, which is tried again: the run stays as it was."""
        completion = completions.WorkflowActivationCompletion(run_id=act.run_id)
        completion.successful.SetInParent()
        self._thread = threading.get_ident()
        try:
            self.driving.take(act, completion.successful)
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
        """Which run, and which activity of it, a payload belongs to, for codecs that want to know."""
        info = self._info
        sent = self.driving.out.activities.get(command_info.command_seq) if command_info is not None else None
        if sent is None:
            return WorkflowSerializationContext(namespace=info.namespace, workflow_id=info.workflow_id)
        return ActivitySerializationContext(
            namespace=info.namespace,
            workflow_id=info.workflow_id,
            workflow_type=info.workflow_type,
            activity_type=sent.step,
            activity_id=str(sent.seq),
            activity_task_queue=info.task_queue,
            is_local=False,
        )

    @override
    def get_external_store_context(self, command_info: Any) -> Any:
        """Where large payloads are kept, if they are kept elsewhere: with the run."""
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

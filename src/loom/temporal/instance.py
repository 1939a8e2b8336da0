"""A workflow instance that is a Loom run. See `loom.temporal.driving` for what it does.

May import temporalio and the modules beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import CommandType
from temporalio.converter import ActivitySerializationContext, WorkflowSerializationContext
from typing_extensions import override

from loom.temporal.driving import Driving
from loom.temporal.names import ACTIVITY_CODE
from loom.temporal.seam import Seam

if TYPE_CHECKING:
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions
    from temporalio.workflow import Info

    from loom.runtime.durable.registered import Registered
    from loom.temporal.beginning import Surroundings


class LoomInstance(Seam):
    """One run in the cache of a worker."""

    def __init__(self, info: Info, code: Registered, around: Surroundings) -> None:
        super().__init__(info, around.check_recorded)
        self.driving = Driving(info, code, around)

    @override
    def take(self, act: activations.WorkflowActivation, success: completions.Success) -> None:
        """See `Driving`."""
        self.driving.take(act, success)

    @override
    def get_serialization_context(self, command_info: Any) -> Any:
        """Which run, and which activity of it, a payload belongs to. What another run gets belongs to that run."""
        info, owner = self._info, self._info.workflow_id
        if command_info is not None:
            out, kind, number = self.driving.out, command_info.command_type, command_info.command_seq
            if kind == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK:
                return self._activity_context(number)
            if kind == CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION and number in out.children:
                owner = out.children[number].run_id
            elif kind == CommandType.COMMAND_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION:
                owner = out.externals.get(number, owner)
        return WorkflowSerializationContext(namespace=info.namespace, workflow_id=owner)

    def _activity_context(self, number: int) -> Any:
        info, sent = self._info, self.driving.out.activities.get(number)
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

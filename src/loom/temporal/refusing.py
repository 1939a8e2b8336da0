"""Commands that the server would refuse for ever: they do not leave, and the run is told that they have failed.

What an argument weighs is the same on every replay, so it is refused there too. May import loom.core, temporalio's
messages and the payloads beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.commands import CommandRunWorker, CommandStartChild
from loom.core.records import Failure
from loom.core.ticks import TickChildEnded, TickStepResult
from loom.temporal.outgoing import growth_of
from loom.temporal.payloads import MAX_PAYLOAD

if TYPE_CHECKING:
    from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

    from loom.core.commands import WorkflowCommand
    from loom.core.ticks import WorkflowTick


def refused(command: WorkflowCommand, built: messages.WorkflowCommand, now: float) -> WorkflowTick | None:
    """What the run is told instead of a command that is too large for the server; None if it may leave."""
    if isinstance(command, CommandRunWorker):
        argument = built.schedule_activity.arguments[0]
        size = argument.ByteSize() - growth_of(argument)  # a body that an earlier version let leave must leave again
        why = _failure(f"What step '{command.step}' begins with", size)
        if why is not None:
            return TickStepResult(at=now, step=command.step, item=command.item.id, seq=command.seq, failure=why)
    elif isinstance(command, CommandStartChild):
        started = built.start_child_workflow_execution
        why = _failure(f"What the child run {command.run_id!r} begins with", started.input[0].ByteSize())
        if why is not None:
            return TickChildEnded(at=now, child=command.seq, status="failed", failure=why)
    return None


def _failure(what: str, size: int) -> Failure | None:
    if size <= MAX_PAYLOAD:
        return None
    message = (
        f"{what} has {size} bytes, and Temporal takes 2 MiB at most: pass references to data that is kept elsewhere."
    )
    return Failure("builtins.ValueError", message)

"""Updates of a run: letters whose senders wait until the run is at rest again. May import temporalio's messages.

That an update is accepted or refused is said at once, within its own activation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

from loom.temporal.names import UPDATE_TELL
from loom.temporal.payloads import Letter, payload_of, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.bridge.proto.workflow_completion import workflow_completion_pb2 as completions

    from loom.temporal.hosted import HostedRun


class Updates:
    """The updates that were accepted and are not answered yet."""

    def __init__(self) -> None:
        self._waiting: list[str] = []

    def take(
        self, job: activations.DoUpdate, success: completions.Success, why_refused: Callable[[Letter], str | None]
    ) -> Letter | None:
        """The letter of an update that is accepted; None if it is refused.

        A replay brings only what was accepted, and asks for no reason to refuse it.
        """
        answer = success.commands.add().update_response
        answer.protocol_instance_id = job.protocol_instance_id
        try:
            if job.name != UPDATE_TELL:
                raise LookupError(f"A Loom run has no update {job.name!r}; it knows {UPDATE_TELL}.")
            letter = value_of(job.input[0], Letter)
            if job.run_validator and (why := why_refused(letter)) is not None:
                raise ValueError(why)
        except (LookupError, ValueError) as error:
            answer.rejected.message = str(error)
            answer.rejected.application_failure_info.type = "loom.Refused"
            return None
        answer.accepted.SetInParent()
        self._waiting.append(job.protocol_instance_id)
        return letter

    def answers(self, host: HostedRun, sent: list[messages.WorkflowCommand]) -> list[messages.WorkflowCommand]:
        """The answers to all who wait, if the run is at rest, or goes on in another execution with what is sent."""
        continues = bool(sent) and sent[-1].HasField("continue_as_new_workflow_execution")
        if not self._waiting or not (host.is_at_rest or continues):
            return []
        waiting, self._waiting = self._waiting, []
        row = payload_of(host.row())
        answers = []
        for update in waiting:
            built = messages.WorkflowCommand()
            built.update_response.protocol_instance_id = update
            built.update_response.completed.CopyFrom(row)
            answers.append(built)
        return answers

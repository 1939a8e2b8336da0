"""How an execution ends: with the run's result, with its failure, by its cancellation, or as another execution.

What is written here can be read without a worker: see `Ending`. May import loom.core, loom.runtime, loom.store,
temporalio's messages and the payloads beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

from loom.core.commands import CommandCompleteRun, CommandFailWorkflow, CommandHalt
from loom.runtime.durable.heads import child_ended
from loom.store import codec
from loom.temporal.names import MEMO_RUN
from loom.temporal.payloads import Carried, Ending, Opening, payload_of

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload

    from loom.core.commands import TerminalCommand
    from loom.core.config import BrokerConfig
    from loom.temporal.hosted import HostedRun
    from loom.temporal.outgoing import Outgoing

MAX_PAYLOAD = 1_900_000
"""The largest result, in bytes before any codec: the server takes two MiB."""


def last_words(host: HostedRun, out: Outgoing) -> list[messages.WorkflowCommand]:
    """What a run that is over tells its parent, once."""
    if host.card.parent is None or host.has_told_parent:
        return []
    host.has_told_parent = True
    return [out.letter(host.card.parent, child_ended(host.core.look, host.card.parent_ref))]


def closing(command: TerminalCommand, host: HostedRun) -> list[messages.WorkflowCommand]:
    """The commands that end the execution."""
    ending = payload_of(_ending(host))
    if ending.ByteSize() > MAX_PAYLOAD:
        return [_too_large(host, ending.ByteSize())]
    match command:
        case CommandCompleteRun() if host.row().head.status == "completed":
            built = messages.WorkflowCommand()
            built.complete_workflow_execution.result.CopyFrom(ending)
            return [built]
        case CommandHalt(reason="cancelled"):
            return _cancelled(ending)
        case CommandFailWorkflow():
            return [failing(host.row().head.error or "The run failed.", command.failure.type, ending)]
        case _:
            return [failing(host.row().head.error or "The run failed.", "loom.RunFailed", ending)]


def _ending(host: HostedRun) -> Ending:
    return Ending(host.row(), host.journal.last_event())


def _cancelled(ending: Payload) -> list[messages.WorkflowCommand]:
    """Only new versions of the SDK can cancel with a word; the memo makes the same history with all of them."""
    built = messages.WorkflowCommand()
    built.cancel_workflow_execution.SetInParent()
    memo = messages.WorkflowCommand()
    memo.modify_workflow_properties.upserted_memo.fields[f"{MEMO_RUN}.end"].CopyFrom(ending)
    return [memo, built]


def failing(message: str, kind: str, details: Payload | None = None) -> messages.WorkflowCommand:
    """The command that fails a run, with what can be read of it afterwards."""
    built = messages.WorkflowCommand()
    failure = built.fail_workflow_execution.failure
    failure.message = message
    failure.source = "Loom"
    failure.application_failure_info.type = kind
    failure.application_failure_info.non_retryable = True
    if details is not None:
        failure.application_failure_info.details.payloads.append(details)
    return built


def _too_large(host: HostedRun, size: int) -> messages.WorkflowCommand:
    """A run whose result the server would refuse for ever fails, and says why."""
    row = host.row()
    message = (
        f"Run {row.run_id!r} has ended ({row.head.status}) with a result of {size} bytes, and Temporal takes 2 MiB at "
        "most: let it return a reference to what it made, or use Temporal's external storage."
    )
    head = replace(row.head, status="failed", error=message)
    nothing = codec.encode_chunk([], [], host.journal.ticks, host.journal.events)
    details = payload_of(Ending(replace(row, head=head), nothing))
    return failing(message, "loom.ResultTooLarge", details)


def carried_over(host: HostedRun, opening: Opening, config: BrokerConfig | None) -> Payload:
    """What the next execution begins with."""
    state = codec.encode_state(host.core.state).decode()
    ids = tuple(sorted(host.event_ids))
    carried = Carried(state, host.core.pending, host.executions + 1, host.code_since, ids)
    return payload_of(Opening(host.card, document=opening.document, config=config, carried=carried))


def continuing(host: HostedRun, out: Outgoing, argument: Payload) -> messages.WorkflowCommand:
    """The command that lets the run go on in a new execution."""
    built = messages.WorkflowCommand()
    continued = built.continue_as_new_workflow_execution
    continued.workflow_type = host.card.workflow
    continued.task_queue = out.place.task_queue
    continued.arguments.append(argument)
    for name, header in out.headers.items():
        continued.headers[name].CopyFrom(header)
    return built

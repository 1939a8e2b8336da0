"""How an execution ends: with the run's result, with its failure, by its cancellation, or as another execution.

What is written here can be read without a worker: see `Ending`. May import loom.core, loom.runtime, loom.store,
temporalio's messages and the payloads beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

from loom.core.commands import CommandCompleteRun, CommandFailWorkflow, CommandHalt
from loom.core.records import Failure
from loom.core.ticks import TickChildEnded
from loom.runtime.durable.heads import child_ended
from loom.store import codec
from loom.temporal.names import MEMO_RUN
from loom.temporal.payloads import MAX_PAYLOAD, Carried, Ending, Opening, payload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.api.common.v1 import Payload

    from loom.core.commands import CommandStartChild, TerminalCommand
    from loom.core.config import BrokerConfig
    from loom.temporal.hosted import HostedRun
    from loom.temporal.outgoing import Outgoing


def last_words(host: HostedRun, out: Outgoing, failure: Failure | None) -> list[messages.WorkflowCommand]:
    """What a run that is over tells its parent, once: how it ended, or the failure that it is ended with."""
    parent, number = host.card.parent, host.card.parent_ref
    if parent is None or host.has_told_parent:
        return []
    host.has_told_parent = True
    now = host.core.look
    if failure is None:
        return [out.letter(parent, child_ended(now, number))]
    return [out.letter(parent, TickChildEnded(at=now.at, child=number, status="failed", failure=failure))]


def ended_from_outside(run_id: str, why: str) -> Failure:
    """Say how a child ended that could not say so itself."""
    return Failure("loom.RunTerminated", f"The child run {run_id!r} was ended from outside: {why or 'nobody says why'}")


def ending_of(host: HostedRun) -> Payload:
    """What can be read of a run that is over."""
    return payload_of(Ending(host.row(), host.journal.last_event()))


def too_large(host: HostedRun, ending: Payload) -> Failure | None:
    """Why a run fails whose end the server would refuse for ever; None if it takes it."""
    size = ending.ByteSize()
    if size <= MAX_PAYLOAD:
        return None
    row = host.row()
    message = (
        f"Run {row.run_id!r} has ended ({row.head.status}) with a result of {size} bytes, and Temporal takes 2 MiB at "
        "most: let it return a reference to what it made, or use Temporal's external storage."
    )
    return Failure("loom.ResultTooLarge", message)


def closing(command: TerminalCommand, host: HostedRun, ending: Payload) -> list[messages.WorkflowCommand]:
    """The commands that end the execution."""
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


def broken_off(host: HostedRun, failure: Failure) -> messages.WorkflowCommand:
    """The command that fails a run which cannot end as it would: what can be told of it is its row."""
    row = host.row()
    head = replace(
        row.head,
        status="failed",
        error=failure.message,
        idle_since=None,
        needs_worker=False,
        waiters=b"[]",
        waiting_for=(),
    )
    nothing = codec.encode_chunk([], [], host.journal.ticks, host.journal.events)
    ending = Ending(replace(row, head=head, ended_at=head.updated_at), nothing)
    return failing(failure.message, failure.type, payload_of(ending))


def carried_over(
    host: HostedRun,
    opening: Opening,
    config: BrokerConfig | None,
    *,
    keeps_timeout: bool = False,
    children: Sequence[CommandStartChild] = (),
) -> Payload:
    """What the next execution begins with. The code at hand has no part in it: a replay may have other code.

    A flow keeps what was decided when it began, whatever code it was told of. `children` had no room here.
    """
    config = config if host.card.document is None else None
    state = codec.encode_state(host.core.state).decode()
    ids = tuple(sorted(host.event_ids))
    carried = Carried(state, host.core.pending, host.executions + 1, host.code_since, ids, tuple(children))
    keeps_timeout = keeps_timeout and config is not None
    return payload_of(
        Opening(host.card, document=opening.document, config=config, carried=carried, keeps_timeout=keeps_timeout)
    )


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

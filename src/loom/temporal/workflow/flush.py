"""What may leave a run with a workflow task, and how an execution ends or continues as new.

A flush is split before it is sent, by sizes that are the same on every replay: a server ends a run whose completion is
too large, and tells nobody before. Commands that do not fit wait for a fence, a timer that fires at once, and leave
with the task that the fence begins. A command that the server would refuse for ever does not leave: the run is told
that it has failed. What an ending execution writes can be read without a worker (`Ending`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from loom.core.commands import (
    CommandCancelChild,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartChild,
    CommandStopWork,
    CommandWarn,
)
from loom.core.records import Failure
from loom.core.ticks import TickChildEnded, TickStepResult
from loom.runtime.run_head import child_ended
from loom.store import codec
from loom.temporal.bridge import messages
from loom.temporal.names import MEMO_ENDING
from loom.temporal.payloads import MAX_PAYLOAD, CarriedState, Ending, StartArgument, payload_of
from loom.temporal.workflow.commands import growth_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.api.common.v1 import Payload

    from loom.core.commands import TerminalCommand, WorkflowCommand
    from loom.core.records import Published
    from loom.core.run import Batch
    from loom.core.state import BrokerConfig
    from loom.core.ticks import WorkflowTick
    from loom.temporal.bridge import activations
    from loom.temporal.workflow.commands import OutgoingCommands
    from loom.temporal.workflow.hosted_run import HostedRun
    from loom.temporal.workflow.policy import Policy

_LOOK_AGAIN_EVENTS = 500
"""Events after which a state is weighed again that was too large to be carried over."""

_MOST_CANCELS = 2_000
"""The number of pending requests to end other runs that the server allows. A task with more never completes.

Histories depend on it: no flush was split for it before, because no task with more was ever completed."""


class NextArgument(Protocol):
    """Makes the argument of the next execution."""

    def __call__(self, host: HostedRun, children: Sequence[CommandStartChild] = ()) -> Payload:
        """Return it, with these children that have not begun."""
        ...


class Flusher:
    """Decides for one execution which commands leave with a task."""

    def __init__(self, out: OutgoingCommands) -> None:
        self._out = out
        self.policy: Policy
        """Set before the first flush."""
        self._now = 0.0
        self._host: HostedRun | None = None
        self._task = self._used = 0
        """The workflow task, known by the length of its history, and the bytes of commands that it has."""
        self._cancels = 0
        """How many children were asked to end with that task."""
        self._is_crowded = False
        """Whether a flush was split because of them. From then on they wait until the server has room."""
        self.signals = 0
        """How many signals the execution has had."""
        self._fence: int | None = None
        self._rejected: list[WorkflowTick] = []
        """Ticks that the run gets in place of commands that cannot leave."""
        self._built: dict[int, messages.WorkflowCommand | None] = {}
        self._continues = False
        self._is_replaying = False
        self._weigh_at = 0
        self.has_grown = False
        """Whether the last flush has added to the journal."""
        self.ticks = 0
        """How many ticks it has added."""
        self.committed: list[tuple[list[Any], list[Published]]] = []
        """The ticks that it has added, with what they put on the stream, for the log."""

    def measure(self, command: WorkflowCommand) -> int:
        """Return the bytes of a command in the history, before any codec."""
        if type(command) is CommandPublishEvent:  # most are, and they weigh nothing
            return 0
        assert self._host is not None
        built = self._built[id(command)] = self._out.build(command, self._host, self._now)
        return self._out.weight(built) if built is not None else 0

    def is_fence(self, number: int) -> bool:
        """Say whether a timer that has fired was the fence; then the fence is gone."""
        if number != self._fence:
            return False
        self._fence = None
        return True

    def flush(
        self,
        host: HostedRun,
        act: activations.WorkflowActivation,
        now: float,
        next_argument: NextArgument,
    ) -> list[messages.WorkflowCommand]:
        """Return the commands that leave with this activation. `next_argument` makes the argument of the next
        execution."""
        self._host, self._now, self.has_grown, self.ticks = host, now, False, 0
        self.committed.clear()
        self._is_replaying = act.is_replaying
        if act.history_length != self._task:
            self._task, self._used, self._cancels = act.history_length, 0, 0
        self._cancels += self._out.asked_again
        self._out.asked_again = 0
        sent = self._flush(host, act, next_argument)
        while self._rejected:
            host.core.feed(*self._rejected)
            self._rejected = []
            host.core.drain()
            sent += self._flush(host, act, next_argument)
        return sent

    def _flush(
        self, host: HostedRun, act: activations.WorkflowActivation, next_argument: NextArgument
    ) -> list[messages.WorkflowCommand]:
        if self._fence is not None:
            return []
        policy, length = self.policy, act.history_length
        is_full = length >= policy.force_events or self.signals >= policy.force_signals
        self._continues = self._continues or is_full or act.continue_as_new_suggested or length >= policy.drain_events
        goes_on = self._continues and (host.is_parked or not host.core.is_over)
        if goes_on and (is_full or not self._out.activities):
            argument = self._carried(host, length, next_argument)
            if argument is not None:
                return self._continue_as_new(host, length, argument, next_argument)
        draining = goes_on and length >= policy.drain_events and length >= self._weigh_at
        return self._leave(host, 1 if draining else policy.window)

    def _leave(self, host: HostedRun, window: int) -> list[messages.WorkflowCommand]:
        published = host.core.take_published()
        batch = host.core.flush(
            self.policy.budget, window, self._out.in_flight, self._used, max_cancels=self._room_for_cancels()
        )
        self._is_crowded = self._is_crowded or batch.held == "cancels"
        self.has_grown = host.journal.add(batch, published) or self.has_grown
        self.ticks += len(batch.ticks)
        if batch.ticks and not self._is_replaying:
            self.committed.append((batch.ticks, [command.event for command in published]))
        host.follow(batch.ticks, [command.event for command in published])
        sent = self._carry_out(host, batch)
        self._built.clear()
        if batch.held == "bytes":
            self._fence, fence = self._out.fence()
            sent.append(fence)
        return sent

    def _room_for_cancels(self) -> int:
        """Return how many children may be asked to end now. The others follow when the server has told of some of
        these."""
        return max(0, _MOST_CANCELS - (self._out.cancelling if self._is_crowded else self._cancels))

    def _carry_out(self, host: HostedRun, batch: Batch) -> list[messages.WorkflowCommand]:
        sent: list[messages.WorkflowCommand] = []
        for command in batch.commands:
            built = self._built.get(id(command))
            if built is not None:
                sent += self._send(command, built)
            elif isinstance(command, CommandCompleteRun | CommandFailWorkflow | CommandHalt):
                sent += self._close(host, command)
            elif isinstance(command, CommandStopWork):
                sent += self._out.stop_activities()
            elif isinstance(command, CommandWarn):
                host.warnings.append(command.notice.message)
        return sent

    def _send(self, command: WorkflowCommand, built: messages.WorkflowCommand) -> list[messages.WorkflowCommand]:
        instead = rejected(command, built, self._now)
        if instead is not None:
            self._rejected.append(instead)
            return []
        self._used += self._out.weight(built)
        self._cancels += isinstance(command, CommandCancelChild)
        return self._out.send(command, built)

    def _close(self, host: HostedRun, command: TerminalCommand) -> list[messages.WorkflowCommand]:
        """End the execution, or let the command wait until other runs have heard the last messages.

        The server drops pending messages of a closed execution. A parked run is not over: it waits for other code.
        """
        if host.is_parked:
            return []
        ending = ending_of(host)
        failure = too_large(host, ending)
        told = last_words(host, self._out, failure)
        if self._out.externals or self._out.unwanted:
            host.core.push_back([command])
            return told
        return closing(command, host, ending) if failure is None else [broken_off(host, failure)]

    # -- going on in a new execution ----------------------------------------------------------------------------------

    def _carried(self, host: HostedRun, length: int, next_argument: NextArgument) -> Payload | None:
        """Return the argument of the next execution; None if it is too large and there is still room to go on here."""
        if length < self._weigh_at:
            return None
        argument = next_argument(host)
        return None if self._stays(host, length, argument) else argument

    def _stays(self, host: HostedRun, length: int, argument: Payload) -> bool:
        """Say whether the next argument is too large, and there is still room to go on here."""
        if argument.ByteSize() <= self.policy.carried or length >= self.policy.force_events:
            return False
        self._weigh_at = length + _LOOK_AGAIN_EVENTS
        host.warnings.append(
            f"its state has {argument.ByteSize()} bytes, and {self.policy.carried} can be carried into a new "
            f"execution: it goes on with a history of {length} events, and fails at {self.policy.force_events}"
        )
        return True

    def _continue_as_new(
        self, host: HostedRun, length: int, argument: Payload, next_argument: NextArgument
    ) -> list[messages.WorkflowCommand]:
        """Let all commands leave that the state does not have, then continue as new, with children that had no room."""
        work = host.core.drop_work()
        sent = self._leave(host, self.policy.window)
        if self._fence is not None or self._rejected or not self._out.is_heard:
            # A child run begins, or is told something: its answer comes first. By then the state may be too large.
            host.core.push_back(work)
            return sent
        if children := host.core.queued_children:
            argument = next_argument(host, children)
            if self._stays(host, length, argument):
                host.core.push_back(work)
                return [*sent, *self._leave(host, self.policy.window)]
        if argument.ByteSize() <= self.policy.carried:
            return [*sent, continuing(host, self._out, argument)]
        failure = _outgrown(host, length, argument.ByteSize(), self.policy)
        told = last_words(host, self._out, failure)
        return [*sent, *(told or [broken_off(host, failure)])]


def _outgrown(host: HostedRun, length: int, size: int, policy: Policy) -> Failure:
    message = (
        f"Run {host.metadata.run_id!r} has a state of {size} bytes and a history of {length} events: the state is too "
        f"large to be carried into a new execution ({policy.carried} bytes), and the history cannot grow any more. "
        "Keep large values outside of the run and pass references."
    )
    return Failure("loom.StateTooLarge", message)


# -- commands that do not leave ---------------------------------------------------------------------------------------


def rejected(command: WorkflowCommand, built: messages.WorkflowCommand, now: float) -> WorkflowTick | None:
    """Return the tick that the run gets in place of a command too large for the server; None if it may leave."""
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


# -- how an execution ends --------------------------------------------------------------------------------------------


def last_words(host: HostedRun, out: OutgoingCommands, failure: Failure | None) -> list[messages.WorkflowCommand]:
    """Return the message of an ended run to its parent, once: how it ended, or the failure that it is ended with."""
    parent, number = host.metadata.parent, host.metadata.parent_ref
    if parent is None or host.has_told_parent:
        return []
    host.has_told_parent = True
    now = host.core.fields
    if failure is None:
        return [out.inbox_signal(parent, child_ended(now, number))]
    return [out.inbox_signal(parent, TickChildEnded(at=now.at, child=number, status="failed", failure=failure))]


def ended_from_outside(run_id: str, why: str) -> Failure:
    """Return the failure of a child that was ended without a chance to say so itself."""
    return Failure("loom.RunTerminated", f"The child run {run_id!r} was ended from outside: {why or 'nobody says why'}")


def ending_of(host: HostedRun) -> Payload:
    """Return what can be read of a run that is over."""
    return payload_of(Ending(host.row(), host.journal.last_event()))


def too_large(host: HostedRun, ending: Payload) -> Failure | None:
    """Return why a run fails whose end the server would refuse for ever; None if the server takes it."""
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
    """Return the commands that end the execution."""
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
    """Return the commands of a cancelled run. Only new versions of the SDK can cancel with details, so the memo has
    them."""
    built = messages.WorkflowCommand()
    built.cancel_workflow_execution.SetInParent()
    memo = messages.WorkflowCommand()
    memo.modify_workflow_properties.upserted_memo.fields[MEMO_ENDING].CopyFrom(ending)
    return [memo, built]


def failing(message: str, kind: str, details: Payload | None = None) -> messages.WorkflowCommand:
    """Return the command that fails a run, with what can be read of it afterwards."""
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
    """Return the command that fails a run which cannot end as it would: only its row can be read then."""
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


# -- how it continues as new ------------------------------------------------------------------------------------------


def carried_over(
    host: HostedRun,
    argument: StartArgument,
    config: BrokerConfig | None,
    *,
    keeps_timeout: bool = False,
    children: Sequence[CommandStartChild] = (),
) -> Payload:
    """Return the argument of the next execution. The worker's code has no part in it: a replay may have other code.

    A flow keeps what was decided when it began, whatever code it was told of. `children` had no room here.
    """
    config = config if host.metadata.document is None else None
    state = codec.encode_state(host.core.state).decode()
    ids = tuple(sorted(host.event_ids))
    carried = CarriedState(state, host.core.pending, host.executions + 1, host.code_since, ids, tuple(children))
    keeps_timeout = keeps_timeout and config is not None
    return payload_of(
        StartArgument(
            host.metadata, document=argument.document, config=config, carried=carried, keeps_timeout=keeps_timeout
        )
    )


def continuing(host: HostedRun, out: OutgoingCommands, argument: Payload) -> messages.WorkflowCommand:
    """Return the command that continues the run in a new execution."""
    built = messages.WorkflowCommand()
    continued = built.continue_as_new_workflow_execution
    continued.workflow_type = host.metadata.workflow
    continued.task_queue = out.place.task_queue
    continued.arguments.append(argument)
    for name, header in out.headers.items():
        continued.headers[name].CopyFrom(header)
    return built

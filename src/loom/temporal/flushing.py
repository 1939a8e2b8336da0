"""What may leave a run with a workflow task: by bytes, by what is under way, and whether it goes on elsewhere.

A flush is split before it is sent, by sizes that are the same on every replay: a server ends a run whose completion is
too large, and tells nobody before. What does not fit waits behind a fence, a timer that fires at once, and leaves with
the task that the fence begins. May import loom.core, temporalio's messages and the modules beside it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from loom.core.commands import (
    CommandCancelChild,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandWarn,
)
from loom.core.records import Failure
from loom.temporal.closing import broken_off, closing, continuing, ending_of, last_words, too_large
from loom.temporal.refusing import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.api.common.v1 import Payload
    from temporalio.bridge.proto.workflow_activation import workflow_activation_pb2 as activations
    from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

    from loom.core.commands import CommandStartChild, TerminalCommand, WorkflowCommand
    from loom.core.reports import Published
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick
    from loom.temporal.hosted import HostedRun
    from loom.temporal.outgoing import Outgoing
    from loom.temporal.policy import Policy

_log = logging.getLogger("loom.temporal")

_LOOK_AGAIN_EVENTS = 500
"""A state that is too large to be carried over is weighed again after so many events."""

_MOST_CANCELS = 2_000
"""How many requests to end other runs the server lets an execution have under way. A task with more never completes.

Histories depend on it: no flush was split for it before, because no task with more was ever completed."""


class NextOpening(Protocol):
    """Makes what an execution to come would begin with."""

    def __call__(self, host: HostedRun, children: Sequence[CommandStartChild] = ()) -> Payload:
        """Give it with these children, which have not begun."""
        ...


class Flushing:
    """The way out of one execution."""

    def __init__(self, out: Outgoing) -> None:
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
        self._refused: list[WorkflowTick] = []
        """What the run is told instead of commands that cannot leave."""
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
        """The bytes of a command in the history, before any codec."""
        if type(command) is CommandPublishEvent:  # most are, and they weigh nothing
            return 0
        assert self._host is not None
        built = self._built[id(command)] = self._out.build(command, self._host, self._now)
        return self._out.weight(built) if built is not None else 0

    def is_fence(self, number: int) -> bool:
        """Whether a timer that has fired was the fence; then it is gone."""
        if number != self._fence:
            return False
        self._fence = None
        return True

    def flush(
        self,
        host: HostedRun,
        act: activations.WorkflowActivation,
        now: float,
        next_opening: NextOpening,
    ) -> list[messages.WorkflowCommand]:
        """What leaves with this activation. `next_opening` makes what an execution to come would begin with."""
        self._host, self._now, self.has_grown, self.ticks = host, now, False, 0
        self.committed.clear()
        self._is_replaying = act.is_replaying
        if act.history_length != self._task:
            self._task, self._used, self._cancels = act.history_length, 0, 0
        self._cancels += self._out.asked_again
        self._out.asked_again = 0
        sent = self._flush(host, act, next_opening)
        while self._refused:
            host.core.feed(*self._refused)
            self._refused = []
            host.core.drain()
            sent += self._flush(host, act, next_opening)
        return sent

    def _flush(
        self, host: HostedRun, act: activations.WorkflowActivation, next_opening: NextOpening
    ) -> list[messages.WorkflowCommand]:
        if self._fence is not None:
            return []
        policy, length = self.policy, act.history_length
        is_full = length >= policy.force_events or self.signals >= policy.force_signals
        self._continues = self._continues or is_full or act.continue_as_new_suggested or length >= policy.drain_events
        goes_on = self._continues and (host.is_parked or not host.core.is_over)
        if goes_on and (is_full or not self._out.activities):
            argument = self._carried(host, length, next_opening)
            if argument is not None:
                return self._go_on_elsewhere(host, length, argument, next_opening)
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
        """Say how many children may be asked to end now. The others are when the server has told of some of these."""
        return max(0, _MOST_CANCELS - (self._out.cancelling if self._is_crowded else self._cancels))

    def _carry_out(self, host: HostedRun, batch: Batch) -> list[messages.WorkflowCommand]:
        sent: list[messages.WorkflowCommand] = []
        for command in batch.commands:
            built = self._built.get(id(command))
            if built is not None:
                sent += self._send(command, built)
            elif isinstance(command, CommandCompleteRun | CommandFailWorkflow | CommandHalt):
                sent += self._close(host, command)
            elif isinstance(command, CommandWarn):
                host.warnings.append(command.notice.message)
        return sent

    def _send(self, command: WorkflowCommand, built: messages.WorkflowCommand) -> list[messages.WorkflowCommand]:
        instead = refused(command, built, self._now)
        if instead is not None:
            self._refused.append(instead)
            return []
        self._used += self._out.weight(built)
        self._cancels += isinstance(command, CommandCancelChild)
        return self._out.send(command, built)

    def _close(self, host: HostedRun, command: TerminalCommand) -> list[messages.WorkflowCommand]:
        """End the execution. The server forgets what a closed one had to tell others, so that must have arrived before;
        the command waits, and is made again. A parked run is not over: it waits for other code.
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

    def _carried(self, host: HostedRun, length: int, next_opening: NextOpening) -> Payload | None:
        """What the next execution begins with; None if that is too much and there is still room to go on here."""
        if length < self._weigh_at:
            return None
        argument = next_opening(host)
        return None if self._stays(host, length, argument) else argument

    def _stays(self, host: HostedRun, length: int, argument: Payload) -> bool:
        """Say whether the next execution would begin with too much, and there is still room to go on here."""
        if argument.ByteSize() <= self.policy.carried or length >= self.policy.force_events:
            return False
        self._weigh_at = length + _LOOK_AGAIN_EVENTS
        host.warnings.append(
            f"its state has {argument.ByteSize()} bytes, and {self.policy.carried} can be carried into a new "
            f"execution: it goes on with a history of {length} events, and fails at {self.policy.force_events}"
        )
        return True

    def _go_on_elsewhere(
        self, host: HostedRun, length: int, argument: Payload, next_opening: NextOpening
    ) -> list[messages.WorkflowCommand]:
        """Let everything leave that is not in the state, and then the run itself, with children that had no room."""
        work = host.core.drop_work()
        sent = self._leave(host, self.policy.window)
        if self._fence is not None or self._refused or not self._out.is_heard:
            # A child run begins, or is told something: its answer comes first. By then the state may be too large.
            host.core.push_back(work)
            return sent
        if children := host.core.queued_children:
            argument = next_opening(host, children)
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
        f"Run {host.card.run_id!r} has a state of {size} bytes and a history of {length} events: the state is too "
        f"large to be carried into a new execution ({policy.carried} bytes), and the history cannot grow any more. "
        "Keep large values outside of the run and pass references."
    )
    return Failure("loom.StateTooLarge", message)

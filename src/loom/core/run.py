"""The sans-IO run: one object that a driver feeds with ticks and relieves of commands.

The contract with a driver, in this order:

1. `feed` what happened, as often as you like; `drain` reduces it all.
2. `flush` gives a `Batch`. Save its ticks BEFORE you carry out any of its commands: the run never gets ahead of its journal.
3. Carry the commands out in order. Results come back as ticks with the command's number.
4. Commands that did not fit go back with `push_back`; the terminal command comes last and is built at the flush.

It knows no clock, no asyncio and no I/O; the asyncio control loop, the Temporal instance and the simulator drive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from loom.core.command_queue import CommandQueue
from loom.core.commands import (
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    TerminalCommand,
    WorkflowCommand,
)
from loom.core.reduce import advance, no_fields
from loom.core.state import BrokerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.draft import FieldReader
    from loom.core.planner import Planner
    from loom.core.ticks import WorkflowTick


class Batch(msgspec.Struct, frozen=True):
    """What leaves a run at once: first save the ticks, then carry out the commands."""

    ticks: list[Any]
    """The input ticks since the last flush, for the journal."""
    commands: list[WorkflowCommand]
    answers: list[Any]
    state: BrokerState
    """The state after the ticks, for the run's row and its snapshots."""


class Run:
    """A run and its queues."""

    __slots__ = ("_buffer", "_closed", "_journal", "_planner", "_queue", "_read_field", "state")

    def __init__(
        self,
        planner: Planner,
        state: BrokerState | None = None,
        read_field: FieldReader = no_fields,
        size_of: Callable[[WorkflowCommand], int] | None = None,
    ) -> None:
        self.state = state if state is not None else BrokerState()
        self._planner = planner
        self._read_field = read_field
        self._buffer: list[WorkflowTick] = []
        self._journal: list[WorkflowTick] = []
        self._queue = CommandQueue(size_of)
        self._closed = False

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, been parked included."""
        return self.state.outcome is not None

    @property
    def is_closed(self) -> bool:
        """Whether the terminal command has left."""
        return self._closed

    @property
    def has_commands(self) -> bool:
        """Whether commands are still queued, because an earlier flush had no room for them."""
        return len(self._queue) > 0

    def feed(self, tick: WorkflowTick) -> None:
        """Add an input tick to the buffer."""
        self._buffer.append(tick)

    def drain(self) -> None:
        """Reduce everything in the buffer. Ticks that others wait behind are marked, so that a replay knows it."""
        buffer, self._buffer = self._buffer, []
        last = len(buffer) - 1
        for position, tick in enumerate(buffer):
            if position < last and not tick.more:
                tick = replace(tick, more=True)  # noqa: PLW2901 - it is the same tick, marked
            self.state, commands = advance(self.state, tick, self._planner, self._read_field)
            self._journal.append(tick)
            self._queue.add(commands)
        if buffer and self._closed and self.state.outcome is None:
            # A parked run was taken up: it will end once more.
            self._closed = False

    def answer(self, reply: Any) -> None:
        """Let a reply leave with the next flush, ahead of all commands."""
        self._queue.answer(reply)

    def flush(
        self, max_bytes: int | None = None, max_in_flight: int | None = None, in_flight: int = 0
    ) -> Batch:
        """What may leave now. The terminal command is among it once nothing is queued before it."""
        outcome = self.state.outcome
        if outcome is not None and not self._closed:
            self._queue.drop_work()
        commands = self._queue.flush(max_bytes, max_in_flight, in_flight)
        if outcome is not None and not self._closed and not self._queue:
            commands.append(terminal_command(self.state))
            self._closed = True
        ticks, self._journal = self._journal, []
        return Batch(ticks, commands, self._queue.take_answers(), self.state)

    def push_back(self, commands: list[WorkflowCommand]) -> None:
        """Return commands of the last flush that could not be sent."""
        kept = [c for c in commands if not isinstance(c, TerminalCommand)]
        self._closed = self._closed and len(kept) == len(commands)
        self._queue.push_back(kept)


def terminal_command(state: BrokerState) -> TerminalCommand:
    """The command that says how a run has ended, built from what its state is now."""
    outcome = state.outcome
    if outcome is None:
        raise ValueError(f"Run {state.run_id!r} has not ended.")
    if outcome.status == "completed" and outcome.event is not None:
        return CommandCompleteRun(outcome.event)
    if outcome.status == "failed" and outcome.failure is not None:
        return CommandFailWorkflow(outcome.step, outcome.failure)
    if outcome.status in ("cancelled", "timed_out", "parked"):
        return CommandHalt(outcome.status, outcome.message)  # type: ignore[arg-type]
    raise ValueError(f"Run {state.run_id!r} has an outcome that says nothing: {outcome}")

"""The sans-IO run: one object that a driver feeds with ticks and relieves of commands.

The contract with a driver, in this order:

1. `feed` what happened, as often as you like; `drain` reduces it all. A driver that must not be held up says what it
   has patience for, and reduces a costly tick elsewhere (`detached`, `adopt`).
2. `flush` gives a `Batch`. Save its ticks BEFORE you carry out any of its commands: the run never gets ahead of its
   journal.
3. Carry the commands out in order. Results come back as ticks with the command's number.
4. Commands that did not fit go back with `push_back`; the terminal command comes last and is built at the flush.

It knows no clock, no asyncio and no I/O; the asyncio control loop, the Temporal instance and the simulator drive it.
The docstring of `loom.core` has a whole driver as an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from loom.core.command_queue import CommandQueue, Held
from loom.core.commands import (
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandStartChild,
    TerminalCommand,
    WorkflowCommand,
)
from loom.core.draft import Draft
from loom.core.patience import Patience, TooCostly
from loom.core.reducer import advance, may_go_on, no_fields, transition
from loom.core.reports import UnhandledReport
from loom.core.state import BrokerState, is_blocked
from loom.core.ticks import ControlTick, TickRetryRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.core.draft import FieldReader
    from loom.core.planner import Planner
    from loom.core.state import Outcome, RunFields
    from loom.core.ticks import WorkflowTick


_OFTEN = 4
"""A draft is frozen when its ticks have cost that part of the driver's patience."""
_LOOK_AFTER = 256
"""How many ticks a draft is carried before it is frozen, if nobody has looked meanwhile."""


class BatchLimit(NamedTuple):
    """How much a batch may hold. What comes behind waits for the next one; one tick always passes."""

    ticks: int
    weight: int
    weigh: Callable[[WorkflowTick], int]
    """Tells what a tick weighs, in the unit of `weight`."""


class Batch(msgspec.Struct, frozen=True):
    """What leaves a run at once: first save the ticks, then carry out the commands.

    The state after the ticks, for the run's row and its snapshots, is the run's until it is drained again.
    """

    ticks: list[Any]
    """The input ticks since the last flush, for the journal."""
    commands: list[WorkflowCommand]
    answers: list[Any]
    held: Held = ""
    """Why commands stayed queued, if any did."""
    published: list[int] = []
    """After each of the ticks: how many events the run had published by then."""
    weight: int = 0
    """Of its ticks, in the unit of the run's `BatchLimit`; 0 without one."""


class Transition(NamedTuple):
    """What a tick has led to."""

    tick: WorkflowTick
    state: BrokerState
    commands: list[WorkflowCommand]


class Run:
    """A run and its queues."""

    __slots__ = (
        "_base",
        "_buffer",
        "_closed",
        "_cost",
        "_draft",
        "_journal",
        "_limit",
        "_marks",
        "_planner",
        "_queue",
        "_read_field",
        "_since",
        "_weight",
        "holds_input",
    )

    def __init__(
        self,
        planner: Planner,
        state: BrokerState | None = None,
        read_field: FieldReader = no_fields,
        size_of: Callable[[WorkflowCommand], int] | None = None,
        limit: BatchLimit | None = None,
    ) -> None:
        self._planner = planner
        self._read_field = read_field
        self._base = state if state is not None else BrokerState()
        # A draft is carried through many ticks and frozen only when somebody looks, or when the run is idle.
        self._draft: Draft | None = None
        self._since: list[WorkflowTick] = []
        self._cost = 0
        """What its ticks have cost, where the driver counts."""
        self._buffer: list[WorkflowTick] = []
        self._journal: list[WorkflowTick] = []
        self._marks: list[int] = []
        """How many events were published after each tick of the journal."""
        self._queue = CommandQueue(size_of)
        self._limit = limit
        self._weight = 0
        """Of the journal since the last flush."""
        self.holds_input = False
        """Whether the last drain left ticks for the next batch: flush, save, and drain again."""
        self._closed: Outcome | None = None
        """The outcome whose terminal command has left."""

    @property
    def state(self) -> BrokerState:
        """The run as data, now."""
        if self._draft is not None and self._since:
            self._base = self._draft.freeze()
            self._since = []
        return self._base

    @property
    def planner(self) -> Planner:
        """Give what answers "what next?" for the run."""
        return self._planner

    def peek(self) -> BrokerState:
        """The same for another thread than the driver's: nothing is changed by looking."""
        draft = self._draft
        return draft.freeze() if draft is not None else self._base

    def foresee(self, pending: Sequence[WorkflowTick], state: BrokerState | None = None) -> BrokerState:
        """The state after these ticks, from the one now or from another. The run itself stays where it is."""
        state, last = self.state if state is None else state, len(pending) - 1
        for position, tick in enumerate(pending):
            marked = tick if position == last else replace(tick, more=True)
            state, _ = advance(state, marked, self._planner, self._read_field)
        return state

    def would_lose(self, state: BrokerState, tick: WorkflowTick) -> bool:
        """Whether nobody would take an event that came in this state, and there would be no room to keep it."""
        _, commands = advance(state, tick, self._planner, self._read_field)
        published = [command.event for command in commands if isinstance(command, CommandPublishEvent)]
        return any(isinstance(report, UnhandledReport) and not report.kept for report in published)

    @property
    def is_idle(self) -> bool:
        """`BrokerState.is_idle`, without making a state of the draft."""
        now = self._draft or self._base
        return now.is_running and not now.active and not now.asleep

    @property
    def is_blocked(self) -> bool:
        """`BrokerState.is_blocked`, without making a state of the draft."""
        return is_blocked(self._draft or self._base)

    @property
    def look(self) -> RunFields:
        """The run's fields as they are now, for a glance: whoever keeps it past the next drain may see it change."""
        return self._draft or self._base

    @property
    def kept(self) -> tuple[int, int]:
        """How many early events are kept for waiters to come, and how many may be."""
        now = self._draft or self._base
        return now.waiting.kept_count, now.config.keep_unclaimed

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, been parked included."""
        return (self._draft or self._base).outcome is not None

    @property
    def is_closed(self) -> bool:
        """Whether the terminal command has left."""
        return self._closed is not None

    @property
    def has_commands(self) -> bool:
        """Whether commands are still queued, because an earlier flush had no room for them."""
        return len(self._queue) > 0

    @property
    def pending(self) -> tuple[WorkflowTick, ...]:
        """What it was told and has not taken: after a drain, what a parked run could not take."""
        return tuple(self._buffer)

    def feed(self, *ticks: WorkflowTick) -> None:
        """Add input ticks to the buffer."""
        self._buffer += ticks

    def drain(self, units: int | None = None) -> bool:
        """Reduce everything in the buffer. Ticks that others wait behind are marked, so that a replay knows it.

        With a limit it stops when the batch is full; what is left is reduced after the flush, with the same marks.
        `units` is how much the driver has patience for here. False if a tick would cost more: it stays first in the
        buffer, and the driver reduces it elsewhere with `detached` and `adopt`.

        A parked run takes nothing: what comes after the tick that parked it is neither reduced nor in the journal. The
        same goes for events in the mail of a failed run, which a retry will bring again.
        If a tick cannot be reduced, which is a bug, the run is as it was before it and the error goes to the driver.
        """
        self.holds_input = False
        if not self._buffer:
            return True
        if units is None:
            return self._drain()
        with Patience(units) as patience:
            is_done = self._drain()
        self._cost += units - patience.left
        if self._cost > units // _OFTEN and self._draft is not None:
            # The way back from a tick that turns out too costly shall be short.
            self._freeze(self._draft)
        return is_done

    def _drain(self) -> bool:
        if self._draft is None:
            self._draft = Draft(self._base, self._planner, self._read_field)
        buffer, self._buffer = self._buffer, []
        draft, last = self._draft, len(buffer) - 1
        for position, tick in enumerate(buffer):
            if self._is_full:
                self._buffer += buffer[position:]
                self.holds_input = True
                break
            outcome = draft.outcome
            if outcome is not None and _waits_for_more(outcome, tick):
                self._buffer.append(tick)
                continue
            if position < last and not tick.more:
                tick = replace(tick, more=True)  # noqa: PLW2901 - it is the same tick, marked
            try:
                transition(draft, tick)
            except TooCostly:
                self._buffer = [*buffer[position:], *self._buffer]
                self._recover()
                return False
            except BaseException:
                self._buffer = [*buffer[position + 1 :], *self._buffer]
                self._recover()
                raise
            self._since.append(tick)
            self._note(tick, draft.published, draft.commands)
            draft.commands = []
        if self._closed is not None and draft.outcome is not self._closed:
            # A parked run was taken up or cancelled, or a failed one is retried: it will end once more.
            self._closed = None
        if draft.idle_since is not None or len(self._since) > _LOOK_AFTER:
            # An idle run shall take little room, and the way back shall be short.
            self._freeze(draft)
        return True

    def _freeze(self, draft: Draft) -> None:
        self._base = draft.freeze()
        self._since = []
        self._draft = None
        self._cost = 0

    def detached(self) -> Callable[[], Transition]:
        """Give the transition of the first tick in the buffer as a function that may be called in another thread.

        It touches nothing of the run, which stays before the tick until the result is adopted.
        """
        state, planner, read_field = self.state, self._planner, self._read_field
        tick = self._buffer[0] if len(self._buffer) == 1 else replace(self._buffer[0], more=True)

        def transit() -> Transition:
            return Transition(tick, *advance(state, tick, planner, read_field))

        return transit

    def adopt(self, made: Transition) -> None:
        """Take the result of `detached`: the first tick in the buffer is reduced."""
        self._buffer = self._buffer[1:]
        self._base, self._draft, self._since, self._cost = made.state, None, [], 0
        self._note(made.tick, made.state.published, made.commands)
        if self._closed is not None and made.state.outcome is not self._closed:
            self._closed = None

    def _note(self, tick: WorkflowTick, published: int, commands: list[WorkflowCommand]) -> None:
        """Note a tick that was reduced, with what it led to."""
        self._journal.append(tick)
        if self._limit is not None:
            self._weight += self._limit.weigh(tick)
        self._marks.append(published)
        self._queue.add(commands)

    @property
    def _is_full(self) -> bool:
        limit = self._limit
        if limit is None or not self._journal:
            return False
        return len(self._journal) >= limit.ticks or self._weight >= limit.weight

    def _recover(self) -> None:
        """Make the draft anew as it was before the tick that could not be reduced."""
        self._draft = draft = Draft(self._base, self._planner, self._read_field)
        for tick in self._since:
            transition(draft, tick)
        draft.commands = []

    def answer(self, reply: Any) -> None:
        """Let a reply leave with the next flush, ahead of all commands."""
        self._queue.answer(reply)

    def drop_work(self) -> list[WorkflowCommand]:
        """Take out the queued bodies and timers: the run goes on elsewhere, from its state."""
        return self._queue.drop_work()

    def take_published(self) -> list[CommandPublishEvent]:
        """The events for the stream, ahead of the next flush and whatever it holds back. See `CommandQueue`."""
        return self._queue.take_published()

    @property
    def queued_children(self) -> list[CommandStartChild]:
        """The starts of child runs that have not left: the state has the children, and not what they begin with."""
        return self._queue.queued_children()

    def flush(
        self,
        max_bytes: int | None = None,
        max_in_flight: int | None = None,
        in_flight: int = 0,
        used: int = 0,
        max_cancels: int | None = None,
    ) -> Batch:
        """What may leave now, see `CommandQueue`. The terminal command is among it once nothing is queued before it."""
        ending = self._closed is None and self.is_over
        if ending:
            self._queue.drop_work()
        commands = self._queue.flush(max_bytes, max_in_flight, in_flight, used, max_cancels)
        if ending and not self._queue:
            commands.append(terminal_command(self.state))
            self._closed = self.state.outcome
        ticks, self._journal = self._journal, []
        weight, self._weight = self._weight, 0
        marks, self._marks = self._marks, []
        return Batch(ticks, commands, self._queue.take_answers(), self._queue.held, marks, weight)

    def push_back(self, commands: list[WorkflowCommand]) -> None:
        """Return commands of the last flush that could not be sent."""
        kept: list[WorkflowCommand] = [c for c in commands if not isinstance(c, TerminalCommand)]
        if len(kept) < len(commands):
            self._closed = None
        self._queue.push_back(kept)


def terminal_command(state: BrokerState) -> TerminalCommand:
    """The command that says how a run has ended, built from what its state is now."""
    outcome = state.outcome
    if outcome is None:
        raise ValueError(f"Run {state.run_id!r} has not ended.")
    if outcome.event is not None:
        return CommandCompleteRun(outcome.event)
    if outcome.status == "failed" and outcome.failure is not None:
        return CommandFailWorkflow(outcome.step, outcome.failure)
    if outcome.status in ("cancelled", "timed_out", "parked"):
        return CommandHalt(outcome.status, outcome.message)
    raise ValueError(f"Run {state.run_id!r} has an outcome that says nothing: {outcome}")


def _waits_for_more(outcome: Outcome, tick: WorkflowTick) -> bool:
    """Whether a tick that comes after the end waits for the run to go on: with other code if parked, or by a retry."""
    if outcome.status == "failed":
        return tick.mail != 0 and not isinstance(tick, ControlTick | TickRetryRun)
    return outcome.status == "parked" and not may_go_on(outcome, type(tick))

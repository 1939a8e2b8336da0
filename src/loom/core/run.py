"""The sans-IO run: one object that a driver feeds with ticks and relieves of commands.

The contract with a driver, in this order:

1. `feed` what happened, as often as you like; `drain` reduces it all. A driver that must not be held up says how many
   units of work it has patience for (`Patience`). A planner that needs more raises `TooCostly`. The transition has then
   not happened, and the driver reduces its tick elsewhere (`detached`, `adopt`), with the same result.
2. `flush` gives a `Batch`. Save its ticks BEFORE you carry out any of its commands: the run never gets ahead of its
   journal. Only bodies that promise to have no effect outside may begin earlier (`take_bodies`).
3. Carry the commands out in order. Results come back as ticks with the command's number.
4. Commands that did not fit go back with `push_back`.

Commands wait in a `CommandQueue` until the run is blocked. The queue keeps four rules:

1. Commands keep their order. A flush is the longest prefix that fits the budget; the rest stays, in order, and leaves
   with the next flush. One command always passes, unless the budget was spent on others before.
2. The terminal command is built at the flush, after all ticks of the batch. It goes last: only when nothing is queued.
3. Answers (to queries, and that an update was accepted) use a lane of their own and never wait.
4. Cancelling something that is still queued removes both.

A run knows no clock, no asyncio and no I/O; the asyncio control loop, the Temporal instance and the simulator drive it.
The docstring of `loom.core` has a whole driver as an example.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    CommandStopWork,
    TerminalCommand,
    WorkflowCommand,
)
from loom.core.records import UnhandledReport
from loom.core.reducer import Draft, advance, may_go_on, no_fields, transition
from loom.core.state import BrokerState, is_blocked
from loom.core.ticks import ControlTick, TickRetryRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Token

    from loom.core.planner import Planner
    from loom.core.reducer import FieldReader
    from loom.core.state import Outcome, RunFields
    from loom.core.ticks import WorkflowTick

_STARTS = (CommandStartTimer, CommandStartChild)
_CANCELS = (CommandCancelTimer, CommandCancelChild)
_CANCELLING = frozenset[type]((*_CANCELS, CommandStopWork))
_WINDOWED = frozenset[type]((CommandRunWorker, CommandStartChild))
"""Commands that are under way for a while after they have left."""

Held = Literal["", "bytes", "window", "cancels"]
"""Why commands stay queued, if any do."""


class CommandQueue:
    """Outward commands on their way out."""

    __slots__ = ("_answers", "_queue", "_size_of", "held")

    def __init__(self, size_of: Callable[[WorkflowCommand], int] | None = None) -> None:
        self._queue: list[WorkflowCommand] = []
        self._answers: list[Any] = []
        self._size_of = size_of
        self.held: Held = ""
        """Why the last flush left commands in the queue."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, commands: Sequence[WorkflowCommand]) -> None:
        """Queue commands. Cancelling a timer or a child run whose start is still queued removes both.

        Stopping work removes the bodies that are queued before it.
        """
        self._queue += commands
        if not _CANCELLING.isdisjoint(map(type, commands)):
            self._withdraw({command.seq for command in commands if isinstance(command, _CANCELS)})
            for command in commands:
                if type(command) is CommandStopWork:
                    self._drop_before(command)

    def _drop_before(self, stop: CommandStopWork) -> None:
        last = next(place for place, command in enumerate(self._queue) if command is stop)
        before = [c for c in self._queue[:last] if not isinstance(c, CommandRunWorker | CommandResumeWorker)]
        self._queue = [*before, *self._queue[last:]]

    def _withdraw(self, cancelled: set[int]) -> None:
        unsent = {c.seq for c in self._queue if isinstance(c, _STARTS) and c.seq in cancelled}
        if unsent:
            self._queue = [c for c in self._queue if not (isinstance(c, _STARTS + _CANCELS) and c.seq in unsent)]

    def answer(self, reply: Any) -> None:
        """Let a reply leave with the next flush, before and regardless of everything queued."""
        self._answers.append(reply)

    def take_answers(self) -> list[Any]:
        """Return the replies so far and forget them."""
        answers, self._answers = self._answers, []
        return answers

    def drop_work(self) -> list[WorkflowCommand]:
        """Take out bodies not yet started and timers not yet armed: the run is over, or goes on elsewhere."""
        work: list[WorkflowCommand] = [c for c in self._queue if isinstance(c, CommandRunWorker | CommandStartTimer)]
        if work:
            self._queue = [c for c in self._queue if not isinstance(c, CommandRunWorker | CommandStartTimer)]
        return work

    def take_published(self) -> list[CommandPublishEvent]:
        """Take out the events for the stream, for a driver that publishes them ahead of all other commands."""
        published = [c for c in self._queue if type(c) is CommandPublishEvent]
        if published:
            self._queue = [c for c in self._queue if type(c) is not CommandPublishEvent]
        return published

    def take_bodies(self, steps: frozenset[str]) -> list[CommandRunWorker]:
        """Take out the bodies of these steps, for a driver that starts them before the batch is saved."""
        bodies = [c for c in self._queue if type(c) is CommandRunWorker and c.step in steps]
        if bodies:
            self._queue = [c for c in self._queue if type(c) is not CommandRunWorker or c.step not in steps]
        return bodies

    def queued_children(self) -> list[CommandStartChild]:
        """List the starts of child runs that have not left."""
        return [c for c in self._queue if isinstance(c, CommandStartChild)]

    def flush(
        self,
        max_bytes: int | None = None,
        max_in_flight: int | None = None,
        in_flight: int = 0,
        used: int = 0,
        max_cancels: int | None = None,
    ) -> list[WorkflowCommand]:
        """Take the longest prefix within the budget; None is no limit.

        `max_in_flight` is for bodies and child runs, of which `in_flight` are under way. `used` of the bytes were spent
        before. `max_cancels` is how many child runs this flush may cancel.
        """
        queue, self.held = self._queue, ""
        if max_bytes is None and max_in_flight is None and max_cancels is None:
            self._queue = []
            return queue
        fitting = 0
        for command in queue:
            if max_in_flight is not None and type(command) in _WINDOWED:
                if in_flight >= max(max_in_flight, 1):
                    self.held = "window"
                    break
                in_flight += 1
            if max_cancels is not None and type(command) is CommandCancelChild:
                if not max_cancels:
                    self.held = "cancels"
                    break
                max_cancels -= 1
            if max_bytes is not None:
                size = self._measure(command)
                if size and used and used + size > max_bytes:  # what weighs nothing always fits
                    self.held = "bytes"
                    break
                used += size
            fitting += 1
        self._queue = queue[fitting:]
        return queue[:fitting]

    def push_back(self, commands: list[WorkflowCommand]) -> None:
        """Return commands that could not be sent: they are first in the next flush, in the same order."""
        self._queue = [*commands, *self._queue]

    def _measure(self, command: WorkflowCommand) -> int:
        if self._size_of is None:
            raise ValueError("A byte budget needs a CommandQueue with a way to measure commands.")
        return self._size_of(command)


_OFTEN = 4
"""A draft is frozen when its ticks have cost that part of the driver's patience."""
_ANY_COST = 1 << 62
"""More units than any transition costs."""
_LOOK_AFTER = 256
"""How many ticks a draft is carried before it is frozen, if no caller has asked for the state before."""


class BatchLimit(NamedTuple):
    """How much a batch may hold. Further ticks wait for the next batch; one tick always passes."""

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
    """A tick with the state and the commands that it has led to."""

    tick: WorkflowTick
    state: BrokerState
    commands: list[WorkflowCommand]
    cost: int
    """Units that the planner counted."""


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
        "cost",
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
        # A draft is carried through many ticks and frozen only when a caller asks, or when the run is idle.
        self._draft: Draft | None = None
        self._since: list[WorkflowTick] = []
        self._cost = 0
        """What its ticks have cost, where the driver counts."""
        self.cost = 0
        """Units that planners have counted so far, for drivers that count: what a run has built costs no fewer."""
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
        """Return the run as data, as it is now."""
        if self._draft is not None and self._since:
            self._base = self._draft.freeze()
            self._since = []
        return self._base

    @property
    def planner(self) -> Planner:
        """Return the planner of the run."""
        return self._planner

    def peek(self) -> BrokerState:
        """Return the state to a thread other than the driver's: the run itself is not changed by it."""
        draft = self._draft
        return draft.freeze() if draft is not None else self._base

    def foresee(self, pending: Sequence[WorkflowTick], state: BrokerState | None = None) -> BrokerState:
        """Return the state after these ticks, from the one now or from `state`. The run itself stays where it is."""
        state, last = self.state if state is None else state, len(pending) - 1
        for position, tick in enumerate(pending):
            marked = tick if position == last else replace(tick, more=True)
            state, _ = advance(state, marked, self._planner, self._read_field)
        return state

    def would_lose(self, state: BrokerState, tick: WorkflowTick) -> bool:
        """Return whether an event that came in this state would be lost: nothing takes it and there is no room."""
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
    def fields(self) -> RunFields:
        """Return the run's fields as they are now, without making a state. They may change with the next drain."""
        return self._draft or self._base

    @property
    def kept(self) -> tuple[int, int]:
        """Return how many early events are kept, and how many may be."""
        now = self._draft or self._base
        return now.waiting.kept_count, now.config.keep_unclaimed

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended or is parked."""
        return (self._draft or self._base).outcome is not None

    @property
    def is_closed(self) -> bool:
        """Return whether the terminal command has left."""
        return self._closed is not None

    @property
    def has_commands(self) -> bool:
        """Return whether commands are still queued, because an earlier flush had no room for them."""
        return len(self._queue) > 0

    @property
    def pending(self) -> tuple[WorkflowTick, ...]:
        """Return the ticks that were fed and not reduced: after a drain, the ones that a parked run could not take."""
        return tuple(self._buffer)

    def feed(self, *ticks: WorkflowTick) -> None:
        """Add input ticks to the buffer."""
        self._buffer += ticks

    def drain(self, units: int | None = None) -> bool:
        """Reduce everything in the buffer. A tick that others follow is marked with `more`, so that a replay knows it.

        With a limit it stops when the batch is full; what is left is reduced after the flush, with the same marks.
        `units` is how much the driver has patience for here. False if a tick would cost more: it stays first in the
        buffer, and the driver reduces it elsewhere with `detached` and `adopt`.

        A parked run takes nothing: what comes after the tick that parked it is neither reduced nor in the journal. The
        same goes for events in the inbox of a failed run, which a retry will bring again.
        If a tick cannot be reduced, which is a bug, the run is as it was before it and the error goes to the driver.
        """
        self.holds_input = False
        if not self._buffer:
            return True
        if units is None:
            return self._drain()
        patience = Patience(units)
        token = _PATIENCE.set(patience)  # as `with patience` does, which would cost two calls in every step
        try:
            is_done = self._drain()
        finally:
            _PATIENCE.reset(token)
        self._cost += units - patience.left
        self.cost += units - patience.left
        if self._cost > units // _OFTEN and self._draft is not None:
            # The way back from a tick that turns out too costly shall be short.
            self._freeze(self._draft)
        return is_done

    def _drain(self) -> bool:
        if self._draft is None:
            self._draft = Draft(self._base, self._planner, self._read_field)
        buffer, self._buffer = self._buffer, []
        draft, limit, journal, last = self._draft, self._limit, self._journal, len(buffer) - 1
        for position, tick in enumerate(buffer):
            if limit is not None and journal and (len(journal) >= limit.ticks or self._weight >= limit.weight):
                self._buffer += buffer[position:]
                self.holds_input = True
                break
            outcome = draft.outcome
            if outcome is not None and _waits_for_more(outcome, tick):
                self._buffer.append(tick)
                continue
            if position < last and not tick.more:
                # It is the same tick, marked. Thousands may come at once: none of them is needed twice.
                buffer[position] = tick = replace(tick, more=True)  # noqa: PLW2901
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
            # A parked run was recovered or cancelled, or a failed one is retried: it will end once more.
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
            with Patience(_ANY_COST) as patience:
                made = advance(state, tick, planner, read_field)
            return Transition(tick, *made, _ANY_COST - patience.left)

        return transit

    def adopt(self, made: Transition) -> None:
        """Take the result of `detached`: the first tick in the buffer is reduced."""
        self._buffer = self._buffer[1:]
        self._base, self._draft, self._since, self._cost = made.state, None, [], 0
        self.cost += made.cost
        self._note(made.tick, made.state.published, made.commands)
        if self._closed is not None and made.state.outcome is not self._closed:
            self._closed = None

    def _note(self, tick: WorkflowTick, published: int, commands: list[WorkflowCommand]) -> None:
        """Queue a reduced tick for the journal, and its commands."""
        self._journal.append(tick)
        if self._limit is not None:
            self._weight += self._limit.weigh(tick)
        self._marks.append(published)
        self._queue.add(commands)

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
        """Take out the events for the stream, ahead of the next flush. See `CommandQueue`."""
        return self._queue.take_published()

    def take_bodies(self, steps: frozenset[str]) -> list[CommandRunWorker]:
        """Take out the bodies of these steps, ahead of the next flush; none if the run is over. See `CommandQueue`."""
        return [] if self.is_over else self._queue.take_bodies(steps)

    @property
    def queued_children(self) -> list[CommandStartChild]:
        """List the starts of child runs that have not left. The state has the children, but not their input."""
        return self._queue.queued_children()

    def flush(
        self,
        max_bytes: int | None = None,
        max_in_flight: int | None = None,
        in_flight: int = 0,
        used: int = 0,
        max_cancels: int | None = None,
    ) -> Batch:
        """Take what may leave now, see `CommandQueue`; also the terminal command, once nothing is queued before it."""
        ending = (self._draft or self._base).outcome is not None and self._closed is None
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
    """Build the command that says how a run has ended, from its state."""
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
    """Return whether a tick after the end waits for the run to go on: with other code if parked, or by a retry."""
    if outcome.status == "failed":
        return tick.mail != 0 and not isinstance(tick, ControlTick | TickRetryRun)
    return outcome.status == "parked" and not may_go_on(outcome, type(tick))


# What a driver bears.


class TooCostly(Exception):
    """Raised by a planner whose transition costs more than its driver has patience for."""


class Patience:
    """The units that are left for the transitions in a `with` block."""

    __slots__ = ("_token", "left")

    def __init__(self, units: int) -> None:
        self.left = units
        self._token: Token[Patience | None] | None = None

    def __enter__(self) -> Patience:
        self._token = _PATIENCE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _PATIENCE.reset(self._token)


_PATIENCE: ContextVar[Patience | None] = ContextVar("patience of the driver", default=None)


def bear(units: int) -> None:
    """Count work that is about to be done and that no budget counts. Raise `TooCostly` if no patience is left."""
    found = _PATIENCE.get()
    if found is not None:
        found.left -= units
        if found.left < 0:
            raise TooCostly


def patience() -> Patience | None:
    """Return the patience of the driver; None if it has no limit."""
    return _PATIENCE.get()

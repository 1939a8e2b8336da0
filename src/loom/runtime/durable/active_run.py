"""A stored run while it is in memory."""

from __future__ import annotations

import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from loom.core.commands import CommandCompleteRun, CommandHalt
from loom.core.run import BatchLimit, Run
from loom.core.ticks import TickAddEvent, TickStepResult
from loom.effects.off_loop import weight_of_tick
from loom.effects.spans import are_wanted
from loom.runtime.control_loop import PATIENCE
from loom.runtime.durable.adapter import DurableDecorator, Outgrown
from loom.runtime.durable.recovery import read_message
from loom.runtime.durable.registration import child_start
from loom.runtime.live_run import LiveRun
from loom.runtime.memory_adapter import MemoryAdapter
from loom.runtime.tracing import TracedBodies
from loom.steps.errors import TooMuchUnsaved
from loom.steps.events import StopEvent
from loom.store.codec import decode_start
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from loom.core.commands import TerminalCommand
    from loom.core.records import Published
    from loom.core.run import Batch
    from loom.core.state import BrokerState
    from loom.core.ticks import TickRefuseEvent, WorkflowTick
    from loom.effects.execution import StepExecution
    from loom.runtime.control_loop import LoopWatcher
    from loom.runtime.durable.adapter import Keeper
    from loom.runtime.durable.registration import Registration
    from loom.runtime.tracing import RunTrace
    from loom.steps.events import StartEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.store.operations import Result
    from loom.store.records import InboxMessage, RunRow, StoredRun


MAX_TICKS, MAX_WEIGHT = 1_000, 256 * 1024
"""What one commit takes at most: its chunk is read as a whole, by each who reads the run or its stream."""
BLOCKS_AT = 4 * MAX_WEIGHT
"""A body in a thread waits while its run has more than this to store."""
PATIENCE_S = 30.0
"""For that long. A body must not stand still for ever because the event loop waits for it."""
MAX_AHEAD = 256
"""Ticks that pure steps may be ahead of the store. Their bytes are bounded by `MAX_WEIGHT`, as in any commit."""

_LIMIT = BatchLimit(MAX_TICKS, MAX_WEIGHT, partial(weight_of_tick, limit=MAX_WEIGHT))
_UNREAD = StopEvent()
"""The end of a run whose result nobody in this process awaits: who asks for it reads the store."""
_room = threading.Condition(threading.Lock())
"""Guards what bodies of all runs have told and is not taken; notified when it is."""


class ActiveRun(LiveRun):
    """A run that this process owns. Its handlers do not hold it: they read the store."""

    __slots__ = (
        "_counted", "_durable", "_families", "_is_awaited", "_is_stalled", "_lease", "_limits", "_metrics", "_trace",
        "_unsaved", "code", "end_told", "last_message", "names", "parked", "pure", "row",
    )  # fmt: skip

    def __init__(
        self,
        stored: StoredRun,
        state: BrokerState,
        code: Registration,
        keeper: Keeper,
        watcher: LoopWatcher,
        clock: Callable[[], float],
        on_end: Callable[[LiveRun], None],
    ) -> None:
        row = stored.row
        inner = MemoryAdapter(watcher.loop, clock, row.run_id)
        core = Run(code.planner, state, code.codec.field, limit=_LIMIT)
        weight, covered = (len(stored.snapshot.data), stored.snapshot.ticks) if stored.snapshot else (0, 0)
        tail = weight, sum(len(chunk.data) for chunk in stored.chunks), covered
        timers = tuple(timer.seq for timer in stored.timers)
        outer = DurableDecorator(inner, core, row, keeper, tail, timers, code.program)
        if row.document is None:
            outer.document = code.document
        outer.may_lead = bool(code.pure)
        self._seen = True  # if it cannot be made, nobody asks for its end
        decorated = outer if keeper.decorate is None else keeper.decorate(outer)
        super().__init__(code.definition, row.run_id, core, inner, decorated, code.bindings, watcher, on_end)
        self._durable = outer
        self._limits = keeper.limits
        self._unsaved = 0
        """The weight of what bodies have told since the control loop last looked."""
        self._is_stalled = False
        """Whether a body has waited in vain for the control loop to look."""
        self._lease, self._families = keeper.lease, keeper.families
        self._is_awaited = keeper.is_awaited
        self._metrics, self._counted = keeper.metrics, keeper.metrics.of_workflow(row.workflow)
        self.code = code
        self.pure = code.pure
        self.codec = code.codec
        self._seen = True  # a caller that asks for its end reads the store
        self.row: RunRow = row
        self.last_message = max((message.id for message in stored.inbox), default=0)
        """The id of the newest inbox message that the run was told of; 0 if it was told of none."""
        self.parked: str | None = None
        """Why it stopped, if the registered code cannot go on with it; None otherwise."""
        self.end_told = False
        """The store has told of its end, which its own commit was."""
        self.names: dict[str, Registration] = {}
        self._trace: RunTrace | None = None
        if keeper.tracing is not None:
            self._trace = keeper.tracing.of_run(
                row.run_id, row.workflow, row.created_at, row.parent, _caller_of(stored)
            )
            self._bindings = TracedBodies(self._bindings, self._trace)

    @override
    def committed(self, batch: Batch) -> None:
        if self._trace is not None:
            for tick in batch.ticks:
                if type(tick) is TickAddEvent and tick.traceparent is not None:
                    self._trace.received(tick)
        super().committed(batch)

    @property
    @override
    def workflow_name(self) -> str:
        """The name that the run is stored with."""
        return self.row.workflow

    @override
    def executed(self, execution: StepExecution, result: TickStepResult | TickRefuseEvent) -> None:
        """A body has ended, and is counted unless it was refused its event."""
        if not execution.abandoned and type(result) is TickStepResult:
            self._metrics.executed(self._counted, execution, result)
        super().executed(execution, result)
        if self.pure and not execution.abandoned:
            self._go_ahead()

    # -- pure steps: see ADR 63 ---------------------------------------------------------------------------------------

    @override
    def start_ahead(self) -> None:
        """Start the bodies of pure steps that are queued: they need not wait for the commit."""
        bodies = self._core.take_bodies(self.pure)
        self._metrics.commands += len(bodies)
        for command in bodies:
            self.start(command)

    def _go_ahead(self) -> None:
        """Reduce what bodies have told while a commit is on its way, and start the pure steps that follow from it.

        What else follows stays queued in the run and leaves with the next batch, which is flushed after this commit. If
        the commit fails, the run leaves memory with all of it. A tick from outside ends the lead: the control loop
        takes it after the commit, so it does not wait for a long chain, and the run is not called idle before it.
        """
        core, durable = self._core, self._durable
        if not durable.is_on_its_way or durable.ahead >= MAX_AHEAD or core.holds_input or self._adapter.undelivered:
            return
        try:
            core.feed(*self.completed())
            if core.drain(PATIENCE):
                self.start_ahead()
        except Exception as error:  # noqa: BLE001 - it is the run's business: its control loop raises it
            self._fault = error

    @property
    def is_ahead(self) -> bool:
        """Whether pure steps have brought it further than what is stored: nobody outside may see that."""
        return bool(self.pure) and self._durable.ahead > 0

    @override
    def abort(self) -> None:
        """End the run with its event loop. An end that is ahead of the store has not happened: it is given up."""
        if self._driver is not None and self.is_ahead and not self._core.is_closed:
            self._driver.abort()
        else:
            super().abort()

    @property
    @override
    def is_idle(self) -> bool:
        """Whether only input from outside can move the run, by what is stored of it."""
        return super().is_idle and not self.is_ahead

    @property
    @override
    def status(self) -> str:
        """Tell the status of the run: the stored one while it is ahead of that, or parked."""
        return self._durable.head.status if self.is_ahead or self.parked is not None else super().status

    # -- what bodies tell ---------------------------------------------------------------------------------------------

    @property
    @override
    def max_unsaved(self) -> int | None:
        """What a run may store."""
        return self._limits.state

    @override
    def make_room(self, weight: int, *, waits: bool = True) -> None:
        """Refuse what is too much, and let a body in a thread wait until its run has stored what it was told.

        On the event loop nothing can wait: what a body does there before it awaits has room, or fails.
        """
        limit = self._limits.state
        if limit is not None and self._unsaved + weight > limit:
            raise TooMuchUnsaved(
                f"The step has {self._unsaved + weight} bytes of events and edits that are not stored yet, and "
                f"max_state allows {limit}. Await something between writes, so that they are stored, and keep large "
                "data elsewhere."
            )
        if waits and self._unsaved > BLOCKS_AT and threading.get_ident() != self._thread:
            with _room:
                taken = _room.wait_for(self._has_room, PATIENCE_S)
                self._is_stalled = not taken

    def _has_room(self) -> bool:
        return self._unsaved <= BLOCKS_AT or self._is_stalled or self._done

    @override
    def take(self, tick: WorkflowTick) -> None:
        """Let the control loop have what a body did; safe from any thread."""
        with _room:
            self._unsaved += weight_of_tick(tick, MAX_WEIGHT)
        super().take(tick)

    @override
    def completed(self) -> list[WorkflowTick]:
        """What bodies did since the last call."""
        ticks = super().completed()
        if self._unsaved:
            self._all_taken()
        return ticks

    @override
    def stop_bodies(self) -> None:
        """Cancel the bodies at work. What they did to the store and is not reduced does not count: it is read anew."""
        self._all_taken()
        super().stop_bodies()
        self._store = None

    @override
    async def stop(self) -> None:
        """Cancel the bodies that are left. None of them waits for room any more."""
        self._all_taken()
        await super().stop()

    def _all_taken(self) -> None:
        with _room:
            self._unsaved, self._is_stalled = 0, False
            _room.notify_all()

    def begin_with(self, ticks: list[WorkflowTick]) -> None:
        """Set the run in motion with these ticks."""
        self._core.feed(*ticks)
        self._core.drain(PATIENCE)
        self.begin()

    def deliver(self, messages: list[InboxMessage]) -> None:
        """Tell the run of its inbox messages, in order, each one once. What a decorator of it raises ends it here."""
        try:
            now = self.now()
            for message in messages:
                if message.id > self.last_message:
                    self.last_message = message.id
                    self.notify(read_message(self.run_id, message, now))
        except CorruptRecord:
            raise
        except Exception as error:  # noqa: BLE001 - a decorator may raise anything
            self.break_off(error)

    def hears_of_its_end(self) -> bool:
        """Say whether this is the first news of the run since its end, which it has stored itself."""
        if self.end_told or not self.is_over:
            return False
        self.end_told = True  # what comes next is something else
        return True

    @property
    def is_at_rest(self) -> bool:
        """Whether it could be released: nothing executes, and nothing is on its way to it."""
        adapter = self._adapter
        # While nobody waits for news, a commit is under way.
        return self._core.is_blocked and adapter.waiter is not None and not (self._lane or adapter.undelivered)

    @property
    def holds_body(self) -> bool:
        """Say whether a body of an author's is suspended here. Actions of flows have no code before their waits."""
        if self.code.document is not None:
            return False
        workers = self._core.fields.workers.values()
        return any(execution.live for worker in workers for execution in worker.suspended.values())

    @property
    def has_children(self) -> bool:
        """Whether it waits for child runs."""
        return bool(self._core.fields.children)

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end, though that may not be stored yet."""
        return self._core.is_over

    @property
    def has_ended(self) -> bool:
        """Say whether its end is stored."""
        return self._durable.ending is not None

    @property
    def is_marked(self) -> bool:
        """Say whether processes have died with it, which its next result makes good."""
        return self._durable.is_marked

    @is_marked.setter
    def is_marked(self, marked: bool) -> None:
        self._durable.is_marked = marked

    @property
    def commit_under_way(self) -> asyncio.Future[Result] | None:
        """A commit that is on its way to the store. If the run leaves memory now, it still gets there."""
        commit = self._durable.under_way
        return commit if commit is not None and not commit.done() else None

    def ended_as(self) -> tuple[RunRow, Published | None] | None:
        """Its row as its end has left it in the store, and the last thing on its stream; None if it has not ended.

        Nor if its past was pruned since, which the row would have to say.
        """
        head = self._durable.ending
        if head is None or self._durable.has_pruned:
            return None
        return replace(self.row, head=head, owner=None, ended_at=head.updated_at), self._durable.last

    def row_left(self) -> RunRow:
        """Its row as its last commit here has left it. Waiters are in it only if that commit has changed them."""
        return replace(self.row, head=self._durable.head)

    def clock_changed(self) -> None:
        """The clock was set, or the machine slept."""
        self._adapter.clock_changed()

    def next_due(self) -> float | None:
        """When the first of its timers is due."""
        return min((timer.due for timer in self._core.fields.timers.values()), default=None)

    @property
    @override
    def store(self) -> InMemoryStateStore[Any]:
        """The run's store, read from its state when it is first needed."""
        if self._store is None:
            state = self._core.state
            self.adopt_store(self.code.codec.store_from(state.store, state.store_type, state.store_version))
        assert self._store is not None
        return self._store

    @override
    def _ended(self, command: TerminalCommand | None, error: BaseException | None) -> None:
        if isinstance(command, CommandHalt) and command.reason == "parked":
            self.parked = command.message
        elif command is not None and self._trace is not None:
            self._trace.ended(self._core.fields)
        elif isinstance(error, Outgrown):
            self.parked = str(error)
            # The frames hold the run, which holds the error: all that the run had made would stay until the next full
            # collection of garbage. Other errors come from tasks that go on, whose frames must be left alone.
            traceback.clear_frames(error.__traceback__)
        super()._ended(command, error)

    @override
    def _ending_of(self, command: TerminalCommand) -> StopEvent | BaseException:
        """Give the end of the run. Its result may be large, so it is made only for a handler that awaits it."""
        if isinstance(command, CommandCompleteRun) and not (self._is_awaited(self.run_id) or are_wanted()):
            return _UNREAD
        return super()._ending_of(command)

    @override
    def lease(self) -> Awaitable[None] | None:
        """What a body waits for if this process may have lost the run: see `Lease`.

        A body that may be ahead of the store first waits until all that it follows from is durable.
        """
        return self._lease_after(self._durable.barrier()) if self.is_ahead else self._lease.held()

    async def _lease_after(self, barrier: asyncio.Future[None]) -> None:
        await barrier
        if (lease := self._lease.held()) is not None:
            await lease

    @override
    def admission(self) -> Awaitable[None] | None:
        """What a body waits for before it starts a child run: see `Families`."""
        return self._families.admission(self.row)

    @override
    def is_stuck(self) -> None:
        """Its commits tell that: see `DurableDecorator`."""

    @override
    def start_of(self, workflow: Any, inputs: dict[str, Any], start_event: StartEvent | None) -> tuple[str, Any]:
        """What a child run begins with: it is stored, so that any process may recover it."""
        name = workflow if isinstance(workflow, str) else workflow.workflow_name
        return name, child_start(name, self.names.get(name), self.codec, inputs, start_event)


def _caller_of(stored: StoredRun) -> str | None:
    """Return the `traceparent` of who asked for a run. A fork has the start of another run, whose caller is not its."""
    if b"traceparent" not in stored.start or stored.row.forked_from is not None:
        return None  # most starts have none, and need not be read once more
    return decode_start(stored.row.run_id, stored.start).traceparent

"""A run that lives in this process: its loop, its stream, its store and its end.

It is what handlers and contexts talk to; its bodies are in `bodies`. May import loom.core, loom.effects and loom.steps.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any, Protocol

from loom.core.commands import CommandPublishEvent
from loom.core.ticks import Source, TickAddEvent, TickCancelRun, TickEditStore
from loom.effects import spans
from loom.effects.convert import published_event
from loom.effects.execution import StepExecution
from loom.runtime import lifecycle_log
from loom.runtime.bodies import RunBodies
from loom.runtime.control_loop import PATIENCE, ControlLoop
from loom.runtime.driver import Driver
from loom.runtime.endings import ending_of
from loom.runtime.logs import about
from loom.runtime.planners import program_in
from loom.runtime.stream_ends import is_ending, is_internal
from loom.runtime.stuck import StuckReason
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from loom.steps.events import Event, StopEvent
from loom.steps.ports import current_execution
from loom.steps.state_store import InMemoryStateStore
from loom.steps.texts import message_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import CommandCancelChild, CommandStartChild, TerminalCommand
    from loom.core.run import Batch, Run
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.effects.body import Body
    from loom.runtime.guard import Guard
    from loom.runtime.memory_adapter import MemoryAdapter
    from loom.steps.state_store import StoreEdit
    from loom.steps.workflow import Workflow

_log = logging.getLogger("loom.run")


class Children(Protocol):
    """Runs the child runs of a run in memory."""

    def start_child(self, parent: LiveRun, command: CommandStartChild) -> None:
        """Begin a child, and tell its parent when it has ended."""
        ...

    def cancel_child(self, run_id: str) -> None:
        """Cancel a child."""
        ...


class LiveRun(RunBodies):
    """One run in memory."""

    __slots__ = (
        "__weakref__", "_adapter", "_core", "_done", "_driver", "_ending", "_on_end", "_seen", "_store", "children",
        "first_tick", "held_back",
    )  # fmt: skip

    def __init__(
        self,
        workflow: Workflow,
        run_id: str,
        core: Run,
        adapter: MemoryAdapter,
        outer: InternalRunAdapter,
        bindings: dict[str, Body],
        guard: Guard,
        on_end: Callable[[LiveRun], None],
    ) -> None:
        super().__init__(workflow, run_id, outer, bindings, guard)
        self._core = core
        self._adapter = adapter
        self._on_end = on_end
        self._store: InMemoryStateStore[Any] | None = None
        self._driver: Driver[TerminalCommand] | None = None
        self._ending: StopEvent | BaseException | None = None
        self._done = False
        self._seen = False
        self.children: Children | None = None
        """Who runs the child runs that its bodies ask for."""
        self.first_tick: Callable[[], WorkflowTick] | None = None
        """What the run begins with, until it does."""
        self.held_back: Callable[[], bool] | None = None
        """Takes the run out of those that its workflow's limit holds back; False if its turn has come meanwhile."""

    # -- the run and its end ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Set the run in motion."""
        if self.first_tick is not None:
            # Its state is there at once, for whoever looks at it or saves it before its loop has turned.
            self._core.feed(self.first_tick())
            self._core.drain(PATIENCE)
            self.first_tick = None
        drive = ControlLoop(self._core, self._outer, self).drive
        driven = spans.around_run(self.workflow, drive, self._ending_of) if spans.are_wanted() else drive()
        self._driver = Driver(driven, self._adapter, self.loop, self._ended)
        self._driver.begin()

    def begin_in_turn(self) -> None:
        """A run that was held back begins. If it cannot, whoever awaits it learns why."""
        self.held_back = None
        if self._done:
            return
        try:
            self.begin()
        except Exception as error:  # noqa: BLE001 - the caller is another run, at its end
            self._ended(None, error)

    def abort(self) -> None:
        """The event loop is about to end, and the run with it. One that is over needs no help to end."""
        if self._driver is None:
            self._ended(None, asyncio.CancelledError())
        elif not self._core.is_over:
            self._driver.abort()

    def _ended(self, command: TerminalCommand | None, error: BaseException | None) -> None:
        """The control loop has stopped: because the run is over, or because something went wrong with the loop."""
        if self._done:
            return
        self._driver = None
        self._ending = error if command is None else self._ending_of(command)
        self._done = True
        try:
            self._on_end(self)
        finally:
            self._adapter.mark_closed()

    def _ending_of(self, command: TerminalCommand) -> StopEvent | BaseException:
        """What the run has come to. A result that its class does not take back is an error for who awaits it."""
        try:
            return ending_of(command, self.convert)
        except Exception as error:  # noqa: BLE001 - the class of the result is the author's code
            told = message_of(error)
            _log.error("The result of run %s cannot be read: %s", self.run_id, told, extra=about(self.run_id))
            return error

    @property
    def state(self) -> BrokerState:
        """The run as data, now."""
        return self._core.state

    @property
    def is_idle(self) -> bool:
        """Whether only input from outside can move the run: nothing is under way to it either."""
        return not self._done and self._core.is_idle and not self._lane and not self._adapter.undelivered

    @property
    def status(self) -> str:
        """Tell the status of the run. Looking at it does not count as asking for its result."""
        outcome = self._core.look.outcome
        if outcome is not None:
            return outcome.run_status
        return "failed" if self._done else "running"

    def state_to_save(self) -> BrokerState:
        """The run as data, with all that it was told but has not come to yet."""
        if self._done:
            return self.state
        if self._outer is self._adapter:
            # The order is fixed now, so that what is saved and what will happen are the same.
            self._lane += self._adapter.take_mail()
        start = [self.first_tick()] if self.first_tick is not None else []
        return self._core.foresee([*start, *self._lane])

    @property
    def is_done(self) -> bool:
        """Whether the run has ended."""
        return self._done

    @property
    def journal(self) -> list[WorkflowTick]:
        """The run's ticks so far."""
        return self._adapter.journal

    def ending(self) -> StopEvent | BaseException | None:
        """How the run ended; None while it goes on."""
        self._seen = self._seen or self._done
        return self._ending

    async def outcome(self) -> StopEvent:
        """Wait for the end; raise what the run failed with."""
        await self.wait_done()
        self._seen = True
        if isinstance(self._ending, BaseException):
            raise self._ending
        assert self._ending is not None
        return self._ending

    async def wait_done(self) -> None:
        """Wait until the run has ended, in whatever way."""
        while not self._done:
            await self._adapter.closed()

    async def wait_news(self) -> None:
        """Wait until the journal or the stream has grown, or the run has ended."""
        await self._adapter.news()

    def __del__(self) -> None:
        if (
            not self._seen
            and isinstance(self._ending, Exception)
            and not isinstance(self._ending, WorkflowCancelledByUser)
        ):
            message = "Run %s failed and nobody asked for its result."
            _log.error(message, self.run_id, exc_info=self._ending, extra=about(self.run_id))

    # -- from outside -------------------------------------------------------------------------------------------------

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run."""
        if self._done:
            raise WorkflowRuntimeError(f"Run {self.run_id} has ended: it takes no event any more.")
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent into a run, not {type(event).__name__}.")
        self.workflow._check_target(event, step)
        tick = TickAddEvent(at=self.now(), event=self.convert.record(event), step=step, waiter_id=waiter_id)
        self._refuse_if_full(tick)
        self.on_loop(self._outer.send_event, tick)

    def tell(self, tick: WorkflowTick) -> None:
        """Let a tick from outside reach the run."""
        self._outer.send_event(tick)

    def _refuse_if_full(self, tick: TickAddEvent) -> None:
        """Raise if an event could only be kept for later, and no more can be kept."""
        kept, limit = self._core.kept
        if kept + self._adapter.undelivered + len(self._lane) < limit:
            return
        if threading.get_ident() == self._thread:
            self._adapter.wake(at_once=True)
            state = self.state_to_save()
        else:
            state = self._core.peek()
        if self._core.would_lose(state, tick):
            raise WorkflowRuntimeError(
                f"Run {self.run_id} already keeps {state.waiting.kept_count} events that nobody has asked for: "
                f"{tick.event.kind.label} is refused."
            )

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run. In memory, it is as safe as it gets at once."""
        self.send(event, step, waiter_id)

    def request_cancel(self) -> None:
        """Ask the run to stop, without waiting."""
        if self._done:
            return
        self.on_loop(self._cancel)

    def _cancel(self) -> None:
        tick = TickCancelRun(at=self.now())
        if self.held_back is not None and self.held_back():
            # It begins only to end: with both ticks reduced at once, none of its bodies runs.
            self.begin_in_turn()
            self._core.feed(tick)
        else:
            self._outer.send_event(tick)

    async def cancel(self, timeout_s: float | None) -> None:
        """Ask the run to stop and wait for its end, at most so long."""
        self._seen = True
        self.request_cancel()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_done()
        except TimeoutError:
            message = "Run %s has not ended %s s after it was cancelled."
            _log.warning(message, self.run_id, timeout_s, extra=about(self.run_id))

    async def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """The stream behind a cursor, until its first ending."""
        stream = self._adapter.stream
        position = after + 1
        while True:
            while position < len(stream):
                published = stream[position]
                if internal or not is_internal(published):
                    event = published_event(published, self.convert)
                    yield position, event
                if is_ending(published):
                    self._seen = True
                    return
                position += 1
            if self._done:
                return
            await self._adapter.news()

    # -- the log ------------------------------------------------------------------------------------------------------

    def committed(self, batch: Batch) -> None:
        """Tell the log what a batch brought: it is durable now."""
        if lifecycle_log.has_news(batch.ticks):
            log = lifecycle_log.LifecycleLog(self.run_id, self.workflow_name, program_in(self._core.planner))
            published = [command.event for command in batch.commands if type(command) is CommandPublishEvent]
            now = self._core.look
            log.committed(batch.ticks, published, now)
            if now.outcome is not None:
                log.ended(now.outcome)

    def is_stuck(self) -> None:
        """Tell the operator that the run is idle and waits for nothing."""
        reason = StuckReason()
        reason.follow(self._adapter.journal, self._adapter.stream)
        lifecycle_log.stuck(self.run_id, self.workflow_name, reason.text)

    # -- child runs ---------------------------------------------------------------------------------------------------

    def start_child(self, command: CommandStartChild) -> None:
        """Begin a child run."""
        if self.children is not None:
            self.children.start_child(self, command)

    def cancel_child(self, command: CommandCancelChild) -> None:
        """Cancel a child run."""
        if self.children is not None:
            self.children.cancel_child(command.run_id)

    # -- the store ----------------------------------------------------------------------------------------------------

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The run's store."""
        if self._store is None:
            self.adopt_store(InMemoryStateStore(state_type=self.workflow._get_state_type()))
        assert self._store is not None
        return self._store

    def adopt_store(self, store: InMemoryStateStore[Any]) -> None:
        """Take a store over: from now on its edits are the run's."""
        store.on_edit = self._edited
        self._store = store

    def _edited(self, edit: StoreEdit) -> bool:
        """Tell the run about an edit. False if an interrupted run of the same execution had made it already."""
        changed, removed, state_type = self.convert.store_edit(edit)
        # A store may be locked while it is edited: nobody waits for anything here.
        self.make_room(sum(len(text) for text in changed.values() if type(text) is str), waits=False)
        execution = current_execution.get()
        source: Source | None = None
        writes = -1
        if isinstance(execution, StepExecution) and execution.host is self:
            source, writes = execution.next_source(), execution.writes
            if execution.is_repeated(source):
                return False
        tick = TickEditStore(
            at=self.now(),
            base_version=edit.base_version,
            changed=changed,
            removed=removed,
            source=source,
            state_type=state_type,
            writes=writes,
        )
        if not self._done:
            self.report(tick)
        return True

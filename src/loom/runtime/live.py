"""A run that lives in this process: its loop, its bodies, its stream, its store and its end.

It is what handlers and contexts talk to. May import loom.core, loom.effects and loom.steps.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from loom.core.ticks import Source, TickAddEvent, TickCancelRun, TickEditStore
from loom.effects import spans
from loom.effects.convert import published_event, record_of
from loom.effects.execution import StepExecution
from loom.runtime.control_loop import ControlLoop
from loom.runtime.driver import Driver
from loom.runtime.endings import ending_of, is_ending, is_internal
from loom.runtime.saving import foreseen
from loom.steps.context import Context
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError
from loom.steps.events import Event, StopEvent
from loom.steps.ports import current_execution
from loom.steps.state_store import InMemoryStateStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import CommandResumeWorker, CommandRunWorker, TerminalCommand
    from loom.core.run import Run
    from loom.core.state import BrokerState
    from loom.core.ticks import TickStepResult, WorkflowTick
    from loom.effects.binding import StepBinding
    from loom.runtime.memory_adapter import MemoryAdapter
    from loom.steps.state_store import StoreEdit
    from loom.steps.workflow import Workflow

GRACE_S = 0.5
"""How long bodies may take to end when their run has."""

_log = logging.getLogger("loom.run")


class LiveRun:
    """One run in memory."""

    __slots__ = (
        "__weakref__", "_adapter", "_bindings", "_core", "_done", "_driver", "_ending", "_executions", "_lane",
        "_on_end", "_outer", "_seen", "_store", "_thread", "_wake", "first_tick", "held_back", "loop", "now", "pull",
        "run_id", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        workflow: Workflow,
        run_id: str,
        core: Run,
        adapter: MemoryAdapter,
        outer: InternalRunAdapter,
        bindings: dict[str, StepBinding],
        on_end: Callable[[LiveRun], None],
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.pull: Callable[[], Awaitable[WorkflowTick]]
        self._core = core
        self._adapter = adapter
        self._outer = outer
        self.now = outer.get_now
        self._bindings = bindings
        self._on_end = on_end
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lane: list[WorkflowTick] = []
        self._executions: dict[int, StepExecution] = {}
        self._store: InMemoryStateStore[Any] | None = None
        self._driver: Driver[TerminalCommand] | None = None
        self._wake: Callable[[bool], None] | None = None
        self._ending: StopEvent | BaseException | None = None
        self._done = False
        self._seen = False
        self.first_tick: Callable[[], WorkflowTick] | None = None
        """What the run begins with, until it does."""
        self.held_back: Callable[[], None] | None = None
        """Begins the run out of turn, while its workflow's limit holds it back."""

    # -- the run and its end ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Set the run in motion."""
        if self.first_tick is not None:
            # Its state is there at once, for whoever looks at it or saves it before its loop has turned.
            self._core.feed(self.first_tick())
            self._core.drain()
            self.first_tick = None
        drive = ControlLoop(self._core, self._outer, self).drive()
        if spans.are_wanted():
            drive = spans.around_run(self.workflow, drive, ending_of)
        self._driver = Driver(drive, self._adapter, self.loop, self._ended)
        self._driver.begin()

    def abort(self) -> None:
        """The event loop is about to end, and the run with it."""
        if self._driver is not None:
            self._driver.abort()

    def _ended(self, command: TerminalCommand | None, error: BaseException | None) -> None:
        """The control loop has stopped: because the run is over, or because something went wrong with the loop."""
        self._driver = None
        self._ending = error if command is None else ending_of(command)
        self._done = True
        self._on_end(self)
        self._adapter.mark_closed()

    @property
    def state(self) -> BrokerState:
        """The run as data, now."""
        return self._core.state

    def state_to_save(self) -> BrokerState:
        """The run as data, with all that it was told but has not come to yet."""
        if self._done:
            return self.state
        if self._outer is self._adapter:
            # The order is fixed now, so that what is saved and what will happen are the same.
            self._lane += self._adapter.take_mail()
        start = [self.first_tick()] if self.first_tick is not None else []
        return foreseen(self.state, [*start, *self._lane])

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
            _log.error("Run %s failed and nobody asked for its result.", self.run_id, exc_info=self._ending)

    # -- from outside -------------------------------------------------------------------------------------------------

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run."""
        if self._done:
            raise WorkflowRuntimeError(f"Run {self.run_id} has ended: it takes no event any more.")
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent into a run, not {type(event).__name__}.")
        self.workflow._check_target(event, step)
        state = self.state
        if state.waiting.kept_count >= state.config.keep_unclaimed and not self._is_wanted(event):
            raise WorkflowRuntimeError(
                f"Run {self.run_id} already keeps {state.waiting.kept_count} events that nobody has asked for: "
                f"{type(event).__name__} is refused."
            )
        self._deliver(TickAddEvent(at=self.now(), event=record_of(event), step=step, waiter_id=waiter_id))

    def _is_wanted(self, event: Event) -> bool:
        kind = record_of(event).kind
        names = {kind.name, *kind.bases}
        return any(names & set(spec.accepts) for spec in self.state.config.steps) or bool(
            names & set(self.state.waiting.index)
        )

    def _deliver(self, tick: WorkflowTick) -> None:
        if threading.get_ident() == self._thread:
            self._outer.send_event(tick)
        else:
            self.loop.call_soon_threadsafe(self._outer.send_event, tick)

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run. In memory, it is as safe as it gets at once."""
        self.send(event, step, waiter_id)

    def request_cancel(self) -> None:
        """Ask the run to stop, without waiting."""
        if self._done:
            return
        if threading.get_ident() != self._thread:
            self.loop.call_soon_threadsafe(self.request_cancel)
        elif self.held_back is not None:
            # It begins only to end: with both ticks reduced at once, none of its bodies runs.
            self.held_back()
            self._core.feed(TickCancelRun(at=self.now()))
        else:
            self._deliver(TickCancelRun(at=self.now()))

    async def cancel(self, timeout_s: float | None) -> None:
        """Ask the run to stop and wait for its end, at most so long."""
        self._seen = True
        self.request_cancel()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_done()
        except TimeoutError:
            _log.warning("Run %s has not ended %s s after it was cancelled.", self.run_id, timeout_s)

    async def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """The stream behind a cursor, until its first ending."""
        stream = self._adapter.stream
        position = after + 1
        while True:
            while position < len(stream):
                published = stream[position]
                if internal or not is_internal(published):
                    event = published_event(published)
                    yield position, event
                if is_ending(published):
                    self._seen = True
                    return
                position += 1
            if self._done:
                return
            await self._adapter.news()

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
        execution = current_execution.get()
        source: Source | None = None
        if isinstance(execution, StepExecution) and execution.host is self:
            source = execution.next_source()
            if execution.is_repeated(source):
                return False
        tick = TickEditStore(
            at=self.now(),
            base_version=edit.base_version,
            changed=edit.changed,
            removed=edit.removed,
            source=source,
        )
        if not self._done:
            self.report(tick)
        return True

    # -- bodies: what the control loop asks ---------------------------------------------------------------------------

    def completed(self) -> list[WorkflowTick]:
        """What bodies did since the last call."""
        lane, self._lane = self._lane, []
        return lane

    def on_completion(self, wake: Callable[[bool], None]) -> None:
        """Call `wake` when a body has something to tell, with whether it has time to let the run go on at once."""
        self._wake = wake

    def start(self, command: CommandRunWorker) -> None:
        """Run a body."""
        execution = StepExecution(self, self._bindings[command.step], command)
        self._executions[command.seq] = execution
        execution.task = self.loop.create_task(execution.work())

    def resume(self, command: CommandResumeWorker) -> None:
        """Let a suspended body go on."""
        execution = self._executions.get(command.seq)
        if execution is not None:
            execution.answer(command)

    def warn(self, message: str) -> None:
        """Tell the operator."""
        _log.warning("Run %s: %s", self.run_id, message)

    async def stop(self) -> None:
        """Cancel the bodies that are left, with a little grace."""
        tasks = []
        for execution in list(self._executions.values()):
            execution.abandoned = True
            if execution.task is not None and not execution.task.done():
                execution.task.cancel()
                tasks.append(execution.task)
        self._executions.clear()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)

    # -- bodies: what they ask ----------------------------------------------------------------------------------------

    def report(self, tick: WorkflowTick) -> None:
        """A body did something; safe from any thread."""
        self._lane.append(tick)
        if self._wake is None:
            return
        if threading.get_ident() == self._thread:
            self._wake(False)
        else:
            self.loop.call_soon_threadsafe(self._wake, False)

    def check_target(self, event: Event, step: str | None) -> None:
        """Refuse an event for a step that does not exist or does not take it."""
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent, not {type(event).__name__}.")
        self.workflow._check_target(event, step)

    def make_context(self, execution: StepExecution) -> Context[Any]:
        """The context that a body asks for."""
        return Context._inside(self.workflow, execution)

    def executed(self, execution: StepExecution, result: TickStepResult) -> None:
        """A body has ended. What an abandoned one has to say is of no interest any more."""
        self._executions.pop(execution.command.seq, None)
        self._outer.finalize_step(execution.command)
        if execution.abandoned:
            return
        self._lane.append(result)
        if self._wake is not None:
            # The last body has nothing left to do but to let the run go on. Several end in one turn of the event loop,
            # and are told together.
            self._wake(not self._executions and result.failure is None)

"""A run that lives in this process: its loop, its bodies, its stream, its store and its end.

One object serves three callers. Handlers and contexts outside know it as `RunPort`, its control loop as `Workers`, and
the bodies of its steps as their `Host`. Durable runs derive from it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent, TerminalCommand
from loom.core.persistent import EMPTY_MAP
from loom.core.ticks import Source, TickAddEvent, TickCancelRun, TickEditStore
from loom.effects import spans
from loom.effects.body_task import BodyTask
from loom.effects.event_codec import LIVE_CODEC, published_event
from loom.effects.execution import StepExecution
from loom.runtime.control_loop import PATIENCE, ControlLoop, Driver, effective
from loom.runtime.logs import LifecycleLog, about, has_lifecycle_news, log_stuck
from loom.runtime.memory_adapter import MemoryAdapter
from loom.runtime.planners import program_in
from loom.runtime.run_ending import GRACE_S, LateBodies, abandoned, ending_of
from loom.runtime.streams import is_ending, is_internal
from loom.steps.context import Context
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError, message_of
from loom.steps.events import Event, StopEvent
from loom.steps.ports import current_execution, definition_of
from loom.steps.state_store import InMemoryStateStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import (
        CommandCancelChild,
        CommandResumeWorker,
        CommandRunWorker,
        CommandStartChild,
    )
    from loom.core.run import Batch, Run
    from loom.core.state import BrokerState
    from loom.core.ticks import TickRefuseEvent, TickStepResult, WorkflowTick
    from loom.effects.event_codec import EventCodec
    from loom.effects.ports import Binding
    from loom.runtime.control_loop import LoopWatcher
    from loom.steps.events import StartEvent, StopEvent
    from loom.steps.ports import Definition
    from loom.steps.resources import RunResources
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


class LiveRun:
    """One run in memory."""

    __slots__ = (
        "__weakref__", "_adapter", "_bindings", "_core", "_done", "_driver", "_ending", "_executions", "_fault",
        "_free_task", "_lane", "_late", "_on_end", "_outer", "_seen", "_send", "_store", "_thread", "_wake", "children",
        "codec", "definition", "first_tick", "held_back", "loop", "now", "pull", "resources", "run_id", "watcher",
    )  # fmt: skip

    pure: frozenset[str] = frozenset()
    """The steps whose bodies begin before their commit is durable; none in memory, where a commit takes no time."""

    def __init__(
        self,
        definition: Definition,
        run_id: str,
        core: Run,
        adapter: MemoryAdapter,
        outer: InternalRunAdapter,
        bindings: dict[str, Binding],
        watcher: LoopWatcher,
        on_end: Callable[[LiveRun], None],
    ) -> None:
        self.definition = definition
        self.run_id = run_id
        self.codec: EventCodec = LIVE_CODEC
        """How what bodies write becomes what the run keeps."""
        self.loop = asyncio.get_running_loop()
        self.now = outer.get_now
        self.watcher = watcher
        self.pull: Callable[[], Awaitable[WorkflowTick]]
        self.children: Children | None = None
        """Runs the child runs that its bodies ask for; None: no runtime does."""
        self.first_tick: Callable[[], WorkflowTick] | None = None
        """Makes the tick that the run begins with; None once it has begun."""
        self.held_back: Callable[[], bool] | None = None
        """Takes a run that its workflow's limit holds back out of the queue; False if its turn has just come."""
        self.resources: RunResources | None = None
        self._core = core
        self._adapter = adapter
        self._outer = outer
        send = effective(outer, "send_event")
        is_plain = getattr(send, "__func__", None) is MemoryAdapter.send_event
        self._send: Callable[[WorkflowTick], None] | None = None if is_plain else send
        """How what a step sends gets here, if a decorator wants to know of it."""
        if not is_plain:
            adapter.on_effect = self.take
        self._bindings = bindings
        self._on_end = on_end
        self._thread = threading.get_ident()
        self._store: InMemoryStateStore[Any] | None = None
        self._driver: Driver[TerminalCommand] | None = None
        self._ending: StopEvent | BaseException | None = None
        self._done = self._seen = False
        """Whether the ending was read: a failure that was not is logged."""
        self._executions: dict[int, StepExecution] = {}
        self._free_task: BodyTask | None = None
        """The task of the body that has just ended, or the one made last: it may run the next one."""
        self._late: LateBodies | None = None
        self._lane: list[WorkflowTick] = []
        """What bodies did and the control loop has not taken."""
        self._wake: Callable[[bool], None] | None = None
        self._fault: Exception | None = None

    @property
    def workflow_name(self) -> str:
        """Name of the run's workflow, for logs."""
        return self.definition.name

    @property
    def loop_ends(self) -> bool:
        """Whether everything on the event loop is being cancelled."""
        return self.watcher.loop_ends

    def on_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something where the run lives: here, or in the thread of its event loop."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        else:
            self.loop.call_soon_threadsafe(call, *arguments)

    # -- the run and its end ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Set the run in motion."""
        if self.first_tick is not None:
            # Its state is there at once, for callers that read or save it before its loop has turned.
            self._core.feed(self.first_tick())
            self._core.drain(PATIENCE)
            self.first_tick = None
        control_loop = ControlLoop(self._core, self._outer, self)
        drive = control_loop.drive
        if spans.PACKAGE in sys.modules and spans.are_wanted():
            driven = spans.around_run(self.definition.instance, drive, self._ending_of)
        else:
            driven = drive()
        self._driver = Driver(driven, self._adapter, self.loop, self._ended, self.watcher.turns, control_loop.turn)
        self._driver.begin()

    def begin_in_turn(self) -> None:
        """Begin a run that was held back. If it cannot begin, the caller that awaits it gets the error."""
        self.held_back = None
        if self._done:
            return
        try:
            self.begin()
        except Exception as error:  # noqa: BLE001 - the caller is another run, at its end
            self._ended(None, error)

    def abort(self) -> None:
        """End the run with its event loop. A run that is over ends by itself."""
        if self._driver is None:
            self._ended(None, asyncio.CancelledError())
        elif not self._core.is_over:
            self._driver.abort()

    def _ended(self, command: TerminalCommand | None, error: BaseException | None) -> None:
        """Note that the control loop has stopped: the run is over, or the loop itself has failed."""
        if self._done:
            return
        self._driver = None
        if type(error) is asyncio.CancelledError:
            error.__traceback__ = None  # its frames hold the run, which would be garbage in a cycle
        self._ending = error if command is None else self._ending_of(command)
        self._done = True
        if self.resources is not None:
            self.resources.leave()
        try:
            self._on_end(self)
        finally:
            self._adapter.mark_closed()

    def _ending_of(self, command: TerminalCommand) -> StopEvent | BaseException:
        """What the run has come to. A result that its class does not take back is an error for who awaits it."""
        try:
            return ending_of(command, self.codec)
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
        outcome = self._core.fields.outcome
        if outcome is not None and (outcome.status != "parked" or not self._done):
            return outcome.run_status  # nothing keeps a run in memory that is parked: it has failed
        return "failed" if self._done else "running"

    def state_to_save(self) -> BrokerState:
        """The run as data, with all that it was told but has not come to yet."""
        if self._done:
            return self.state
        if self._outer is self._adapter:
            # The order is fixed now, so that what is saved and what will happen are the same.
            self._lane += self._adapter.take_inbox()
        start = [self.first_tick()] if self.first_tick is not None else []
        return self._core.foresee([*start, *self._lane])

    @property
    def is_done(self) -> bool:
        """Whether the run has ended."""
        return self._done

    def keep_journal(self) -> None:
        """Keep all ticks from here on, however many there will be."""
        self._adapter.keeps_journal = True

    @property
    def journal(self) -> list[WorkflowTick] | None:
        """The run's ticks so far; None if the first ones were dropped, since nobody had asked for them."""
        return self._adapter.journal if not self._adapter.journal_start else None

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
        ending = None if self._seen else self._ending
        if isinstance(ending, Exception) and not isinstance(ending, WorkflowCancelledByUser):
            message = "Run %s failed and nobody asked for its result."
            _log.error(message, self.run_id, exc_info=ending, extra=about(self.run_id))

    # -- bodies: what the control loop asks ---------------------------------------------------------------------------

    def completed(self) -> list[WorkflowTick]:
        """What bodies did since the last call."""
        if self._fault is not None:
            raise self._fault
        # The list itself stays: another thread may be adding to it.
        ticks = self._lane[:]
        del self._lane[: len(ticks)]
        return ticks

    def on_completion(self, wake: Callable[[bool], None]) -> None:
        """Call `wake` when a body has something to tell, with whether it has time to let the run go on at once."""
        self._wake = wake

    def start(self, command: CommandRunWorker) -> None:
        """Run a body. None begins on an event loop that ends: nothing would wait for it."""
        if self.watcher.loop_ends:
            return
        if self._late is not None:
            self._late.commands.append(command)
            return
        execution = StepExecution(self, self._bindings[command.step], command)
        if command.item.effects and command.step not in self.pure:
            # The batch of the command is committed, and so is every answer that the state holds by now. A pure step may
            # begin before its batch is: it asks, and is answered after the commit.
            execution.answers = self._core.fields.waiting.answers.get(command.item.id, EMPTY_MAP)
        self._executions[command.seq] = execution
        if self._free_task is None or not self._free_task.take(execution):
            self._free_task = BodyTask()
            self._free_task.begin(execution)

    def start_ahead(self) -> None:
        """Start nothing before its commit. See `ActiveRun`."""

    def resume(self, command: CommandResumeWorker) -> None:
        """Let a suspended body go on."""
        execution = self._executions.get(command.seq)
        if execution is not None:
            execution.answer(command)

    def warn(self, message: str) -> None:
        """Tell the operator."""
        _log.warning("Run %s: %s", self.run_id, message, extra=about(self.run_id))

    def at_work(self) -> list[tuple[float, str]]:
        """Name the steps whose bodies are at work: begun, not ended, and not waiting; each with when it began."""
        return [
            (execution.at_work_since, f"step '{execution.command.step}' of run {self.run_id}")
            for execution in self._executions.values()
            if not execution.is_over and not execution.is_waiting
        ]

    def stop_bodies(self) -> None:
        """Cancel the bodies at work; what starts next begins after them, or after a little grace."""
        self._free_task = None
        if tasks := abandoned(self._executions):
            self._late = LateBodies(tasks, self._begin_late)

    def _begin_late(self, command: CommandRunWorker) -> None:
        self._late = None
        self.start(command)

    async def stop(self) -> None:
        """Cancel the bodies that are left, with a little grace."""
        if self._late is not None:
            self._late.drop()
        if tasks := abandoned(self._executions):
            await asyncio.wait(tasks, timeout=GRACE_S)

    # -- bodies: what they ask ----------------------------------------------------------------------------------------

    @property
    def max_unsaved(self) -> int | None:
        """A run that is only in memory has all of it there anyway."""
        return None

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        """See `Host`."""

    def report(self, tick: WorkflowTick) -> None:
        """A body did something; safe from any thread. What it sends passes the decorators of the run."""
        if self._send is not None and type(tick) is TickAddEvent:
            self._send(tick)
        else:
            self.take(tick)

    def take(self, tick: WorkflowTick) -> None:
        """Let the control loop have what a body did; safe from any thread."""
        self._lane.append(tick)
        if self._wake is not None:
            self.on_loop(self._wake, False)

    def check_target(self, event: Event, step: str | None) -> None:
        """Refuse an event for a step that does not exist or does not take it."""
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent, not {type(event).__name__}.")
        self.definition.check_target(event, step)

    def make_context(self, execution: StepExecution) -> Context[Any]:
        """The context that a body asks for."""
        return Context._of_run(execution.run, execution)

    def lease(self) -> Awaitable[None] | None:
        """A run in memory has no other owner."""
        return None

    def admission(self) -> Awaitable[None] | None:
        """Only nesting bounds the children of a run in memory."""
        return None

    def start_of(
        self, workflow: Workflow | str, inputs: dict[str, Any], start_event: StartEvent | None
    ) -> tuple[str, Any]:
        """The name of a child's workflow, and what the child begins with."""
        if isinstance(workflow, str):
            raise WorkflowRuntimeError(
                f"A run in memory knows no workflow {workflow!r}: give run_child() the workflow itself, or register it "
                "with a runtime from loom.connect()."
            )
        definition = definition_of(workflow)
        return definition.name, (workflow, definition.start_event(start_event, inputs))

    def executed(self, execution: StepExecution, result: TickStepResult | TickRefuseEvent) -> None:
        """A body has ended. What an abandoned one has to say is of no interest any more."""
        self._executions.pop(execution.command.seq, None)
        if execution.abandoned:
            self._outer.finalize_step(execution.command)
            return
        self._lane.append(result)
        try:
            self._outer.finalize_step(execution.command)
        except Exception as error:  # noqa: BLE001 - it is the run's business: its control loop raises it
            self._fault = error
        if self._wake is not None:
            # The last body has nothing left to do but to let the run go on. Several end in one turn of the event loop,
            # and are told together: the last one of a task tells for all of them.
            task = execution.body_task
            if not self._executions and getattr(result, "failure", None) is None:
                self._go_on(task, result.at)
            elif task is None or not task.has_more:
                self._wake(False)

    def tell(self) -> None:
        """Wake the control loop, if bodies have something to tell that it was not woken for, or cannot be run."""
        if (self._lane or self._fault is not None) and self._wake is not None:
            self._wake(False)

    def break_off(self, error: Exception) -> None:
        """End the run in this process: its control loop raises the error."""
        self._fault = error
        self.tell()

    def _go_on(self, free: BodyTask | None, now: float) -> None:
        """Let the run go on within this call. The task that makes the call is free for the next body."""
        if free is not None and free.may_take(now):
            self._free_task = free
        try:
            if self._driver is None or not self._driver.turn():
                assert self._wake is not None
                self._wake(True)
        finally:
            self._free_task = None

    # -- from outside -------------------------------------------------------------------------------------------------

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run."""
        if self._done:
            raise WorkflowRuntimeError(f"Run {self.run_id} has ended: it takes no event any more.")
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent into a run, not {type(event).__name__}.")
        self.definition.check_target(event, step)
        tick = TickAddEvent(at=self.now(), event=self.codec.record(event), step=step, waiter_id=waiter_id)
        self._refuse_if_full(tick)
        self.on_loop(self._outer.send_event, tick)

    def notify(self, tick: WorkflowTick) -> None:
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

    def request_cancel(self, force: bool = False) -> None:
        """Ask the run to stop, without waiting."""
        if not self._done:
            self.on_loop(self._cancel, force)

    def _cancel(self, force: bool) -> None:
        tick = TickCancelRun(at=self.now(), force=force)
        if self.held_back is not None and self.held_back():
            # It begins only to end: with both ticks reduced at once, none of its bodies runs.
            self.begin_in_turn()
            self._core.feed(replace(tick, force=True))  # there is nothing to clean up
        else:
            self._outer.send_event(tick)

    async def cancel(self, timeout_s: float | None, force: bool = False) -> None:
        """Ask the run to stop and wait for its end, at most `timeout_s` seconds; None means without a limit."""
        self._seen = True
        self.request_cancel(force)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_done()
        except TimeoutError:
            message = "Run %s has not ended %s s after it was cancelled."
            _log.warning(message, self.run_id, timeout_s, extra=about(self.run_id))

    async def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """The stream after a cursor, until its first ending."""
        stream = self._adapter.stream
        position = after + 1
        while True:
            while position < len(stream):
                published = stream[position]
                if internal or not is_internal(published):
                    event = published_event(published, self.codec)
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
        if has_lifecycle_news(batch.ticks):
            log = LifecycleLog(self.run_id, self.workflow_name, program_in(self._core.planner))
            published = [command.event for command in batch.commands if type(command) is CommandPublishEvent]
            now = self._core.fields
            log.committed(batch.ticks, published, now)
            # Pure steps may have come to the end ahead of this batch: then that is not durable, and told later.
            if now.outcome is not None and batch.commands and isinstance(batch.commands[-1], TerminalCommand):
                log.ended(now.outcome)

    def is_stuck(self) -> None:
        """Tell the operator that the run is idle and waits for nothing."""
        from loom.runtime.run_head import StuckReason  # a run in memory needs nothing else of stored runs

        reason = StuckReason()
        reason.follow(self._adapter.journal, self._adapter.stream)
        log_stuck(self.run_id, self.workflow_name, reason.text)

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
            self.adopt_store(InMemoryStateStore(state_type=self.definition.state_type))
        assert self._store is not None
        return self._store

    def adopt_store(self, store: InMemoryStateStore[Any]) -> None:
        """Take a store over: from now on its edits are the run's."""
        store.on_edit = self._edited
        self._store = store

    def _edited(self, edit: StoreEdit) -> bool:
        """Tell the run about an edit. False if an interrupted run of the same execution had made it already."""
        changed, removed, state_type = self.codec.store_edit(edit)
        # A store may be locked while it is edited: nobody waits for anything here.
        self.make_room(sum(len(text) for text in changed.values() if type(text) is str), waits=False)
        execution = current_execution()
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

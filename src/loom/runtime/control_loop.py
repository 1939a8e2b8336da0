"""The control loop: drives one run on asyncio, through its adapter and nothing else.

    drain -> flush -> commit -> effects -> wait for the next thing to happen -> drain ...

Ticks of workers come before ticks from outside, and both are taken whenever the loop looks, so that neither starves the
other. A transition that would hold the event loop up is done in a thread.

Bodies of pure steps are the exception to that order: in a store they begin while the commit is on its way (ADR 63).

Four parts work together for each run:

- `ControlLoop` is the coroutine above, and `ArmedTimers` holds the timers that it waits for.
- `Driver` advances that coroutine without a task, and `Turns` shares the turns of the event loop between all of them.
- `LoopWatcher` tells the runs of an event loop when the loop ends before them.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from loom.core.adapter import RunAdapterDecorator
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandQueueEvent,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    CommandStopWork,
    CommandWarn,
    TerminalCommand,
)
from loom.core.records import IdleReport
from loom.core.ticks import TickTimeout, TickTimerFired
from loom.effects.off_loop import aside
from loom.runtime.memory_adapter import MemoryAdapter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import WorkflowCommand
    from loom.core.run import Batch, Run
    from loom.core.ticks import WorkflowTick
    from loom.runtime.live_run import LiveRun


class Workers(Protocol):
    """The bodies of a run's steps, as the control loop handles them."""

    pull: Callable[[], Awaitable[WorkflowTick]]

    @property
    def pure(self) -> frozenset[str]:
        """The steps whose bodies may begin before the commit that starts them is durable."""
        ...

    def start_ahead(self) -> None:
        """Start the queued bodies of these steps."""
        ...

    def completed(self) -> list[WorkflowTick]:
        """See `TaskSet`."""
        ...

    def on_completion(self, wake: Callable[[bool], None]) -> None:
        """See `TaskSet`."""
        ...

    def start(self, command: CommandRunWorker) -> None:
        """Run a body."""
        ...

    def resume(self, command: CommandResumeWorker) -> None:
        """Let a suspended body go on."""
        ...

    def start_child(self, command: CommandStartChild) -> None:
        """Begin a child run."""
        ...

    def cancel_child(self, command: CommandCancelChild) -> None:
        """Cancel a child run."""
        ...

    def warn(self, message: str) -> None:
        """Tell the operator."""
        ...

    def committed(self, batch: Batch) -> None:
        """Tell the log what a batch brought: it is durable now."""
        ...

    def is_stuck(self) -> None:
        """The run is idle and waits for nothing."""
        ...

    def stop_bodies(self) -> None:
        """Cancel the bodies at work; what starts next begins after them, or after a little grace."""
        ...

    async def stop(self) -> None:
        """Cancel the bodies that are left, with a little grace."""
        ...


PATIENCE = 256 * 1024
"""Units of work that one drain may do on the event loop: about 3 ms, at most 20 ms where a unit takes longest."""


class ControlLoop:
    """One run in motion."""

    __slots__ = ("_adapter", "_ending", "_fault", "_observe", "_run", "_timers", "_until", "_workers", "_write")

    def __init__(self, run: Run, adapter: InternalRunAdapter, workers: Workers) -> None:
        self._run = run
        self._adapter = adapter
        self._workers = workers
        self._timers: ArmedTimers | None = None
        self._until: float | None = None
        """When the wait under way ends at the latest; None if no timer ends it."""
        self._ending: TerminalCommand | None = None
        self._fault: BaseException | None = None
        """How the run ended, or what was raised, in a `turn`: the coroutine says so."""
        workers.pull = effective(adapter, "wait_receive")
        self._write = effective(adapter, "write_to_event_stream")
        observe = effective(adapter, "on_tick")
        self._observe: Callable[[WorkflowTick], None] | None = observe
        if getattr(observe, "__func__", None) is MemoryAdapter.on_tick:
            self._observe = None  # it does nothing, for each tick of each run

    async def drive(self) -> TerminalCommand:
        """Run to the end. Whatever a commit raises ends the run in this process, before any of its effects."""
        run, adapter, workers = self._run, self._adapter, self._workers
        has_pure_steps = bool(workers.pure)
        try:
            while True:
                while not run.drain(PATIENCE):
                    await self._reduce_elsewhere()
                if has_pure_steps:
                    workers.start_ahead()
                batch = run.flush()
                await adapter.commit(batch)
                workers.committed(batch)
                ending = self._carry_out(batch)
                if ending is not None:
                    return ending
                del batch  # a run may wait for days
                if run.holds_input:
                    continue  # what did not fit into one commit goes into the next
                until = self._until = self._next_due
                ticks = await adapter.wait_for_next_task(workers, until)
                if self._fault is not None:
                    raise self._fault
                if self._ending is not None:
                    return self._ending
                if until is not None and until <= adapter.get_now():
                    ticks += self._due()
                run.feed(*ticks)
                del ticks
        finally:
            try:
                await workers.stop()
            finally:
                adapter.close()

    @property
    def _next_due(self) -> float | None:
        return self._timers.next_due if self._timers is not None else None

    def turn(self) -> bool | None:
        """Do one round of `drive` in place of its coroutine, which stays in its wait.

        A chain of steps in memory awaits nothing, so it needs neither the coroutine nor a future. True if the wait may
        go on. False if the coroutine must leave it: the run has ended or failed, or what follows is the coroutine's.
        None if nothing was done, because something may have to be awaited.
        """
        adapter, run, workers = self._adapter, self._run, self._workers
        if type(adapter) is not MemoryAdapter or adapter.waiter is None:
            return None
        try:
            run.feed(*workers.completed())
            if not run.drain(PATIENCE):
                return False
            batch = run.flush()
            adapter.keep(batch)
            workers.committed(batch)
            self._ending = self._carry_out(batch)
        except BaseException as error:  # noqa: BLE001 - the coroutine raises it
            self._fault = error
            return False
        return self._ending is None and not run.holds_input and self._next_due == self._until

    async def _reduce_elsewhere(self) -> None:
        """Let a thread do the transition that is too costly for the event loop; other runs go on.

        Until it is done the run is as it was before. What comes for it waits in its buffer.
        """
        self._run.adopt(await aside("reduce", self._run.detached()))

    def _due(self) -> list[WorkflowTick]:
        """Timers come last: what workers and the outside had to say was there before them."""
        return self._timers.fire(self._adapter.get_now()) if self._timers is not None else []

    def _carry_out(self, batch: Batch) -> TerminalCommand | None:
        """Do what a committed batch asks for."""
        write, start = self._write, self._workers.start
        if self._observe is not None:
            for tick in batch.ticks:
                self._observe(tick)
        ending: TerminalCommand | None = None
        for command in batch.commands:
            if type(command) is CommandPublishEvent:
                write(command.cursor, command.event)
            elif type(command) is CommandRunWorker:
                start(command)
            else:
                ending = self._perform(command) or ending
        if self._run.fields.idle_since is not None and any(map(_tells_of_no_waiter, batch.commands)):
            self._workers.is_stuck()
        return ending

    def _perform(self, command: WorkflowCommand) -> TerminalCommand | None:
        match command:
            case CommandResumeWorker():
                self._workers.resume(command)
            case CommandStartTimer():
                if self._timers is None:
                    self._timers = ArmedTimers()
                self._timers.start(command)
            case CommandCancelTimer():
                if self._timers is not None:
                    self._timers.cancel(command.seq)
            case CommandWarn():
                self._workers.warn(command.notice.message)
            case CommandStartChild() | CommandCancelChild() | CommandStopWork():
                self._perform_rarely(command)
            case CommandCompleteRun() | CommandFailWorkflow() | CommandHalt():
                return command
            case CommandPublishEvent() | CommandRunWorker() | CommandQueueEvent():
                raise TypeError(f"{type(command).__name__} is not for here.")
        return None

    def _perform_rarely(self, command: CommandStartChild | CommandCancelChild | CommandStopWork) -> None:
        if isinstance(command, CommandStartChild):
            self._workers.start_child(command)
        elif isinstance(command, CommandCancelChild):
            self._workers.cancel_child(command)
        else:
            self._workers.stop_bodies()


def _tells_of_no_waiter(command: WorkflowCommand) -> bool:
    """Whether a command tells the stream that the run is idle and waits for nothing."""
    event = command.event if isinstance(command, CommandPublishEvent) else None
    return isinstance(event, IdleReport) and not event.waiters


_SPARE = 64
"""Cancelled timers that may stay in the heap, beyond the number of armed ones."""


class ArmedTimers:
    """A heap of due times. Cancelled ones are skipped when they come up, and swept out when they are too many."""

    __slots__ = ("_armed", "_heap", "next_due")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._armed: dict[int, CommandStartTimer] = {}
        self.next_due: float | None = None
        """Due time of the next timer; None if none is armed."""

    def start(self, command: CommandStartTimer) -> None:
        """Arm a timer; one of the same number is replaced."""
        self._armed[command.seq] = command
        heapq.heappush(self._heap, (command.due, command.seq))
        self._find_next()

    def cancel(self, seq: int) -> None:
        """Disarm a timer."""
        self._armed.pop(seq, None)
        if len(self._heap) > 2 * len(self._armed) + _SPARE:
            # Most waits end long before their time: their entries must not pile up until then.
            self._heap = [(command.due, command.seq) for command in self._armed.values()]
            heapq.heapify(self._heap)
        self._find_next()

    def _find_next(self) -> None:
        """Skip cancelled timers and note the next due time."""
        heap, armed = self._heap, self._armed
        while heap:
            due, seq = heap[0]
            command = armed.get(seq)
            if command is not None and command.due == due:
                self.next_due = due
                return
            heapq.heappop(heap)
        self.next_due = None

    def fire(self, now: float) -> list[WorkflowTick]:
        """The ticks of all timers that are due by now, none of them early."""
        fired: list[WorkflowTick] = []
        while self.next_due is not None and self.next_due <= now:
            _, seq = heapq.heappop(self._heap)
            command = self._armed.pop(seq)
            tick_type = TickTimeout if command.purpose == "timeout" else TickTimerFired
            fired.append(tick_type(at=now, timer=seq))
            self._find_next()
        return fired


T = TypeVar("T")


TURN_S = 0.02
"""Seconds that control loops may take of one turn of the event loop."""
_PAUSE_S = 0.001
"""Steps that begin within this many seconds of the step before belong to the same turn."""


class Turns:
    """Shares the turns of an event loop between its runs and everything else on it.

    One commit may let hundreds of runs go on. The event loop calls all of them before it looks at its sockets again, so
    one run with many children would keep every client waiting. Past `TURN_S` the others step in the next turn.
    """

    __slots__ = ("_began_at", "_ended_at", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began_at = self._ended_at = 0.0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, step: Callable[[], None]) -> None:
        """Take a step: now, or in a later turn if the steps of this one have taken long."""
        now = self._loop.time()
        if now - self._ended_at > _PAUSE_S:
            self._began_at = now
        if self._waiting or now - self._began_at > TURN_S:
            self._waiting.append(step)
            if len(self._waiting) == 1:
                self._loop.call_soon(self._go_on)
            return
        step()
        self._ended_at = self._loop.time()

    async def run(self, work: Callable[[], T]) -> T:
        """Do a piece of work that takes a while, in a turn that has time for it."""
        done: asyncio.Future[T] = self._loop.create_future()
        context = contextvars.copy_context()

        def step() -> None:
            if done.cancelled():
                return
            try:
                result = context.run(work)
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                done.set_exception(error)
            else:
                done.set_result(result)

        self.take(step)
        return await done

    def _go_on(self) -> None:
        self._began_at = self._ended_at = self._loop.time()
        while self._waiting and self._ended_at - self._began_at <= TURN_S:
            self._waiting.popleft()()
            self._ended_at = self._loop.time()
        if self._waiting:
            self._loop.call_soon(self._go_on)


class Driver(Generic[T]):
    """Advances one coroutine to its end without a task, and gives `on_end` its result or its exception.

    A task would have to be woken through the event loop for every step, and takes room in every run that waits. So the
    coroutine is advanced right here: when the adapter has news, or when what it awaits is done. It runs in one context,
    the caller's at the start, as a task would.

    A control loop awaits futures only: its adapter's or a commit's. What needs a task around it, such as
    `asyncio.timeout`, belongs into a task of its own that sets such a future.
    """

    __slots__ = (
        "_adapter", "_awaited", "_context", "_coroutine", "_is_due", "_is_parked", "_is_running", "_loop", "_on_end",
        "_turn", "_turns",
    )  # fmt: skip

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        adapter: MemoryAdapter,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[T | None, BaseException | None], None],
        turns: Turns,
        turn: Callable[[], bool | None] | None = None,
    ) -> None:
        self._coroutine: Coroutine[Any, Any, T] | None = coroutine
        self._adapter = adapter
        self._loop = loop
        self._on_end: Callable[[T | None, BaseException | None], None] | None = on_end
        self._context = contextvars.copy_context()
        self._awaited: asyncio.Future[Any] | None = None
        self._turns = turns
        self._turn = turn
        self._is_due = False
        self._is_parked = False
        self._is_running = False
        adapter.on_wake = self.wake

    def begin(self) -> None:
        """Take the first step when the event loop next turns."""
        self._step_soon()

    def _step_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_turn)

    def wake(self, at_once: bool) -> None:
        """React to news of the adapter. A caller with nothing left to do lets the coroutine go on in its own call."""
        if not self._is_parked:
            return  # it is busy, and looks for news by itself before it parks
        if at_once and not self._is_running:
            self._step()
        else:
            self._step_soon()

    def turn(self) -> bool:
        """Do a round of the coroutine's work without it, if it is parked and nothing has to be awaited."""
        if not self._is_parked or self._is_running or self._turn is None:
            return False
        self._is_running = True
        try:
            may_wait = self._context.run(self._turn)
        finally:
            self._is_running = False
        if may_wait is False:
            self._adapter.recall()
        return may_wait is not None

    def abort(self) -> None:
        """Let the coroutine clean up: the event loop is about to end."""
        if self._coroutine is not None and not self._is_running:
            self._advance(self._coroutine.throw, asyncio.CancelledError())

    def _take_turn(self, _done: asyncio.Future[Any] | None = None) -> None:
        self._turns.take(self._step)

    def _step(self) -> None:
        """Go on, unless the call is late: the coroutine may have ended since, or wait for something else."""
        self._is_due = False
        awaited = self._awaited
        if self._coroutine is not None and not self._is_running and (awaited is None or awaited.done()):
            self._advance(self._coroutine.send, None)

    def _advance(self, resume: Callable[[Any], Any], value: Any) -> None:
        """Run the coroutine to its next wait, or to its end."""
        self._is_running, self._is_parked = True, False
        try:
            awaited = self._context.run(resume, value)
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:
            self._end(None, error)
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
        else:
            self._park(awaited)
        finally:
            self._is_running = False

    def _park(self, awaited: Any) -> None:
        """Wait for what the coroutine awaits. For the adapter's own wait, `wake` is enough."""
        self._awaited = awaited
        if awaited is None:
            self._step_soon()
            return
        awaited._asyncio_future_blocking = False
        if awaited is self._adapter.waiter:
            self._is_parked = True
        else:
            # A commit calls back in place: see `DirectFuture`.
            getattr(awaited, "call_directly", awaited.add_done_callback)(self._take_turn)

    def _end(self, result: T | None, error: BaseException | None) -> None:
        # An error holds this driver, and the run that is told holds the error.
        self._coroutine = self._awaited = self._turn = None
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(result, error)


AtWork = list[tuple[float, str]]
"""Steps whose bodies are at work, each with when it began."""

_watchers: weakref.WeakSet[LoopWatcher] = weakref.WeakSet()
_interrupted: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AtWork] = weakref.WeakKeyDictionary()
"""What was at work when everything on an event loop was cancelled."""


def at_work(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Name the steps whose bodies are at work on an event loop, or were when everything on it was cancelled.

    The ones that began last come first: they most likely caused what has just happened.
    """
    found = {*_interrupted.get(loop, ())}
    for watcher in _watchers:
        if watcher.loop is loop:
            found.update(watcher.at_work())
    return [name for _, name in sorted(found, reverse=True)]


class LoopWatcher:
    """A task that lives as long as there are runs on its event loop, and tells them when the loop ends before them.

    Control loops have no task of their own, so `asyncio.run` would not cancel them at its end. The watcher also knows
    what was at work when an event loop ended unasked.
    """

    __slots__ = ("__weakref__", "_nothing_left", "_task", "loop", "runs", "turns")

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns | None = None) -> None:
        self.loop = loop
        self.runs: set[LiveRun] = set()
        self.turns = turns or Turns(loop)
        self._nothing_left: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._watch(), name="loom runs")
        _watchers.add(self)

    @property
    def loop_ends(self) -> bool:
        """Whether everything on the event loop is being cancelled: nothing new should begin there."""
        return self._task.cancelling() > 0

    def add(self, run: LiveRun) -> None:
        """Watch over a run."""
        self.runs.add(run)

    def remove(self, run: LiveRun) -> bool:
        """Forget a run that has ended. Returns whether none is left."""
        self.runs.discard(run)
        if self.runs:
            return False
        if not self._nothing_left.done() and not self.loop.is_closed():
            self._nothing_left.set_result(None)
        return True

    def at_work(self) -> AtWork:
        """Name the steps whose bodies are at work, each with when it began."""
        return [entry for run in self.runs for entry in run.at_work()]

    async def _watch(self) -> None:
        try:
            await self._nothing_left
        except asyncio.CancelledError:
            _interrupted[self.loop] = self.at_work()
            runs = list(self.runs)
            for run in runs:
                run.abort()
            # The event loop waits for this task, and so for the runs to clean up.
            for run in runs:
                await run.wait_done()
            raise


def effective(adapter: InternalRunAdapter, method: str) -> Callable[..., Any]:
    """Return the method of an adapter that counts, past decorators that do not change it."""
    unchanged = getattr(RunAdapterDecorator, method)
    while isinstance(adapter, RunAdapterDecorator) and getattr(type(adapter), method) is unchanged:
        adapter = adapter.inner
    found: Callable[..., Any] = getattr(adapter, method)
    return found

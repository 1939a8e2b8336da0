"""The runtime in memory, `memory://`: runs live in this process and end with it.

May import loom.core, loom.effects, loom.steps and the rest of loom.runtime.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from msgspec.structs import replace

from loom.core.run import Run
from loom.core.ticks import TickChildEnded, TickResume, TickStartRun
from loom.effects.verbose import verbose_adapter
from loom.runtime.code import code_of
from loom.runtime.flow import Flow, seed_of
from loom.runtime.guard import Guard
from loom.runtime.live import LiveRun
from loom.runtime.memory_adapter import MemoryAdapter
from loom.steps import ports
from loom.store.loop_time import wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import CommandStartChild
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.steps.events import StartEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow


class _Turns:
    """How many runs of one workflow instance are under way, and those that wait for their turn."""

    __slots__ = ("lent", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.lent: dict[LiveRun, LiveRun] = {}
        """Child runs that do not count, since the run that they descend from lends them its turn."""
        self.waiting: dict[LiveRun, Callable[[], None]] = {}
        """What begins each of them, in the order in which they came."""

    def end(self, live: LiveRun) -> None:
        """A run is over: who used its turn has that now, be it the run's own or lent to it."""
        lender = self.lent.pop(live, None)
        borrower = next((borrower for borrower, other in self.lent.items() if other is live), None)
        if self.waiting.pop(live, None) is not None:
            return  # it never had one
        if borrower is not None and lender is not None:
            self.lent[borrower] = lender
        elif borrower is not None:
            del self.lent[borrower]
        elif lender is None:
            self.running -= 1


class MemoryRuntime:
    """Runs workflows on asyncio, in this process.

    It holds every live run, so that none is lost when its handler is dropped, and forgets it at its end. `decorate`
    wraps the adapter of every run. Time is read from `clock`; without one from the event loop, if that has a date of
    its own as the virtual one of `loom.testing` has, else from the system.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        decorate: Callable[[InternalRunAdapter], InternalRunAdapter] | None = None,
    ) -> None:
        self._clock = clock
        self._decorate = decorate
        self._runs: dict[str, LiveRun] = {}
        # Workflows are keyed by identity: they may be models with an equality and no hash.
        self._turns: dict[int, _Turns] = {}
        # One workflow may be run on several event loops, each in its thread.
        self._turns_lock = threading.Lock()
        self._guards: dict[asyncio.AbstractEventLoop, Guard] = {}
        self._tracked: WeakValueDictionary[int, Workflow] = WeakValueDictionary()
        self._parents: dict[LiveRun, tuple[LiveRun, int]] = {}
        """Whose child a run is, and the number that the parent knows it by."""
        self._launched = False

    @property
    def is_launched(self) -> bool:
        """Whether `launch` was called. Runs need no launch here."""
        return self._launched

    async def launch(self) -> None:
        """Make ready for runs."""
        self.launch_sync()

    def launch_sync(self) -> None:
        """Make ready for runs, outside of an event loop. Workflows that use this runtime keep it from now on."""
        self._launched = True
        for workflow in list(self._tracked.values()):
            if workflow._runtime is self:
                workflow._lock()
        self._tracked.clear()

    async def destroy(self) -> None:
        """Cancel all runs and wait for their ends."""
        await asyncio.gather(*(run.cancel(None) for run in list(self._runs.values())))
        self._launched = False

    def destroy_sync(self) -> None:
        """Ask all runs to stop, without waiting."""
        for run in list(self._runs.values()):
            run.request_cancel()
        self._launched = False

    def now(self) -> float:
        """The time that its runs would begin at."""
        return self._clock_on(asyncio._get_running_loop())()

    def _clock_on(self, loop: asyncio.AbstractEventLoop | None) -> Callable[[], float]:
        return self._clock if self._clock is not None else wall_clock(loop)

    def track_workflow(self, workflow: Workflow) -> None:
        """A workflow was made that will use this runtime."""
        self._tracked[id(workflow)] = workflow

    @contextmanager
    def registering(self) -> Iterator[Self]:
        """Workflows that are made within use this runtime."""
        token = ports.registering_runtime.set(self)
        try:
            yield self
        finally:
            ports.registering_runtime.reset(token)

    def get(self, run_id: str) -> LiveRun:
        """A run that is under way."""
        if run_id not in self._runs:
            raise RuntimeError(f"No active workflow with run_id '{run_id}'.")
        return self._runs[run_id]

    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> LiveRun:
        """Begin a run, or go on with a restored one."""
        return self._start(workflow, run_id, start_event, staged, resumed)

    def _start(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
        parent: tuple[LiveRun, int] | None = None,
    ) -> LiveRun:
        loop = asyncio.get_running_loop()
        if loop not in self._guards:
            self._forget_closed_loops()
        run_id = run_id if run_id is not None else uuid.uuid4().hex
        if run_id in self._runs:
            raise RuntimeError(f"Workflow run with run_id '{run_id}' already exists.")
        adapter = MemoryAdapter(loop, self._clock_on(loop))
        outer = self._decorate(adapter) if self._decorate is not None else adapter
        if workflow._verbose:
            outer = verbose_adapter(outer, workflow._timeout)
        code = code_of(workflow)
        state = replace(resumed, run_id=run_id, outcome=None, is_running=True) if resumed is not None else None
        core = Run(code.planner, state, code.convert.field)
        guard = self._guard_on(loop)
        live = LiveRun(workflow, run_id, core, adapter, outer, code.bindings, guard, self._ended)
        live.convert = code.convert
        live.children = self
        if staged is not None:
            live.adopt_store(staged)
        self._runs[run_id] = live
        if parent is not None:
            self._parents[live] = parent
        guard.add(live)
        live.first_tick = lambda: _first_tick(workflow, run_id, outer.get_now(), start_event, staged, state)
        try:
            self._admit(live)
        except BaseException:
            self._parents.pop(live, None)  # its parent gets the error itself
            self._ended(live)
            raise
        return live

    def start_child(self, parent: LiveRun, command: CommandStartChild) -> None:
        """Begin a child run in the same process."""
        workflow, event = command.start
        self._start(workflow, command.run_id, event, None, None, (parent, command.seq))

    def cancel_child(self, run_id: str) -> None:
        """Cancel a child run, if it is still under way."""
        child = self._runs.get(run_id)
        if child is not None:
            child.request_cancel()

    def _guard_on(self, loop: asyncio.AbstractEventLoop) -> Guard:
        """Who watches over new runs of an event loop. What begins while a loop ends is not among what is cancelled."""
        guard = self._guards.get(loop)
        if guard is None or guard.loop_ends:
            guard = self._guards[loop] = Guard(loop)
        return guard

    def _forget_closed_loops(self) -> None:
        """Runs whose event loop was closed without a word are lost, but hold no name and no turn."""
        for loop, guard in list(self._guards.items()):
            if loop.is_closed():
                del self._guards[loop]
                for live in list(guard.runs):
                    self._ended(live)

    def _admit(self, live: LiveRun) -> None:
        """Begin at once, or when the workflow's limit allows it. A run's clock starts when it does."""
        limit = live.workflow._num_concurrent_runs
        if limit is not None:
            with self._turns_lock:
                turns = self._turns.setdefault(id(live.workflow), _Turns())
                if turns.running >= limit and not self._has_borrowed(turns, live):
                    live.held_back = partial(self._take_turn, turns, live)
                    # It begins at the end of another run, but belongs to whoever asked for it now.
                    turns.waiting[live] = partial(copy_context().run, live.begin_in_turn)
                    return
                turns.running += live not in turns.lent
        live.begin()

    def _has_borrowed(self, turns: _Turns, live: LiveRun) -> bool:
        """Let a child use the turn of the run of the same workflow that it descends from, one child at a time.

        The other one waits for it: else both would wait for each other.
        """
        above, _ = self._parents.get(live, (None, 0))
        while above is not None:
            if above.workflow is live.workflow and above not in turns.lent.values() and above not in turns.waiting:
                turns.lent[live] = above
                return True
            above, _ = self._parents.get(above, (None, 0))
        return False

    def _take_turn(self, turns: _Turns, live: LiveRun) -> bool:
        """Let a run that is held back count as running, though its turn has not come. False if it has."""
        with self._turns_lock:
            if turns.waiting.pop(live, None) is None:
                return False
            turns.running += 1
            return True

    def _ended(self, live: LiveRun) -> None:
        """A run is over, or was never begun: nothing of it is left here, and others have their turn."""
        if self._runs.get(live.run_id) is live:
            del self._runs[live.run_id]
        parent, number = self._parents.pop(live, (None, 0))
        if parent is not None:
            live.ending()  # whatever it is, the parent is told
            tell_parent(parent, number, live.state, parent.now())
        if live.guard.remove(live) and self._guards.get(live.loop) is live.guard:
            del self._guards[live.loop]
        limit = live.workflow._num_concurrent_runs
        if limit is not None:
            for other, begin in self._give_turn_away(live, limit):
                other.on_loop(begin)

    def _give_turn_away(self, live: LiveRun, limit: int) -> list[tuple[LiveRun, Callable[[], None]]]:
        """The runs that may begin now that another is over. They count as running from here on."""
        with self._turns_lock:
            turns = self._turns.get(id(live.workflow))
            if turns is None:
                return []
            turns.end(live)
            able = [other for other in turns.waiting if not other.loop.is_closed()]
            next_ones: list[tuple[LiveRun, Callable[[], None]]] = []
            for other in able:
                if turns.running < limit:
                    turns.running += 1
                elif not self._has_borrowed(turns, other):
                    continue
                next_ones.append((other, turns.waiting.pop(other)))
            if not turns.running:
                del self._turns[id(live.workflow)]
            return next_ones


def tell_parent(parent: LiveRun, number: int, child: BrokerState, now: float) -> None:
    """A child has ended: its parent learns how, unless it has ended itself."""
    outcome = child.outcome
    if outcome is None or outcome.status == "parked" or parent.is_done:
        return
    tick = TickChildEnded(at=now, child=number, status=outcome.status, event=outcome.event, failure=outcome.failure)
    parent.on_loop(parent.tell, tick)


def _first_tick(
    workflow: Workflow,
    run_id: str,
    now: float,
    start_event: StartEvent | None,
    staged: InMemoryStateStore[Any] | None,
    resumed: BrokerState | None,
) -> WorkflowTick:
    config = workflow._config()
    if resumed is not None:
        return TickResume(at=now, away_s=max(0.0, now - resumed.at), config=config)
    return TickStartRun(
        at=now,
        run_id=run_id,
        config=config,
        event=code_of(workflow).convert.record(start_event) if start_event is not None else None,
        seed=seed_of(run_id) if isinstance(workflow, Flow) else 0,
        store=staged.values() if staged is not None else {},
    )

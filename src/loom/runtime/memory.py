"""The runtime in memory, `memory://`: runs live in this process and end with it.

`MemoryRuntime` runs workflows and flows. `BasicRuntime` is the default one, under the names that programs know from
llama-index-workflows; it also gives out the journals of its runs and restores runs from them.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec.structs import replace
from typing_extensions import override

from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import TickChildEnded, TickEditStore, TickResume, TickStartRun
from loom.effects.binding import step_bindings
from loom.effects.event_codec import LIVE_CODEC
from loom.runtime.control_loop import LoopWatcher
from loom.runtime.live_run import LiveRun
from loom.runtime.memory_adapter import JOURNAL_TICKS, MemoryAdapter
from loom.runtime.planners import STEPS
from loom.steps import ports
from loom.steps.ports import definition_of, keep_runtime
from loom.steps.workflow import StepsDefinition
from loom.store.loop_time import wall_clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from loom.core.adapter import RunDecorator
    from loom.core.commands import CommandStartChild
    from loom.core.planner import Planner
    from loom.core.ticks import WorkflowTick
    from loom.effects.event_codec import EventCodec
    from loom.effects.ports import Binding
    from loom.runtime.journal import JournalCodec
    from loom.steps.context import Context
    from loom.steps.events import StartEvent
    from loom.steps.ports import Definition
    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import InMemoryStateStore, StateCheckpoint
    from loom.steps.workflow import Workflow


class _RunSlots:
    """Counts the runs of one workflow instance, and holds the runs that wait for their turn."""

    __slots__ = ("lent", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.lent: dict[LiveRun, LiveRun] = {}
        """Child runs that do not count, since the run that they descend from lends them its turn."""
        self.waiting: dict[LiveRun, Callable[[], None]] = {}
        """What begins each of them, in the order in which they came."""

    def end(self, live: LiveRun) -> None:
        """End a run: the child that borrowed its turn has that now, be it the run's own or lent to it."""
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
        decorate: RunDecorator | None = None,
    ) -> None:
        self._clock = clock
        self._decorate = decorate
        self._runs: dict[str, LiveRun] = {}
        # Workflows are keyed by identity: they may be models with an equality and no hash.
        self._turns: dict[int, _RunSlots] = {}
        # One workflow may be run on several event loops, each in its thread.
        self._turns_lock = threading.Lock()
        self._watchers: dict[asyncio.AbstractEventLoop, LoopWatcher] = {}
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
            keep_runtime(workflow, self)
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
        """Note a workflow that will use this runtime."""
        self._tracked[id(workflow)] = workflow

    @contextmanager
    def registering(self) -> Iterator[Self]:
        """Let workflows that are made within use this runtime."""
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
        if loop not in self._watchers:
            self._forget_closed_loops()
        run_id = run_id if run_id is not None else uuid.uuid4().hex
        if run_id in self._runs:
            raise RuntimeError(f"Workflow run with run_id '{run_id}' already exists.")
        adapter = MemoryAdapter(loop, self._clock_on(loop), run_id)
        outer = self._decorate(adapter) if self._decorate is not None else adapter
        definition = definition_of(workflow)
        if definition.is_verbose:
            from loom.effects.verbose import verbose_adapter  # few runs are

            outer = verbose_adapter(outer, definition.limits.timeout_s)
        code = live_code(definition)
        state = replace(resumed, run_id=run_id, outcome=None, is_running=True) if resumed is not None else None
        core = Run(code.planner, state, code.codec.field)
        watcher = self._watcher_on(loop)
        live = LiveRun(definition, run_id, core, adapter, outer, code.bindings, watcher, self._ended)
        live.codec = code.codec
        live.children = self
        if staged is not None:
            live.adopt_store(staged)
        self._runs[run_id] = live
        if parent is not None:
            self._parents[live] = parent
        watcher.add(live)
        live.first_tick = lambda: _first_tick(definition, run_id, outer.get_now(), start_event, staged, state)
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

    def _watcher_on(self, loop: asyncio.AbstractEventLoop) -> LoopWatcher:
        """The watcher of new runs on an event loop. While the loop ends it is a new one: the old one cancels all."""
        watcher = self._watchers.get(loop)
        if watcher is None or watcher.loop_ends:
            watcher = self._watchers[loop] = LoopWatcher(loop)
        return watcher

    def _forget_closed_loops(self) -> None:
        """Drop runs whose event loop was closed: they are lost, but must hold no name and no turn."""
        for loop, watcher in list(self._watchers.items()):
            if loop.is_closed():
                del self._watchers[loop]
                for live in list(watcher.runs):
                    self._ended(live)

    def _admit(self, live: LiveRun) -> None:
        """Begin at once, or when the workflow's limit allows it. A run's clock starts when it does."""
        limit = live.definition.limits.concurrent_runs
        if limit is not None:
            with self._turns_lock:
                turns = self._turns.setdefault(id(live.definition.instance), _RunSlots())
                if turns.running >= limit and not self._has_borrowed(turns, live):
                    live.held_back = partial(self._take_turn, turns, live)
                    # It begins at the end of another run, but in the context of the caller that asked for it now.
                    turns.waiting[live] = partial(copy_context().run, live.begin_in_turn)
                    return
                turns.running += live not in turns.lent
        live.begin()

    def _has_borrowed(self, turns: _RunSlots, live: LiveRun) -> bool:
        """Let a child use the turn of the run of the same workflow that it descends from, one child at a time.

        The other one waits for it: else both would wait for each other.
        """
        above, _ = self._parents.get(live, (None, 0))
        while above is not None:
            is_same = above.definition.instance is live.definition.instance
            if is_same and above not in turns.lent.values() and above not in turns.waiting:
                turns.lent[live] = above
                return True
            above, _ = self._parents.get(above, (None, 0))
        return False

    def _take_turn(self, turns: _RunSlots, live: LiveRun) -> bool:
        """Let a run that is held back count as running, though its turn has not come. False if it has."""
        with self._turns_lock:
            if turns.waiting.pop(live, None) is None:
                return False
            turns.running += 1
            return True

    def _ended(self, live: LiveRun) -> None:
        """Forget a run that is over or could not begin, and give its turn to others."""
        if self._runs.get(live.run_id) is live:
            del self._runs[live.run_id]
        parent, number = self._parents.pop(live, (None, 0))
        if parent is not None:
            live.ending()  # whatever it is, the parent is told
            notify_parent(parent, number, live.state, parent.now())
        if live.watcher.remove(live) and self._watchers.get(live.loop) is live.watcher:
            del self._watchers[live.loop]
        limit = live.definition.limits.concurrent_runs
        if limit is not None:
            for other, begin in self._give_turn_away(live, limit):
                other.on_loop(begin)

    def _give_turn_away(self, live: LiveRun, limit: int) -> list[tuple[LiveRun, Callable[[], None]]]:
        """The runs that may begin now that another is over. They count as running from here on."""
        with self._turns_lock:
            turns = self._turns.get(id(live.definition.instance))
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
                del self._turns[id(live.definition.instance)]
            return next_ones


def notify_parent(parent: LiveRun, number: int, child: BrokerState, now: float) -> None:
    """Tell a parent how its child has ended, unless the parent has ended itself."""
    outcome = child.outcome
    if outcome is None or outcome.status == "parked" or parent.is_done:
        return
    tick = TickChildEnded(at=now, child=number, status=outcome.status, event=outcome.event, failure=outcome.failure)
    parent.on_loop(parent.notify, tick)


def _first_tick(
    definition: Definition,
    run_id: str,
    now: float,
    start_event: StartEvent | None,
    staged: InMemoryStateStore[Any] | None,
    resumed: BrokerState | None,
) -> WorkflowTick:
    config = definition.config()
    if resumed is not None:
        return TickResume(at=now, away_s=max(0.0, now - resumed.at), config=config)
    return TickStartRun(
        at=now,
        run_id=run_id,
        config=config,
        event=definition.begun(live_code(definition).codec.record(start_event)) if start_event is not None else None,
        seed=definition.seed(run_id),
        store=staged.values() if staged is not None else {},
    )


class LiveCode(NamedTuple):
    """The code of runs in memory."""

    version: int
    bindings: dict[str, Binding]
    """Bodies by step."""
    planner: Planner
    codec: EventCodec


def live_code(definition: Definition) -> LiveCode:
    """What runs in memory need of a definition, made once for each version of it."""
    code: LiveCode | None = definition.live_code
    if code is None or code.version != definition.version:
        code = definition.live_code = _made(definition)
    return code


def _made(definition: Definition) -> LiveCode:
    if isinstance(definition, StepsDefinition):
        return LiveCode(definition.version, step_bindings(definition, LIVE_CODEC), STEPS, LIVE_CODEC)
    from loom.effects.flow_codec import FLOW_CODEC
    from loom.flows.planner import FlowPlanner
    from loom.runtime.flow import FlowDefinition, bodies_of

    assert isinstance(definition, FlowDefinition)
    bodies = bodies_of(definition.program, definition.instance.surroundings)
    return LiveCode(definition.version, bodies, FlowPlanner(definition.program), FLOW_CODEC)


class JournalRecord(NamedTuple):
    """One tick of a run: its place in the journal, which goes on across resumes, and its text, to be kept as it is."""

    seq: int
    data: str


class BasicRuntime(MemoryRuntime):
    """The runtime in memory. A run's journal can be read while the run or its handler lives, and restored later.

    With `keep_journals` the journal of every run is kept whole. Without it, a run that has more than `JOURNAL_TICKS`
    ticks before `journal` is called for it keeps none: a long run would hold all events that it ever had.
    """

    def __init__(self, *, keep_journals: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._keep_journals = keep_journals
        self._known: WeakValueDictionary[str, LiveRun] = WeakValueDictionary()
        self._began_at: WeakKeyDictionary[LiveRun, int] = WeakKeyDictionary()

    @property
    @override
    def is_launched(self) -> bool:
        """Always: runs need no launch here."""
        return True

    @override
    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> LiveRun:
        """Begin a run, or go on with a restored one."""
        live = super().start_run(workflow, run_id, start_event, staged, resumed)
        if self._keep_journals:
            live.keep_journal()
        self._known[live.run_id] = live
        if resumed is not None:
            self._began_at[live] = resumed.ticks
        return live

    def _find(self, run_id: str) -> LiveRun:
        live = self._known.get(run_id)
        if live is None:
            raise RuntimeError(f"No active workflow with run_id '{run_id}'.")
        return live

    async def journal(self, run_id: str) -> AsyncIterator[JournalRecord]:
        """The run's ticks from its start or resume, then the new ones as they come, until it ends.

        Raises `RuntimeError` if the run had too many ticks before this was called: see `BasicRuntime`.
        """
        live = self._find(run_id)
        live.keep_journal()
        ticks = live.journal
        if ticks is None:
            raise RuntimeError(
                f"The journal of run '{run_id}' was not kept: it had more than {JOURNAL_TICKS:,} ticks before anyone "
                "asked for it. Call journal() when the run begins, or use BasicRuntime(keep_journals=True)."
            )
        codec = _codec(live.definition, live.definition.serializer)
        first = self._began_at.get(live, 0)
        position = 0
        while True:
            is_done = live.is_done
            while position < len(ticks):
                yield JournalRecord(first + position, codec.encode(ticks[position]))
                position += 1
            if is_done:
                return
            if position == len(ticks) and not live.is_done:
                await live.wait_news()

    def restore(
        self,
        workflow: Workflow,
        snapshot: dict[str, Any] | None,
        records: Iterable[JournalRecord],
        serializer: BaseSerializer | None = None,
    ) -> Context[Any]:
        """A context that goes on where the records end.

        `snapshot` is a `Context.to_dict()`, None for the beginning; records that it covers are skipped. A record that
        is missing is a `ValueError`. Edits of the store that the records tell of are made to the snapshot's store.
        """
        from loom.runtime.journal import catch_up
        from loom.steps.context import Context
        from loom.steps.planner import StepsPlanner
        from loom.steps.state_store import InMemoryStateStore

        definition = definition_of(workflow)
        used = serializer if serializer is not None else definition.serializer
        context: Context[Any] = Context(workflow, serializer=serializer)
        state, store = BrokerState(), None
        if snapshot is not None:
            state, store = _load(workflow, snapshot, used)
        ticks = list(_tail(records, state.ticks, _codec(definition, used)))
        if ticks:
            state = catch_up(state, ticks, StepsPlanner(), _saved_sequence(snapshot))
            if store is None:
                store = InMemoryStateStore(state_type=definition.state_type)
            _repeat_edits(store, ticks)
        context._restored, context._staged = state, store
        return context

    def state_checkpoint(self, run_id: str) -> StateCheckpoint:
        """The run's committed state by reference; its `diff` with an earlier one is a JSON Patch."""
        return self._find(run_id).store.checkpoint()


def _codec(definition: Definition, serializer: BaseSerializer) -> JournalCodec:
    from loom.runtime.journal import JournalCodec

    return JournalCodec(serializer, definition.state_type)


def _load(
    workflow: Workflow, snapshot: dict[str, Any], serializer: BaseSerializer
) -> tuple[BrokerState, InMemoryStateStore[Any] | None]:
    from loom.steps.context_dict import restore

    stamp = snapshot.get("last_alive_stamp")
    return restore(workflow, snapshot, serializer, now=stamp if isinstance(stamp, int | float) else None)


def _saved_sequence(snapshot: dict[str, Any] | None) -> int:
    extra = snapshot.get("loom") if snapshot is not None else None
    return int(extra.get("sequence", 0)) if isinstance(extra, dict) else 0


def _tail(records: Iterable[JournalRecord], expected: int, codec: JournalCodec) -> Iterator[WorkflowTick]:
    """The ticks from the expected number on, without a gap."""
    for record in records:
        if record.seq < expected:
            continue
        if record.seq > expected:
            raise ValueError(f"Journal gap: expected seq {expected}, got {record.seq}")
        yield codec.decode(record.data)
        expected += 1


def _repeat_edits(store: InMemoryStateStore[Any], ticks: list[WorkflowTick]) -> None:
    from loom.steps.state_store import StoreEdit

    for tick in ticks:
        if isinstance(tick, TickStartRun) and tick.store:
            store.apply_edit(StoreEdit(store.version, tick.store))
        elif isinstance(tick, TickEditStore):
            store.apply_edit(StoreEdit(store.version, tick.changed, tick.removed))


basic_runtime = BasicRuntime()


def get_current_runtime() -> ports.RuntimePort:
    """The runtime of an enclosing `with runtime.registering():`, else the default one."""
    return ports.registering_runtime.get() or basic_runtime

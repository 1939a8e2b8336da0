"""What must hold of every run, and the life of a work item as a table. Tests and simulations check it after every tick.

`violations` looks at one state. `wrong_changes` looks at a transition: it reduces the tick on a `TracedDraft`, which
notes each move of a work item, and compares the moves with `TABLE`.

The state of a work item is a place in `InternalStepWorkerState`, so no field says it twice:

- *queued*: in `queue`, first in first out. No worker is free, or the run is paused.
- *executing*: in `in_progress`. An execution holds a worker, and a process holds its body.
- *suspended*: in `suspended` and not in `ready`. The body waits and holds no worker; it may have left its process.
- *ready*: in `suspended` and in `ready`. A wait was answered, and the body goes on as soon as a worker is free.
- *delayed*: in `delayed`. The last attempt failed, and a timer will bring the next one.

An item is *new* before the kernel has it. It ends *settled*, if its own work is over, or *dropped*, if its run is over.
A run that failed keeps its items as they were, in its outcome, for a retry. A cancelled or parked run keeps them too.

The kernel makes no other changes than the table lists. The picture in `docs/architecture.md` is drawn from it, and one
test for each row makes that change happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from loom.core.body_effects import ANY, CHILD
from loom.core.reducer import Draft, no_fields, transition
from loom.core.state import MOVING, QUESTION, num_workers
from loom.core.ticks import (
    TickAwaitEvent,
    TickEndWait,
    TickLeaveStep,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickSleep,
    TickStartChild,
    TickStepResult,
    TickTimerFired,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.persistent import Map
    from loom.core.planner import Planner
    from loom.core.reducer import FieldReader
    from loom.core.state import BrokerState, InternalStepWorkerState, RunFields
    from loom.core.ticks import WorkflowTick

ItemState = Literal["new", "queued", "executing", "suspended", "ready", "delayed", "settled", "dropped"]


class Change(NamedTuple):
    """One row of the table: an item in state `before` is in state `after` once `event` has happened."""

    before: ItemState
    event: str
    after: ItemState
    ticks: tuple[type[WorkflowTick], ...] = ()
    """The input ticks that may cause it; empty if any tick may, because it follows from something else in the run."""


_RESULT = (TickStepResult,)
_RUN_OVER = "the run is over or cancelled"

TABLE: tuple[Change, ...] = (
    Change("new", "the planner wants it, and a worker is free", "executing"),
    Change("new", "the planner wants it, and it has to wait its turn", "queued"),
    Change("queued", "a worker is free", "executing"),
    Change(
        "executing",
        "its body waits, sleeps or has left",
        "suspended",
        (TickAwaitEvent, TickSleep, TickStartChild, TickLeaveStep, TickRefuseEvent),
    ),
    Change("suspended", "a wait was answered or has timed out", "ready"),
    Change("ready", "a worker is free, or its body went on by itself", "executing"),
    Change("suspended", "its body went on by itself", "executing", (TickEndWait, TickStepResult)),
    Change("executing", "it failed, and the next attempt has a delay", "delayed", _RESULT),
    Change("delayed", "the delay is over", "queued", (TickTimerFired, TickSkip)),
    Change("executing", "its body has to run again", "queued", (TickStepResult, TickLeaveStep)),
    Change("executing", "its process is gone", "queued", (TickResume, TickRetryRun)),
    Change("suspended", "the run is retried, and its wait is gone", "queued", (TickRetryRun,)),
    Change("executing", "it returned, or failed for good", "settled", _RESULT),
    Change("executing", "its event was refused", "settled", (TickRefuseEvent,)),
    Change("queued", _RUN_OVER, "dropped"),
    Change("executing", _RUN_OVER, "dropped"),
    Change("suspended", _RUN_OVER, "dropped"),
    Change("ready", _RUN_OVER, "dropped"),
    Change("delayed", _RUN_OVER, "dropped"),
)
"""Every change of a work item between two states."""

_BY_STATES: dict[tuple[ItemState, ItemState], tuple[Change, ...]] = {
    (row.before, row.after): tuple(r for r in TABLE if (r.before, r.after) == (row.before, row.after)) for row in TABLE
}


def change_of(before: ItemState, after: ItemState, tick: WorkflowTick) -> Change | None:
    """Find the row for a change that this input tick has caused; None if the table has no such change."""
    rows = _BY_STATES.get((before, after), ())
    return next((row for row in rows if not row.ticks or type(tick) in row.ticks), None)


def states_of(worker: InternalStepWorkerState) -> dict[int, ItemState]:
    """Return the state of each work item of a step."""
    states: dict[int, ItemState] = {item.id: "queued" for item in worker.queue}
    states.update((item.id, "delayed") for item in worker.delayed.values())
    states.update((item, "executing") for item in worker.in_progress)
    states.update((item, "suspended") for item in worker.suspended)
    states.update((item, "ready") for item in worker.ready)
    return states


def violations(state: BrokerState) -> list[str]:
    """List every rule that a state breaks, in words; empty for a sound state."""
    found = [f"{step}: {problem}" for step, worker in sorted(state.workers.items()) for problem in _of_worker(worker)]
    return [*found, *_of_counts(state), *_of_waiters(state), *_of_lifecycle(state), *_of_cleanup(state)]


def _of_worker(worker: InternalStepWorkerState) -> Iterator[str]:
    slots = [execution.worker_id for execution in worker.in_progress.values()]
    if len(set(slots)) != len(slots):
        yield "two executions share a worker id"
    if sum(1 << slot for slot in set(slots)) != worker.busy:
        yield "the busy bits do not match the executions"
    if any(item not in worker.suspended for item in worker.ready):
        yield "something is ready to go on that is not suspended"
    if len(set(worker.ready)) != len(worker.ready):
        yield "something is ready to go on twice"
    if any(not execution.live for execution in worker.in_progress.values()):
        yield "an execution holds a worker, but no process its body"
    if any(execution.live and execution.waits_on == ANY for execution in worker.suspended.values()):
        yield "a process holds a body that has left"
    if any(not execution.waits_on for execution in worker.suspended.values()):
        yield "an execution is suspended in no wait"
    ids = [item.id for item in worker.queue] + [item.id for item in worker.delayed.values()]
    ids += [*worker.in_progress, *worker.suspended]
    if len(set(ids)) != len(ids):
        yield "a work item is in two places"


def _of_counts(state: BrokerState) -> Iterator[str]:
    workers = state.workers.values()
    active = sum(len(w.queue) + len(w.in_progress) + len(w.ready) for w in workers) + len(state.due)
    if active != state.active:
        yield f"active is {state.active}, but {active} pieces of work are"
    sleeping = sum(timer.purpose in MOVING for timer in state.timers.values())
    if sleeping != state.asleep:
        yield f"asleep is {state.asleep}, but {sleeping} timers will bring work back"


def _of_waiters(state: BrokerState) -> Iterator[str]:
    listed = {number for numbers in state.waiting.index.values() for number in numbers}
    existing = {number for worker in state.workers.values() for number in worker.collected_waiters}
    if listed != existing and state.is_running:
        yield "the index of waiters does not match the waiters"
    opened = {number: (item, key) for item, keys in state.waiting.open.items() for key, number in keys.items()}
    if any(opened.get(number) != (child.item, child.key) for number, child in state.children.items()):
        yield "a child run is under way that nobody waits for"
    if sum(key.startswith(CHILD) for _, key in opened.values()) != len(state.children):
        yield "somebody waits for a child run that is not under way"
    left = [
        item
        for worker in state.workers.values()
        for item, execution in worker.suspended.items()
        if execution.waits_on == ANY and item not in set(worker.ready)
    ]
    if state.is_running and any(item not in state.waiting.open for item in left):
        yield "a body has left, and nothing will bring it back"
    doubted = {waiter.number for of_item in state.waiting.doubted.values() for waiter in of_item.values()}
    if state.is_running and not set(state.waiting.asked) <= existing | doubted | {QUESTION}:
        yield "a question is kept whose waiter is gone"
    kept = sum(len(events) for events in state.waiting.kept.values())
    if kept != state.waiting.kept_count:
        yield "the number of kept events is wrong"


def _of_lifecycle(state: BrokerState) -> Iterator[str]:
    if state.is_running and state.outcome is not None:
        yield "the run is over and running"
    if state.idle_since is not None and not state.is_idle():
        yield "idle_since is set, but the run is not idle"
    if state.children and state.outcome is not None and state.outcome.status != "parked":
        yield "the run is over, but a child run is under way"
    if state.active < 0 or state.asleep < 0:
        yield "a count is negative"
    if state.due and not state.paused:
        yield "a timer's time has come, but its planner was not asked"
    deepest = state.config.max_depth
    for step, worker in state.workers.items():
        items = (item for item in (*worker.queue, *worker.delayed.values()))
        executions = (*worker.in_progress.values(), *worker.suspended.values())
        depth = max((item.event.depth for item in (*items, *(execution.item for execution in executions))), default=0)
        if deepest is not None and depth >= deepest and state.is_running:
            yield f"{step}: work is deeper than it may be, and the run goes on"
        limit = num_workers(state.config, step)
        if limit and worker.queue and len(worker.in_progress) < limit and state.is_running and not state.paused:
            yield f"{step}: work is queued although a worker is free"


def _of_cleanup(state: BrokerState) -> Iterator[str]:
    if state.cleanup is None or not state.is_running:
        return
    if state.deadline is None or state.timeout_timer is None:
        yield "the clean-up has no bound on time"
    for step, worker in state.workers.items():
        if step != state.cleanup.step and states_of(worker):
            yield f"{step}: it has work although the run is at its clean-up"


class Move(NamedTuple):
    """A work item that went from one state to another, and the row of the table that allows it; None if none does."""

    item: int
    before: ItemState
    after: ItemState
    change: Change | None


class TracedDraft(Draft):
    """A draft that notes each move of a work item. Slower than a plain one; what it makes of a tick is the same.

    The kernel moves an item by assigning `workers`, so each assignment is compared with what was there. An item that
    is nowhere for a moment, between the end of an attempt and its place for the next, has not moved yet.
    """

    def __init__(self, state: BrokerState, planner: Planner, read_field: FieldReader) -> None:
        self._moves: list[tuple[int, ItemState, ItemState]] = []
        self._in_hand: dict[int, ItemState] = {}
        self._work: Map[str, InternalStepWorkerState] | None = None
        super().__init__(state, planner, read_field)
        self._work = work = _work_of(state)
        self._states = {step: states_of(worker) for step, worker in work.items()}

    if not TYPE_CHECKING:
        __slots__ = ("_in_hand", "_moves", "_states", "_work")
        _slot = Draft.workers

        @property
        def workers(self) -> Map[str, InternalStepWorkerState]:
            """The work of the run by step, as in any draft."""
            return TracedDraft._slot.__get__(self)

        @workers.setter
        def workers(self, workers: Map[str, InternalStepWorkerState]) -> None:
            TracedDraft._slot.__set__(self, workers)
            if self._work is not None:
                self._trace(self._work, _work_of(self))

    def _trace(self, before: Map[str, InternalStepWorkerState], work: Map[str, InternalStepWorkerState]) -> None:
        self._work = work
        for step in sorted({*before, *work}):
            worker = work.get(step)
            if worker is before.get(step):
                continue
            was, now = self._states.get(step, {}), states_of(worker) if worker is not None else {}
            self._states[step] = now
            for item in sorted({*was, *now}):
                self._moved(item, was.get(item), now.get(item), is_dropped=self.outcome is not None or not work)

    def _moved(self, item: int, was: ItemState | None, now: ItemState | None, *, is_dropped: bool) -> None:
        if was == now:
            return
        if now is not None:
            self._moves.append((item, was or self._in_hand.pop(item, "new"), now))
        elif was is not None and is_dropped:
            self._moves.append((item, was, "dropped"))
        elif was is not None:
            self._in_hand[item] = was

    def take_moves(self, tick: WorkflowTick) -> list[Move]:
        """Return the moves since the last call, which this tick has caused. Call it after each transition."""
        moves = [*self._moves, *((item, was, "settled") for item, was in sorted(self._in_hand.items()))]
        self._moves, self._in_hand = [], {}
        return [Move(item, was, now, change_of(was, now, tick)) for item, was, now in moves if was != now]


def _work_of(run: RunFields) -> Map[str, InternalStepWorkerState]:
    """Return the work of a run by step. A failed run has it in its outcome, where a retry finds it."""
    abandoned = run.outcome.abandoned if run.outcome is not None else None
    return abandoned.workers if abandoned is not None and not run.workers else run.workers


def moves(state: BrokerState, tick: WorkflowTick, planner: Planner, read_field: FieldReader = no_fields) -> list[Move]:
    """Return the moves of work items in the transition of an input tick, in order."""
    draft = TracedDraft(state, planner, read_field)
    transition(draft, tick)
    return draft.take_moves(tick)


def wrong_changes(
    state: BrokerState, tick: WorkflowTick, planner: Planner, read_field: FieldReader = no_fields
) -> list[str]:
    """Return each move of a work item that the table does not allow, in words; empty if all is well."""
    return wrong_moves(moves(state, tick, planner, read_field), tick)


def wrong_moves(made: list[Move], tick: WorkflowTick) -> list[str]:
    """Return the moves that the table does not allow, in words."""
    return [
        f"item {item} went from {before} to {after} by {type(tick).__name__}, which is no change of a work item"
        for item, before, after, change in made
        if change is None
    ]

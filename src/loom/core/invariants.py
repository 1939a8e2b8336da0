"""What must hold of every state, whatever has happened. Checked by tests and simulations after every tick. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.body_effects import ANY, CHILD
from loom.core.config import num_workers
from loom.core.state import MOVING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.state import BrokerState, InternalStepWorkerState


def violations(state: BrokerState) -> list[str]:
    """Every rule that a state breaks, in words; empty for a sound state."""
    found = [f"{step}: {problem}" for step, worker in sorted(state.workers.items()) for problem in _of_worker(worker)]
    return [*found, *_of_counts(state), *_of_waiters(state), *_of_lifecycle(state)]


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
    for step, worker in state.workers.items():
        limit = num_workers(state.config, step)
        if limit and worker.queue and len(worker.in_progress) < limit and state.is_running and not state.paused:
            yield f"{step}: work is queued although a worker is free"

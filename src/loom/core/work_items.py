"""The life of a work item, as data: its states, and a table of all changes between them. Pure.

A state is a place in `InternalStepWorkerState`, so no field says it twice:

- *queued*: in `queue`, first in first out. No worker is free, or the run is paused.
- *executing*: in `in_progress`. An execution holds a worker, and a process holds its body.
- *suspended*: in `suspended` and not in `ready`. The body waits and holds no worker; it may have left its process.
- *ready*: in `suspended` and in `ready`. A wait was answered, and the body goes on as soon as a worker is free.
- *delayed*: in `delayed`. The last attempt failed, and a timer will bring the next one.

An item is *new* before the kernel has it. It ends *settled*, if its own work is over, or *dropped*, if its run is over.
A run that failed keeps its items as they were, in its outcome, for a retry. A cancelled or parked run keeps them too.

The invariants check that the kernel makes no other change than those in the table. The diagram in
`docs/architecture.md` is drawn from it, and one test for each row makes that change happen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from loom.core.ticks import (
    TickAwaitEvent,
    TickEndWait,
    TickLeaveStep,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickSleep,
    TickStartChild,
    TickStepResult,
    TickTimerFired,
)

if TYPE_CHECKING:
    from loom.core.state import InternalStepWorkerState
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
_RUN_OVER = "the run is over"

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
    Change("delayed", "the delay is over", "queued", (TickTimerFired,)),
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


def diagram() -> str:
    """Draw the table as the text of a Mermaid state diagram, in the order of its rows."""
    lines = ["stateDiagram-v2"]
    for before, event, after, _ in TABLE:
        start = "[*]" if before == "new" else before
        lines.append(f"    {start} --> {after}: {event}")
    lines += [f"    {end} --> [*]" for end in ("settled", "dropped")]
    return "\n".join(lines)

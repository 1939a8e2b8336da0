"""The life of a run as a table. Tests check it after every tick, and a picture in the docs is drawn from it.

No field holds where a run is in its life; `life_of` works it out from the state:

- *new*: the run has no start tick yet.
- *at work*: something of it executes or could execute.
- *asleep*: nothing can happen now, and a timer of the run's own will move it.
- *idle*: only input from outside can move it.
- *paused*: it takes in what comes, and begins nothing.
- *parked*: its code or data do not fit. It keeps its work, and users see it as running.
- *completed*, *failed*, *cancelled*: it is over. A failed run keeps its work for a retry; a run out of time has failed.

The table lists every change that one input tick can make. Where a run is in memory is another matter: that is its
residence in a process, with a table of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from loom.core.ticks import (
    TickCancelRun,
    TickContinueRun,
    TickPauseRun,
    TickResume,
    TickRetryRun,
    TickStartRun,
)

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick

Life = Literal["new", "at work", "asleep", "idle", "paused", "parked", "completed", "failed", "cancelled"]


class LifeChange(NamedTuple):
    """One row of the table: a run in one of `before` can be in one of `after` once `event` has happened."""

    before: tuple[Life, ...]
    event: str
    after: tuple[Life, ...]
    ticks: tuple[type[WorkflowTick], ...] = ()
    """The input ticks that may cause it; empty if any tick may, because it follows from what the run does."""


_AWAKE: tuple[Life, ...] = ("at work", "asleep", "idle")
_RUNNING: tuple[Life, ...] = (*_AWAKE, "paused")

TABLE: tuple[LifeChange, ...] = (
    LifeChange(("new",), "its start is stored", ("at work",), (TickStartRun,)),
    LifeChange(("at work", "idle"), "only a timer can move it", ("asleep",)),
    LifeChange(("at work", "asleep"), "only input can move it", ("idle",)),
    LifeChange(("asleep",), "its timer is due, or input comes", ("at work",)),
    LifeChange(("idle",), "input comes, or a wait times out", ("at work",)),
    LifeChange(_AWAKE, "a caller pauses it", ("paused",), (TickPauseRun,)),
    LifeChange(("paused",), "a caller resumes it", _AWAKE, (TickContinueRun,)),
    LifeChange(("paused",), "a caller cancels it, and it cleans up", ("at work",), (TickCancelRun,)),
    LifeChange(_RUNNING, "its code or data do not fit", ("parked",)),
    LifeChange(("parked",), "it is recovered with code that fits", _RUNNING, (TickResume,)),
    LifeChange(_RUNNING, "it has its result", ("completed",)),
    LifeChange(_RUNNING, "work failed for good, or its time is over", ("failed",)),
    LifeChange(("failed",), "a caller retries it", _RUNNING, (TickRetryRun,)),
    LifeChange(_RUNNING, "it was cancelled, and has cleaned up", ("cancelled",)),
    LifeChange(("parked",), "a caller cancels it", ("cancelled",), (TickCancelRun,)),
    LifeChange(("parked",), "a caller cancels it, out of time", ("failed",), (TickCancelRun,)),
)
"""Every change in the life of a run. Rows differ in where they begin, where they lead or which ticks they need."""


def life_of(state: BrokerState) -> Life:
    """Say where a run is in its life."""
    if state.outcome is not None:
        return "failed" if state.outcome.status == "timed_out" else state.outcome.status
    if not state.run_id:
        return "new"
    if state.paused:
        return "paused"
    if state.is_idle():
        return "idle"
    return "asleep" if state.is_asleep() else "at work"


def life_change(before: Life, after: Life, tick: WorkflowTick) -> LifeChange | None:
    """Find the row for a change that this input tick has caused; None if the table has no such change."""
    rows = (row for row in TABLE if before in row.before and after in row.after)
    return next((row for row in rows if not row.ticks or type(tick) in row.ticks), None)

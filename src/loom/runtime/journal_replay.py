"""From a snapshot and the ticks that came after it to the run as it was then.

A context dict gives executions and timers new numbers when it is loaded, while the ticks behind it still use the old
ones. Numbers that were given after the snapshot have all moved by the same distance; older ones are found by the work
item, and timers by their due time. May import loom.core and loom.effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.persistent import EMPTY_FIFO
from loom.core.reducer import advance
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickPublishEvent,
    TickRecordResult,
    TickRefuseEvent,
    TickResume,
    TickSleep,
    TickStartChild,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.effects.convert import read_field

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.planner import Planner
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick

_NOBODY = "restoring"


def catch_up(state: BrokerState, ticks: Iterable[WorkflowTick], planner: Planner, saved_sequence: int) -> BrokerState:
    """The state after the ticks, taken up by nobody. `saved_sequence` is the last number that the snapshot knew."""
    numbers = _Numbers(0, 0)
    for position, tick in enumerate(ticks):
        if position == 0 and state.is_running:
            state = replace(state, run_id=_NOBODY)
            if not isinstance(tick, TickResume):
                state = _revived(state, planner)
                numbers = _Numbers(saved_sequence, state.sequence - saved_sequence)
        if isinstance(tick, TickResume):
            numbers = _Numbers(0, 0)  # whoever took the run up used the numbers of this very state
        state, _ = advance(state, numbers.translate(state, tick), planner, read_field)
    outcome = state.outcome
    if outcome is not None and outcome.status in ("cancelled", "parked"):
        state = replace(state, outcome=None, is_running=True)
    return replace(state, run_id="")


def _revived(state: BrokerState, planner: Planner) -> BrokerState:
    """A loaded state as the process had it that wrote the snapshot: bodies under way, waits in their bodies."""
    ready = {step: worker.ready for step, worker in state.workers.items()}
    for step, worker in state.workers.items():
        # Bodies that were to go on had no worker yet: those that were executing come first.
        state = replace(state, workers=state.workers.set(step, replace(worker, ready=EMPTY_FIFO)))
    ticks = state.ticks
    state, _ = advance(state, TickResume(at=state.at, more=True), planner, read_field)
    for step, worker in state.workers.items():
        suspended = worker.suspended
        for item, execution in worker.suspended.items():
            suspended = suspended.set(item, replace(execution, live=True))
        alive = replace(worker, suspended=suspended, ready=ready.get(step, EMPTY_FIFO))
        state = replace(state, workers=state.workers.set(step, alive))
    return replace(state, ticks=ticks)


class _Numbers:
    """What the numbers in the ticks are called in the state."""

    __slots__ = ("_offset", "_saved")

    def __init__(self, saved: int, offset: int) -> None:
        self._saved = saved
        self._offset = offset

    def translate(self, state: BrokerState, tick: WorkflowTick) -> WorkflowTick:
        """The tick in the state's numbers."""
        if not self._saved:
            return tick
        match tick:
            case TickStepResult() | TickEndWait() | TickLeaveStep() | TickRefuseEvent():
                return replace(tick, seq=self._execution(state, tick.step, tick.item, tick.seq))
            case TickAwaitEvent() | TickSleep() | TickRecordResult() | TickStartChild():
                return replace(tick, source=self._source(state, tick.source))
            case TickAddEvent() | TickPublishEvent() | TickEditStore():
                return replace(tick, source=self._source(state, tick.source)) if tick.source is not None else tick
            case TickTimerFired():
                return replace(tick, timer=self._timer(state, tick))
            case TickTimeout():
                return replace(tick, timer=state.timeout_timer or tick.timer)
            case _:
                return tick

    def _source(self, state: BrokerState, source: Source) -> Source:
        return replace(source, seq=self._execution(state, source.step, source.item, source.seq))

    def _execution(self, state: BrokerState, step: str, item: int, seq: int) -> int:
        if seq > self._saved:
            return seq + self._offset
        worker = state.workers.get(step)
        execution = worker.execution(item) if worker is not None else None
        return execution.seq if execution is not None else seq

    def _timer(self, state: BrokerState, tick: TickTimerFired) -> int:
        if tick.timer > self._saved:
            return tick.timer + self._offset
        due = [
            (timer.due, number)
            for number, timer in state.timers.items()
            if timer.due <= tick.at and timer.purpose != "timeout" and number <= self._saved + self._offset
        ]
        return min(due)[1] if due else tick.timer

"""Drives a flow on the pure engine: calls end at once and in order, timers fire when nothing else can happen.

The journal is kept in the form in which it is stored. A crash is a prefix of it: what was not committed never was.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from loom.core.commands import (
    CommandCancelTimer,
    CommandCompleteRun,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartTimer,
)
from loom.core.invariants import violations
from loom.core.records import EventRecord
from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import (
    TickContinueRun,
    TickPauseRun,
    TickResume,
    TickRetryRun,
    TickStartRun,
    TickStepResult,
    TickTimerFired,
    WorkflowTick,
)
from loom.effects.flow_result import FlowResult, flow_result
from loom.flows.calls import (
    OUTCOME_KIND,
    START_KIND,
    ActionCall,
    ActionOutcome,
    ActionReport,
    FlowEnd,
    FlowStart,
    LoopIteration,
)
from loom.flows.invariants import flow_violations
from loom.flows.planner import FlowPlanner, flow_config
from loom.flows.program import Program
from loom.store import codec

EPOCH = 1_700_000_000.0
RUN_ID = "run"
_TURNS = 20_000


class Stuck(AssertionError):
    """Nothing can happen any more, and the flow has not ended."""


def worked(call: ActionCall) -> ActionOutcome:
    """What the activity does: it fails as often as it is told, by its number of attempts."""
    given = call.inputs["input"]
    if call.attempt < given["failures"]:
        return ActionOutcome("Failed", code="Flaky", message=f"attempt {call.attempt}", error_type="flaky")
    return ActionOutcome(outputs={"worked": given["value"]})


def stored(state: BrokerState) -> BrokerState:
    """The state as it comes back from where it was stored."""
    return codec.decode_state(RUN_ID, codec.encode_state(state))


@dataclass
class Moment:
    """One tick and what followed on it."""

    tick: WorkflowTick
    state: BrokerState
    cursors: list[int] = field(default_factory=list)
    iterations: list[LoopIteration] = field(default_factory=list)
    calls: list[ActionCall] = field(default_factory=list)
    ended_well: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Actions that have succeeded, each with the iterations that it is in."""


class Driver:
    """One run of a flow, from its start or from a stored state."""

    def __init__(
        self,
        program: Program,
        state: BrokerState | None = None,
        *,
        restores: bool = False,
        pauses: frozenset[int] = frozenset(),
    ) -> None:
        self.program = program
        self.now = EPOCH if state is None else state.at
        self.moments: list[Moment] = []
        self._restores = restores
        self._pauses = pauses
        """The ticks after which the run is paused, until nothing happens any more."""
        self._planner = FlowPlanner(program)
        self._run = Run(self._planner, state)
        self._timers: list[tuple[float, int]] = []
        self._cancelled: set[int] = set()
        self._work: deque[TickStepResult] = deque()
        self._end: FlowEnd | None = None
        self.mended = False
        """Whether calls succeed from now on."""
        if state is None:
            event = EventRecord(START_KIND, FlowStart())
            self.happen(TickStartRun(at=EPOCH, run_id=RUN_ID, config=flow_config(program), event=event, seed=7))
        else:
            self.happen(TickResume(at=self.now))

    def happen(self, tick: WorkflowTick) -> None:
        """One tick, as it is read from the journal, and what follows on it."""
        tick = codec.decode_tick(codec.encode_tick(tick), RUN_ID)
        self._run.feed(tick)
        self._run.drain()
        batch = self._run.flush()
        state = self._run.state
        assert violations(state) == []
        assert flow_violations(state, self.program) == []
        [reduced] = batch.ticks
        moment = Moment(reduced, state)
        self.moments.append(moment)
        for command in batch.commands:
            self._carry_out(command, moment)
        if self._restores and self._end is None:
            self._run = Run(self._planner, stored(state))

    def _carry_out(self, command: Any, moment: Moment) -> None:
        match command:
            case CommandRunWorker():
                call = command.item.event.body
                moment.calls.append(call)
                mended = ActionOutcome(outputs={"worked": call.inputs["input"]["value"]})
                outcome = EventRecord(OUTCOME_KIND, mended if self.mended else worked(call))
                self._work.append(
                    TickStepResult(
                        at=self.now, step=command.step, item=command.item.id, seq=command.seq, returned=(outcome,)
                    )
                )
            case CommandStartTimer():
                heapq.heappush(self._timers, (command.due, command.seq))
            case CommandCancelTimer():
                self._cancelled.add(command.seq)
            case CommandPublishEvent():
                moment.cursors.append(command.cursor)
                body = command.event.body if isinstance(command.event, EventRecord) else None
                if isinstance(body, LoopIteration):
                    moment.iterations.append(body)
                elif isinstance(body, ActionReport) and body.status == "Succeeded":
                    moment.ended_well.append((body.name, body.repetition))
            case CommandCompleteRun():
                self._end = command.result.body

    @property
    def state(self) -> BrokerState:
        """The state now."""
        return self.moments[-1].state

    def retry(self) -> FlowResult:
        """Go on with a flow that has failed."""
        self._end = None
        self.happen(TickRetryRun(at=self.now))
        return self.go_on()

    def go_on(self) -> FlowResult:
        """To the end."""
        for _ in range(_TURNS):
            if self._end is not None:
                return flow_result(self._end)
            if len(self.moments) in self._pauses:
                self.happen(TickPauseRun(at=self.now))
            self.happen(self._next())
        raise Stuck(f"no end after {_TURNS} ticks")

    def _next(self) -> WorkflowTick:
        if self._work:
            return self._work.popleft()
        while self._timers:
            due, number = heapq.heappop(self._timers)
            if number not in self._cancelled:
                self.now = max(self.now, due)
                return TickTimerFired(at=self.now, timer=number)
        if self.state.paused:
            return TickContinueRun(at=self.now)
        raise Stuck(f"nothing can happen: {self.state}")

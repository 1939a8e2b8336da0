"""Plays a flow on the pure reducer: a virtual clock, scripted answers for its calls, and a second opinion at the end.

Every play keeps its journal, writes it down, reads it again and reduces it from the beginning: the state must be the
same, byte for byte. `recover_always` throws the run away after every batch and goes on with what was written down.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loom.core.commands import (
    CommandCancelTimer,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartTimer,
)
from loom.core.records import EventRecord
from loom.core.reducer import replay
from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import TickResume, TickStartRun, TickStepResult, TickTimerFired, WorkflowTick
from loom.effects.flow_result import FlowResult, flow_result
from loom.flows.calls import OUTCOME_KIND, START_KIND, ActionCall, ActionOutcome, ActionReport, FlowStart, LoopIteration
from loom.flows.planner import FlowPlanner, flow_config
from loom.flows.program import Program
from loom.runtime.flow import load
from loom.store import codec

EPOCH = 1_700_000_000.0
"""2023-11-14T22:13:20Z."""

Answer = Callable[[ActionCall], ActionOutcome]

_TURNS = 100_000
_ENDED = frozenset({"Succeeded", "Failed", "TimedOut"})


@dataclass
class Played:
    """How a flow ended, and everything that it did meanwhile."""

    result: FlowResult
    at: float
    """When it ended, in seconds from its start."""
    published: list[Any] = field(default_factory=list)
    calls: list[tuple[float, ActionCall]] = field(default_factory=list)
    """With the seconds from the start."""
    ticks: list[WorkflowTick] = field(default_factory=list)
    state: BrokerState = field(default_factory=BrokerState)
    end: Any = None
    """What `result` was made of."""

    @property
    def status(self) -> str:
        return self.result.status

    @property
    def statuses(self) -> dict[str, str]:
        """The actions' statuses by name."""
        return {name: action.status for name, action in self.result.actions.items()}

    def outputs(self, name: str) -> Any:
        return self.result.actions[name].outputs

    def error(self, name: str) -> str:
        """The code and the message of an action's error."""
        error = self.result.actions[name].error
        assert error is not None, f"{name} has no error"
        return f"{error['code']}: {error['message']}"

    @property
    def reports(self) -> list[ActionReport]:
        return [body for body in self.published if isinstance(body, ActionReport)]

    @property
    def iterations(self) -> list[LoopIteration]:
        return [body for body in self.published if isinstance(body, LoopIteration)]

    def executions(self, name: str) -> int:
        """How often an action has come to an end of its own."""
        return sum(report.name == name and report.status in _ENDED for report in self.reports)

    def ends(self) -> list[str]:
        """The actions that came to an end of their own, in that order."""
        return [report.name for report in self.reports if report.status in _ENDED]


def program_of(definition: Any, limits: Any = None) -> Program:
    """The compiled flow, as `loom.load` makes it."""
    return load(definition, name="flow", limits=limits).program


def nobody(call: ActionCall) -> ActionOutcome:
    raise AssertionError(f"nobody answers {call.type} '{call.action}': {call.inputs}")


class Player:
    """One run."""

    def __init__(self, program: Program, answer: Answer, recover_always: bool = False) -> None:
        self._program = program
        self._answer = answer
        self._recover_always = recover_always
        self._run = Run(FlowPlanner(program))
        self._now = EPOCH
        self._timers: list[tuple[float, int]] = []
        self._cancelled: set[int] = set()
        self._finished: list[tuple[float, int, TickStepResult]] = []
        self.played = Played(FlowResult(""), 0.0)

    def play(self, start: FlowStart, seed: int = 7, lasting: Callable[[ActionCall], float] | None = None) -> Played:
        """Run to the end. `lasting` says how many seconds a call takes; none by default."""
        config = flow_config(self._program)
        event = EventRecord(START_KIND, start)
        self._run.feed(TickStartRun(at=self._now, run_id="run-1", config=config, event=event, seed=seed))
        for _ in range(_TURNS):
            end = self._turn(lasting)
            if end is not None:
                return self._over(end)
        raise AssertionError(f"the flow has not ended after {_TURNS} turns")

    def _turn(self, lasting: Callable[[ActionCall], float] | None) -> Any:
        self._run.drain()
        batch = self._run.flush()
        self.played.ticks += batch.ticks
        for command in batch.commands:
            match command:
                case CommandPublishEvent(event=EventRecord(body=body)):
                    self.played.published.append(body)
                case CommandStartTimer():
                    heapq.heappush(self._timers, (command.due, command.seq))
                case CommandCancelTimer():
                    self._cancelled.add(command.seq)
                case CommandRunWorker():
                    self._work(command, lasting)
                case CommandCompleteRun(result=result):
                    return result.body
                case CommandFailWorkflow() | CommandHalt():
                    raise AssertionError(f"the run has no result: {command}")
        if self._recover_always:
            self._recover()
        self._happen()
        return None

    def _work(self, command: CommandRunWorker, lasting: Callable[[ActionCall], float] | None) -> None:
        call = command.item.event.body
        self.played.calls.append((self._now - EPOCH, call))
        due = self._now + (lasting(call) if lasting is not None else 0.0)
        outcome = EventRecord(OUTCOME_KIND, self._answer(call))
        tick = TickStepResult(at=due, step=command.step, item=command.item.id, seq=command.seq, returned=(outcome,))
        heapq.heappush(self._finished, (due, command.seq, tick))

    def _happen(self) -> None:
        """Feed what happens next: the next call to end, or the next timer."""
        self._timers = [timer for timer in self._timers if timer[1] not in self._cancelled]
        heapq.heapify(self._timers)
        if self._finished and (not self._timers or self._finished[0][0] <= self._timers[0][0]):
            due, _, tick = heapq.heappop(self._finished)
            self._now = max(self._now, due)
            self._run.feed(tick)
        elif self._timers:
            due, number = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            self._run.feed(TickTimerFired(at=self._now, timer=number))
        else:
            raise AssertionError(f"the flow is stuck: {self._run.state}")

    def _recover(self) -> None:
        """The process is gone; another one reads what was written and takes the run up."""
        state = codec.decode_state("run-1", codec.encode_state(self._run.state))
        self._run = Run(FlowPlanner(self._program), state)
        self._timers, self._finished = [], []
        self._run.feed(TickResume(at=self._now))
        self._run.drain()
        batch = self._run.flush()
        self.played.ticks += batch.ticks
        for command in batch.commands:
            if isinstance(command, CommandStartTimer):
                heapq.heappush(self._timers, (command.due, command.seq))
            elif isinstance(command, CommandRunWorker):
                self._work(command, None)

    def _over(self, end: Any) -> Played:
        played = self.played
        played.state = self._run.state
        stored = [codec.decode_tick(codec.encode_tick(tick), "run-1") for tick in played.ticks]
        again = replay(stored, FlowPlanner(self._program))
        assert codec.encode_state(again) == codec.encode_state(played.state), "the journal gives another state"
        played.end, played.result = end, flow_result(end)
        played.at = self._now - EPOCH
        return played


def play(
    definition: Any,
    body: Any = None,
    *,
    parameters: dict[str, Any] | None = None,
    variables: dict[str, Any] | None = None,
    answer: Answer = nobody,
    lasting: Callable[[ActionCall], float] | None = None,
    seed: int = 7,
    limits: Any = None,
    recover_always: bool = False,
) -> Played:
    """Load a definition and run it to its end."""
    program = definition if isinstance(definition, Program) else program_of(definition, limits)
    start = FlowStart(body=body, parameters=parameters or {}, variables=variables or {})
    return Player(program, answer, recover_always).play(start, seed, lasting)


def loom(actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A flow of Loom's dialect: it has no trigger."""
    return {"actions": actions, **more}


def azure(actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A flow of Logic Apps' dialect."""
    schema = "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#"
    triggers = {"manual": {"type": "Request", "kind": "Http", "inputs": {"schema": {}}}}
    return {"$schema": schema, "contentVersion": "1.0.0.0", "triggers": triggers, "actions": actions, **more}


def after(*names: str, **statuses: list[str]) -> dict[str, list[str]]:
    """A `runAfter`: plain names ask for success."""
    return {**{name: ["Succeeded"] for name in names}, **statuses}


def compose(inputs: Any, *names: str, **statuses: list[str]) -> dict[str, Any]:
    """A Compose action that runs after these."""
    return {"type": "Compose", "inputs": inputs, "runAfter": after(*names, **statuses)}


def failing(*names: str, **statuses: list[str]) -> dict[str, Any]:
    """An action that fails."""
    return compose("@int('boom')", *names, **statuses)


def initialized(name: str, kind: str, value: Any, *names: str) -> dict[str, Any]:
    """An action that declares a variable."""
    variable = {"name": name, "type": kind, "value": value}
    return {"type": "InitializeVariable", "inputs": {"variables": [variable]}, "runAfter": after(*names)}

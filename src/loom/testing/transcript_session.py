"""The run behind a transcript: a driver with a clock of its own, bodies that only exist on paper, and one run.

It keeps the contract of `loom.core.run`: feed, drain, flush, save, then act. What a crash finds is what was saved. May
import loom.core and the planner of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from immutables import Map

from loom.core.body_effects import CollectBuffer
from loom.core.commands import (
    CommandCancelTimer,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartTimer,
    TerminalCommand,
)
from loom.core.config import BrokerConfig
from loom.core.invariants import violations
from loom.core.reducer import replay
from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import CollectCall, Source, TickResume, TickTimeout, TickTimerFired
from loom.steps.planner import StepsPlanner
from loom.testing.transcript_script import Kinds, ScriptError, reference
from loom.testing.transcript_text import command_lines, seconds, status, tick_text

if TYPE_CHECKING:
    from loom.core.commands import WorkflowCommand
    from loom.core.config import StepSpec
    from loom.core.records import EventRecord
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick

WIDTH = 60
"""Where the arrows stand."""
COMMAND_BYTES = 100
"""What every command weighs against a byte budget."""


def read_field(event: EventRecord, name: str) -> Any:
    """A field of an event of a transcript."""
    return event.body.get(name) if isinstance(event.body, dict) else None


@dataclass
class Body:
    """A step's body that a process is holding: how far it has come."""

    command: CommandRunWorker
    view: Map[str, CollectBuffer]
    ordinal: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    collects: list[CollectCall] = field(default_factory=list)

    def source(self, ordinal: int | None = None) -> Source:
        """The next effect of the body, or a given one."""
        if ordinal is None:
            ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        return Source(self.command.step, self.command.item.id, self.command.seq, ordinal)

    def occurrence(self, name: str) -> int:
        """Which call of this name it is."""
        self.calls[name] = self.calls.get(name, -1) + 1
        return self.calls[name]


class Session:
    """One run and its driver. Everything that happens is added to `out`."""

    def __init__(self) -> None:
        self.kinds = Kinds()
        self.steps: list[StepSpec] = []
        self.settings: dict[str, Any] = {}
        self.out: list[str] = []
        self.now = 0.0
        self.held = False
        self.budget: dict[str, int] = {}
        self.stream: list[Any] = []
        self._journal: list[WorkflowTick] = []
        self._saved = BrokerState()
        self._run: Run | None = self._new_run()
        self._left_at = 0.0
        self._released = False
        self._bodies: dict[tuple[str, int], Body] = {}
        self._gone: dict[tuple[str, int], Body] = {}
        self._timers: dict[int, CommandStartTimer] = {}

    def _new_run(self, state: BrokerState | None = None) -> Run:
        return Run(StepsPlanner(), state, read_field, lambda _command: COMMAND_BYTES)

    @property
    def config(self) -> BrokerConfig:
        """The code as it was defined so far."""
        return BrokerConfig("transcript", tuple(self.steps), **self.settings)

    @property
    def run(self) -> Run:
        """The run in memory; a released one is taken up."""
        if self._run is None:
            if not self._released:
                raise ScriptError("no process holds the run: resume it")
            self.resume()
        assert self._run is not None
        return self._run

    def body(self, text: str) -> Body:
        """The body that works on `step#item`, or did so last."""
        key = reference(text)
        body = self._bodies.get(key) or self._gone.get(key)
        if body is None:
            raise ScriptError(f"{text} has never run")
        return body

    def end_body(self, text: str) -> Body:
        """The same, and it is over now."""
        body = self.body(text)
        self._bodies.pop(reference(text), None)
        return body

    def feed(self, tick: WorkflowTick) -> None:
        """Something happened. Unless the driver holds back, it is reduced, saved and acted upon at once."""
        self.run.feed(tick)
        if not self.held:
            self.flush(**self.budget)

    def flush(self, max_bytes: int | None = None, max_in_flight: int | None = None, sends: int | None = None) -> None:
        """Drain, flush, save, act. If only some of the commands can be sent, the others are pushed back."""
        run = self.run
        run.drain()
        batch = run.flush(max_bytes, max_in_flight, self._in_flight(run.state))
        commands = batch.commands
        if sends is not None:
            run.push_back(commands[sends:])
            commands = commands[:sends]
        self._save(batch)
        self._show(batch, commands)
        self._act(commands)
        if run.has_commands:
            self.out.append("  more is queued")

    def _in_flight(self, state: BrokerState) -> int:
        return sum(
            1
            for (step, item), body in self._bodies.items()
            if (held := state.workers[step].in_progress.get(item) if step in state.workers else None) is not None
            and held.seq == body.command.seq
        )

    def _save(self, batch: Batch) -> None:
        self._journal += batch.ticks
        self._saved = self.run.state
        for problem in violations(self.run.state):
            self.out.append(f"BROKEN: {problem}")

    def _show(self, batch: Batch, commands: list[WorkflowCommand]) -> None:
        self.out += [f"answer: {answer}" for answer in batch.answers]
        first = len(self._journal) - len(batch.ticks) + 1
        heads = [f"{n} @{seconds(t.at)}".ljust(8) + f" {tick_text(t)}" for n, t in enumerate(batch.ticks, first)]
        lines = command_lines(commands)
        self.out += heads[:-1]
        head = heads[-1] if heads else ""
        if lines or head:
            self.out.append(f"{head:<{WIDTH}} -> {lines[0]}" if lines else head)
        self.out += [f"{'':<{WIDTH}} -> {line}" for line in lines[1:]]

    def _act(self, commands: list[WorkflowCommand]) -> None:
        for command in commands:
            if isinstance(command, CommandRunWorker):
                key = (command.step, command.item.id)
                self._bodies[key] = self._gone[key] = Body(command, command.snapshot)
            elif isinstance(command, CommandStartTimer):
                self._timers[command.seq] = command
            elif isinstance(command, CommandCancelTimer):
                self._timers.pop(command.seq, None)
            elif isinstance(command, TerminalCommand):
                self._bodies.clear()
                self._timers.clear()
            elif isinstance(command, CommandPublishEvent):
                self.stream.append(command.event)

    def advance(self, delay: float) -> None:
        """Let time pass. Timers that are due meanwhile fire, each at its time."""
        until = self.now + delay
        while self._run is not None or self._released:
            timers = self._timers.values() if self._run is not None else self._due_rows()
            due = min(timers, key=lambda timer: (timer.due, timer.seq), default=None)
            if due is None or due.due > until:
                break
            self.now = max(self.now, due.due)
            # Taking a released run up arms its timers anew.
            assert self.run
            self._timers.pop(due.seq, None)
            cls = TickTimeout if due.purpose == "timeout" else TickTimerFired
            self.feed(cls(at=self.now, timer=due.seq))
        self.now = until

    def _due_rows(self) -> list[CommandStartTimer]:
        """The timers of a released run, as the store knows them."""
        return [CommandStartTimer(number, t.due, t.purpose) for number, t in self._saved.timers.items()]

    def crash(self) -> None:
        """The process dies. What was not saved has never been; what was sent out is lost."""
        self._leave()
        self.out.append(f"the process is gone; saved are {len(self._journal)} ticks")

    def release(self) -> None:
        """Let go of a run in which nothing executes and nothing can start."""
        state = self.run.state
        if not state.is_blocked():
            raise ScriptError(f"a run that is {status(state)} is not released")
        self._leave()
        self._released = True
        self.out.append(f"released while {status(state)}")

    def _leave(self) -> None:
        self._run, self._left_at, self._released = None, self.now, False
        self._bodies.clear()
        self._timers.clear()

    def resume(self) -> None:
        """A process takes the run up from what was saved."""
        if self._run is None:
            self._run = self._new_run(self._saved)
        away = 0.0 if self._released else self.now - self._left_at
        self._released = False
        self.feed(TickResume(at=self.now, away_s=away))

    def query(self) -> str:
        """What a query answers: from the state alone, with nothing sent."""
        self.run.drain()
        return status(self.run.state)

    @property
    def state(self) -> BrokerState:
        """The state as far as it was reduced."""
        return self._run.state if self._run is not None else self._saved

    def check(self) -> None:
        """The journal so far must replay to what was saved."""
        if replay(self._journal, StepsPlanner(), None, read_field) != self._saved:
            self.out.append("BROKEN: the journal does not replay to the saved state")

"""The session of a transcript: its words, its driver with a virtual clock, and one run.

The driver keeps the contract of `loom.core.run`: feed, drain, flush, save, then act. Bodies exist on paper only. After
a crash the driver finds what was saved.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.core.body_effects import CollectBuffer
from loom.core.commands import (
    CommandCancelTimer,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartTimer,
    TerminalCommand,
)
from loom.core.invariants import violations
from loom.core.persistent import Map
from loom.core.records import (
    EVENT,
    INPUT_REQUIRED_EVENT,
    RUN_CANCELLED_KIND,
    START_EVENT,
    STEP_FAILED_KIND,
    STOP_EVENT,
    EventKind,
    EventRecord,
)
from loom.core.reducer import replay
from loom.core.run import Run
from loom.core.state import BrokerConfig, BrokerState, StepSpec, raised
from loom.core.ticks import CollectCall, Source, TickResume, TickTimeout, TickTimerFired
from loom.steps.planner import StepsPlanner
from loom.testing.transcript_text import command_lines, seconds, status, tick_text

if TYPE_CHECKING:
    from loom.core.commands import WorkflowCommand
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick


class ScriptError(ValueError):
    """A command line that makes no sense; the transcript shows it as its outcome."""


RESERVED = frozenset(
    ("at", "to", "waiter", "id", "by", "seq", "ordinal", "retry", "timeout", "needs", "ask", "away", "remove", "type")
)
"""Options that a verb reads. All others are fields of the event."""


class Line(NamedTuple):
    """One command: a verb, its words and its `name=value` options."""

    verb: str
    words: list[str]
    options: dict[str, str]

    def word(self, index: int, what: str) -> str:
        """Return the word at a position, which must be there."""
        if index >= len(self.words):
            raise ScriptError(f"{self.verb} needs {what}")
        return self.words[index]

    def seconds(self, name: str) -> float | None:
        """Return an option that is a time, in seconds; None if it is missing."""
        text = self.options.get(name)
        return duration(text) if text is not None else None

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number; None if it is missing."""
        text = self.options.get(name)
        return int(text) if text is not None else None

    def fields(self) -> dict[str, Any]:
        """Return the options that are fields of an event."""
        return {name: value_of(text) for name, text in self.options.items() if name not in RESERVED}


def parse(text: str) -> Line:
    """Read one command."""
    verb, *rest = shlex.split(text)
    options = dict(word.split("=", 1) for word in rest if "=" in word and not word.startswith("["))
    return Line(verb, [word for word in rest if "=" not in word or word.startswith("[")], options)


def duration(text: str) -> float:
    """Convert `2.5s` to seconds."""
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise ScriptError(f"{text!r} is no time: write it like 2.5s") from None


def value_of(text: str) -> Any:
    """Parse JSON; a text that is no JSON is the value itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def reference(text: str) -> tuple[str, int]:
    """Split `plan#1` into the step and the work item."""
    step, mark, item = text.partition("#")
    if not mark or not item.isdigit():
        raise ScriptError(f"{text!r} names no work: write it like plan#1")
    return step, int(item)


class Kinds:
    """The event types of a transcript. A name that was not defined is a plain event."""

    def __init__(self) -> None:
        self._kinds = {kind.label: kind for kind in (STEP_FAILED_KIND, RUN_CANCELLED_KIND)}
        for name in (START_EVENT, STOP_EVENT, INPUT_REQUIRED_EVENT):
            self._kinds[name.rpartition(".")[2]] = EventKind(name, (EVENT,), name.rpartition(".")[2])

    def define(self, name: str, base: str) -> None:
        """Make one type a subclass of another."""
        parent = self.of(base)
        self._kinds[name] = EventKind(f"t.{name}", (parent.name, *parent.bases), name)

    def of(self, name: str) -> EventKind:
        """Return the type of this short name."""
        return self._kinds.setdefault(name, EventKind(f"t.{name}", (EVENT,), name))

    def wire(self, names: str) -> tuple[str, ...]:
        """Return the wire names of a comma-separated list."""
        return tuple(self.of(name).name for name in names.split(","))

    def event(self, text: str, fields: dict[str, Any] | None = None) -> EventRecord:
        """Make an event from `Type` or `Type:value`, which sets its field `n`."""
        name, mark, value = text.partition(":")
        return EventRecord(self.of(name), {"n": value_of(value), **(fields or {})} if mark else fields or {})

    def counts(self, text: str) -> tuple[tuple[str, int], ...]:
        """Parse `A:2,B:1` to the needs of a collect call."""
        pairs = (entry.partition(":") for entry in text.split(","))
        return tuple((self.of(name).name, int(number or 1)) for name, _, number in pairs)

    def step(self, line: Line) -> StepSpec:
        """Make a step from its `define` line."""
        options = line.options
        slots = [word.split(":") for word in options.get("slots", "").split("/") if word]
        accepts = self.wire(line.word(1, "the types that the step takes"))
        return StepSpec(
            line.word(0, "a step's name"),
            accepts,
            inputs=self.wire(options["inputs"]) if "inputs" in options else (),
            num_workers=line.number("workers") or 0 if "workers" in options else 4,
            accept_subclasses="subclasses" in line.words,
            slots=tuple((name, self.wire(types)) for name, types in slots),
            collects="join" in line.words,
            take=line.number("take"),
            joins=tuple(options["joins"].split(",")) if "joins" in options else (),
            recovered_by=options.get("recovered_by"),
            max_recoveries=line.number("max_recoveries") or 0,
        )


WIDTH = 60
"""Column of the arrows."""
COMMAND_BYTES = 100
"""Weight of every command against a byte budget."""


def read_field(event: EventRecord, name: str) -> Any:
    """Read a field of a transcript's event; None if it has none."""
    return event.body.get(name) if isinstance(event.body, dict) else None


@dataclass
class TranscriptBody:
    """A step's body in a process, and how far it has come."""

    command: CommandRunWorker
    view: Map[str, CollectBuffer]
    ordinal: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    collects: list[CollectCall] = field(default_factory=list)

    def source(self, ordinal: int | None = None) -> Source:
        """Identify the next effect of the body, or a given one."""
        if ordinal is None:
            ordinal, self.ordinal = self.ordinal, self.ordinal + 1
        return Source(self.command.step, self.command.item.id, self.command.seq, ordinal)

    def occurrence(self, name: str) -> int:
        """Count the calls of this name, from 0."""
        self.calls[name] = self.calls.get(name, -1) + 1
        return self.calls[name]


class TranscriptSession:
    """One run and its driver. `out` gets a line for everything that happens."""

    def __init__(self) -> None:
        self.kinds = Kinds()
        self.steps: list[StepSpec] = []
        self.settings: dict[str, Any] = {}
        self.max_depth: int | None = None
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
        self._bodies: dict[tuple[str, int], TranscriptBody] = {}
        self._gone: dict[tuple[str, int], TranscriptBody] = {}
        self._timers: dict[int, CommandStartTimer] = {}

    def _new_run(self, state: BrokerState | None = None) -> Run:
        return Run(StepsPlanner(), state, read_field, lambda _command: COMMAND_BYTES)

    @property
    def config(self) -> BrokerConfig:
        """The code as it was defined so far."""
        return BrokerConfig("transcript", tuple(self.steps), **self.settings).limited(self.max_depth)

    @property
    def run(self) -> Run:
        """The run in memory; a released run is recovered first."""
        if self._run is None:
            if not self._released:
                raise ScriptError("no process holds the run: resume it")
            self.resume()
        assert self._run is not None
        return self._run

    def body(self, text: str) -> TranscriptBody:
        """Return the body that works on `step#item`, or did so last."""
        key = reference(text)
        body = self._bodies.get(key) or self._gone.get(key)
        if body is None:
            raise ScriptError(f"{text} has never run")
        return body

    def end_body(self, text: str) -> TranscriptBody:
        """Return the body of `step#item`, and end it."""
        body = self.body(text)
        self._bodies.pop(reference(text), None)
        return body

    def feed(self, tick: WorkflowTick) -> None:
        """Feed a tick. Unless the driver holds back, it is reduced, saved and acted upon at once."""
        self.run.feed(tick)
        if not self.held:
            self.flush(**self.budget)

    def flush(self, max_bytes: int | None = None, max_in_flight: int | None = None, sends: int | None = None) -> None:
        """Drain, flush, save, act. Push back the commands that cannot be sent."""
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
                self._bodies[key] = self._gone[key] = TranscriptBody(command, command.snapshot)
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
        """Let time pass. Timers that come due fire, each at its time."""
        until = self.now + delay
        while self._run is not None or self._released:
            timers = self._timers.values() if self._run is not None else self._due_rows()
            due = min(timers, key=lambda timer: (timer.due, timer.seq), default=None)
            if due is None or due.due > until:
                break
            self.now = max(self.now, due.due)
            # Recovery of a released run arms its timers anew.
            assert self.run
            self._timers.pop(due.seq, None)
            cls = TickTimeout if due.purpose == "timeout" else TickTimerFired
            self.feed(cls(at=self.now, timer=due.seq))
        self.now = until

    def _due_rows(self) -> list[CommandStartTimer]:
        """List the timers of a released run, as the store knows them."""
        return [CommandStartTimer(number, t.due, t.purpose) for number, t in self._saved.timers.items()]

    def crash(self) -> None:
        """Let the process die: unsaved ticks never were, and sent commands are lost."""
        self._leave()
        self.out.append(f"the process is gone; saved are {len(self._journal)} ticks")

    def release(self) -> None:
        """Release a run in which nothing executes and nothing can start."""
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

    def resume(self, max_depth: int | None = None) -> None:
        """Recover the run from what was saved; with a higher limit of its depth, if one is given."""
        if self._run is None:
            self._run = self._new_run(self._saved)
        away = 0.0 if self._released else self.now - self._left_at
        self._released = False
        config = raised(self.state.config, max_depth) if max_depth is not None else None
        self.feed(TickResume(at=self.now, away_s=away, config=config))

    def query(self) -> str:
        """Answer a query from the state alone, with nothing sent."""
        self.run.drain()
        return status(self.run.state)

    @property
    def state(self) -> BrokerState:
        """The state as far as it was reduced."""
        return self._run.state if self._run is not None else self._saved

    def check(self) -> None:
        """Check that the journal so far replays to what was saved."""
        if replay(self._journal, StepsPlanner(), None, read_field) != self._saved:
            self.out.append("BROKEN: the journal does not replay to the saved state")

"""A body that leaves its process at every wait does the same to its run as one that stays.

The same bodies run twice, with the same things happening outside: once they are held until they are answered, once
they begin again from the top with every answer. The stream and the state in the end are the same, but for the numbers
of commands and for what is told of workers and idleness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from strategies import LOST, START, A, B, C, read_field

from loom.core.body_effects import child_key, sleep_key, wait_key
from loom.core.commands import (
    CommandPublishEvent,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    WorkflowCommand,
)
from loom.core.invariants import violations
from loom.core.records import EventKind, EventRecord, Failure, IdleReport, StepReport, UnhandledReport
from loom.core.run import Run
from loom.core.state import BrokerConfig, StepSpec
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickChildEnded,
    TickEditStore,
    TickLeaveStep,
    TickPublishEvent,
    TickRecordResult,
    TickSleep,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    TickTimerFired,
    WorkflowTick,
)
from loom.steps.planner import StepsPlanner

BODY = ("publish", "edit", "send", "once", "wait", "wait", "wait briefly", "sleep", "child", "both", "fail")
OUTSIDE = ("B", "B", "C", "A", "timer", "child")
BODIES = st.lists(st.lists(st.sampled_from(BODY), max_size=6), min_size=1, max_size=3)
SCRIPTS = st.lists(st.sampled_from(OUTSIDE), max_size=10)


class Pause(NamedTuple):
    """What a body did up to a point, and the waits that it cannot go on without: none if it is over."""

    ticks: list[WorkflowTick]
    keys: tuple[str, ...]


class Bodies:
    """A run and the bodies of its one step, which stay or leave when they wait."""

    def __init__(self, programs: Sequence[Sequence[str]], workers: int, leaving: bool, late: bool = False) -> None:
        self.programs, self.leaving, self.late = programs, leaving, late
        self.run = Run(StepsPlanner(), read_field=read_field)
        self.now = 0.0
        self.held: dict[int, tuple[CommandRunWorker, Iterator[Pause], set[str]]] = {}
        self.gone: list[TickLeaveStep] = []
        self.stream: list[Any] = []
        config = BrokerConfig("leaving", (StepSpec("work", (START.name, A.name), num_workers=workers),))
        self.tell(TickStartRun(at=0.0, run_id="r", config=config, event=EventRecord(START, {})))

    def tell(self, *ticks: WorkflowTick) -> None:
        """Feed what happened and let every body go on as far as it can. Those that are late leave only now."""
        gone, self.gone = self.gone, []
        self._feed(*ticks)
        for left in gone:
            self._feed(left)

    def _feed(self, *ticks: WorkflowTick) -> None:
        self.run.feed(*ticks)
        self.run.drain()
        assert violations(self.run.state) == []
        for command in self.run.flush().commands:
            self._carry_out(command)

    def _carry_out(self, command: WorkflowCommand) -> None:
        if isinstance(command, CommandPublishEvent):
            self.stream.append(command.event)
        elif isinstance(command, CommandRunWorker):
            known = self.run.state.waiting.answers.get(command.item.id, {}) if self.leaving else {}
            self._go_on(command, self._body(command, dict(known)))
        elif isinstance(command, CommandResumeWorker) and command.seq in self.held and not self.leaving:
            held, body, missing = self.held[command.seq]
            missing.discard(command.key)
            if not missing:
                self._go_on(held, body)

    def _go_on(self, command: CommandRunWorker, body: Iterator[Pause]) -> None:
        pause = next(body)
        if not pause.keys:
            self.held.pop(command.seq, None)
            self._feed(*pause.ticks)
        elif self.leaving:
            left = TickLeaveStep(at=self.now, step="work", item=command.item.id, seq=command.seq, pending=pause.keys)
            if not self.late:
                self._feed(*pause.ticks, left)
                return
            self._feed(*pause.ticks)
            answered = self.run.state.waiting.answers.get(command.item.id, {})
            if any(key in answered for key in pause.keys):
                self._feed(left)
            else:
                self.gone.append(left)
        else:
            self.held[command.seq] = command, body, set(pause.keys)
            self._feed(*pause.ticks)

    def _body(self, command: CommandRunWorker, known: dict[str, Any]) -> Iterator[Pause]:
        """A body, from the top. It goes past waits that it knows the answers to."""
        item, ticks, ordinal = command.item.id, [], 0
        program = self.programs[(item - 1) % len(self.programs)]
        for position, act in enumerate(program):
            base = {"at": self.now, "source": Source("work", item, command.seq, ordinal)}
            if act == "fail":
                if command.item.attempts == 0:
                    failure, where = Failure("x.E", ""), {"step": "work", "item": item, "seq": command.seq}
                    end = TickStepResult(at=self.now, **where, failure=failure, retry_delay_s=0.0)
                    yield Pause([*ticks, end], ())
                continue
            begun = dict(_waits(act, position, base)) or {"": _effect(act, item * 100 + position, base)}
            ordinal += len(begun)
            ticks += [tick for key, tick in begun.items() if key not in known]
            missing = tuple(key for key in begun if key and key not in known)
            if missing:
                yield Pause(ticks, missing)
                ticks = []
        yield Pause([*ticks, TickStepResult(at=self.now, step="work", item=item, seq=command.seq)], ())

    def outside(self, act: str) -> None:
        """Something happens to the run, if it can."""
        state = self.run.state
        if act == "timer" and state.timers:
            due, number = min((timer.due, number) for number, timer in state.timers.items())
            self.now = max(self.now, due)
            self.tell(TickTimerFired(at=self.now, timer=number))
        elif act == "child" and state.children:
            self.tell(TickChildEnded(at=self.now, child=min(state.children), status="completed"))
        elif act in ("A", "B", "C"):
            self.tell(TickAddEvent(at=self.now, event=EventRecord({"A": A, "B": B, "C": C}[act], {})))

    def settle(self) -> None:
        """Give every body what it waits for, until none is left."""
        for _ in range(200):
            state = self.run.state
            if not any(worker.in_progress or worker.suspended for worker in state.workers.values()):
                return
            waiters = state.get_active_waiters()
            self.outside("child" if state.children else waiters[0][1].event_type[-1] if waiters else "timer")
        raise AssertionError(f"the bodies do not end: {self.run.state.workers}")

    def result(self) -> Any:
        """What must not depend on where the bodies were meanwhile."""
        state = self.run.state
        assert not state.active
        kept = {name: [event.kind for event in events] for name, events in state.waiting.kept.items()}
        shown = [_shown(event) for event in self.stream if not isinstance(event, StepReport | IdleReport)]
        timers = sorted((timer.due, timer.purpose) for timer in state.timers.values())
        return shown, dict(state.store), state.store_version, kept, state.items, state.asleep, timers, state.at


def _shown(event: Any) -> Any:
    return (event.event, event.kept) if isinstance(event, UnhandledReport) else event


def _waits(act: str, position: int, base: dict[str, Any]) -> Iterator[tuple[str, WorkflowTick]]:
    """The waits that an act consists of, by key."""
    kind: EventKind = (B, C)[position % 2]
    source = base["source"]
    if act in ("wait", "wait briefly", "both"):
        wait = {"waiter_id": str(position), "occurrence": 0, "event_type": kind.name, "suspends": act != "both"}
        timeout = 3.0 if act == "wait briefly" else None
        yield wait_key(str(position), 0), TickAwaitEvent(**base, **wait, timeout_s=timeout)
        base = {**base, "source": Source(source.step, source.item, source.seq, source.ordinal + 1)}
    if act in ("sleep", "both"):
        yield sleep_key(position), TickSleep(**base, occurrence=position, delay_s=2.0, suspends=act != "both")
    if act == "child":
        yield child_key(position), TickStartChild(**base, occurrence=position, workflow="w")


def _effect(act: str, number: int, base: dict[str, Any]) -> WorkflowTick:
    if act == "publish":
        return TickPublishEvent(**base, event=EventRecord(LOST, {"n": number}))
    if act == "edit":
        return TickEditStore(**base, base_version=0, changed={"last": number, str(number): number})
    if act == "once":
        return TickRecordResult(**base, name=str(number), value=number)
    return TickAddEvent(**base, event=EventRecord((B, C)[number % 2], {"n": number}))


def played(programs: Sequence[Sequence[str]], script: Sequence[str], workers: int, **how: bool) -> Any:
    bodies = Bodies(programs, workers, **how)
    for act in script:
        bodies.outside(act)
    bodies.settle()
    return bodies.result()


@given(BODIES, SCRIPTS, st.integers(0, 2))
def test_body_that_leaves_does_what_one_does_that_stays(
    programs: list[list[str]], script: list[str], workers: int
) -> None:
    if any("both" in program for program in programs):
        workers = 0  # a body that waits in child tasks keeps its worker only while it stays
    assert played(programs, script, workers, leaving=True) == played(programs, script, workers, leaving=False)


@given(st.lists(st.sampled_from(BODY), max_size=8), st.lists(st.sampled_from(("B", "C", "timer", "child")), max_size=8))
def test_body_that_leaves_only_when_it_is_answered_already_does_the_same(program: list[str], script: list[str]) -> None:
    stays = played([program], script, 1, leaving=False)
    assert played([program], script, 1, leaving=True, late=True) == stays


def test_bodies_of_these_laws_leave_and_come_back() -> None:
    bodies = Bodies([["publish", "both", "publish"]], 1, leaving=True)
    assert bodies.run.state.workers["work"].suspended[1].waits_on == "*"
    assert not [command for command in bodies.run.flush().commands if isinstance(command, CommandStartChild)]
    bodies.outside("C")
    assert bodies.run.state.workers["work"].suspended[1].waits_on == sleep_key(1)
    bodies.outside("timer")
    assert [event.body["n"] for event in bodies.stream if isinstance(event, EventRecord)] == [100, 102]

"""Programs for the laws: lists of numbers that a driver turns into ticks, each one against the state at hand.

A number decides what happens next: a body returns, fails, waits or sleeps, an event or a timer arrives, a process dies,
or something arrives that makes no sense at all. Plain numbers are fast to draw and shrink well, and a random generator
can run the same programs without Hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from loom.core.body_effects import EMPTY_BUFFER
from loom.core.commands import WorkflowCommand
from loom.core.records import (
    EVENT,
    INPUT_REQUIRED_EVENT,
    RUN_CANCELLED_KIND,
    START_EVENT,
    STEP_FAILED_KIND,
    STOP_EVENT,
    EventKind,
    EventRecord,
    Failure,
)
from loom.core.reducer import advance
from loom.core.state import BrokerConfig, BrokerState, CleanupSpec, Execution, StepLimits, StepSpec
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickSleep,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
    WorkflowTick,
)
from loom.steps.planner import Origin, StepInput, StepsPlanner

T = TypeVar("T")


def kind(name: str, *bases: str) -> EventKind:
    return EventKind(name, (*bases, EVENT), name.rpartition(".")[2])


START, STOP, ASK = kind(START_EVENT), kind(STOP_EVENT), kind(INPUT_REQUIRED_EVENT)
A, B, C, D = kind("t.A"), kind("t.B"), kind("t.C"), kind("t.D")
SUB = kind("t.SubA", "t.A")
LOST = kind("t.Lost")
PLAIN = (A, A, B, C, D, SUB, LOST, ASK)

_MENDS = {"recovered_by": "mend"}

MIXED = BrokerConfig(
    "mixed",
    (
        StepSpec("begin", (START.name,), joins=("gather",)),
        StepSpec("work", (A.name,), num_workers=1, **_MENDS),
        StepSpec("other", (B.name, A.name), num_workers=2, accept_subclasses=True),
        StepSpec("gather", (C.name,), collects=True),
        StepSpec("pair", (B.name, D.name), slots=(("left", (B.name,)), ("right", (D.name,)))),
        StepSpec("mend", (STEP_FAILED_KIND.name,), inputs=("t.Answer",), max_recoveries=1),
    ),
    keep_unclaimed=2,
)
NESTED = BrokerConfig(
    "nested",
    (
        StepSpec("begin", (START.name,), joins=("outer",)),
        StepSpec("middle", (A.name,), num_workers=2, joins=("inner",)),
        StepSpec("leaf", (B.name,), num_workers=0, **_MENDS),
        StepSpec("inner", (C.name,), collects=True),
        StepSpec("outer", (D.name,), collects=True, take=2),
        StepSpec("mend", (STEP_FAILED_KIND.name,), max_recoveries=2),
    ),
    timeout_s=60.0,
)
LINE = BrokerConfig(
    "line", (StepSpec("begin", (START.name,), num_workers=1), StepSpec("work", (A.name, B.name), num_workers=2))
)
CLEANED = BrokerConfig(
    "cleaned",
    (
        StepSpec("begin", (START.name,), num_workers=1, joins=("gather",)),
        StepSpec("work", (A.name, B.name), num_workers=2, recovered_by="mend"),
        StepSpec("gather", (C.name,), collects=True),
        StepSpec("mend", (STEP_FAILED_KIND.name,), max_recoveries=1),
        StepSpec("undo", (RUN_CANCELLED_KIND.name,), num_workers=1),
    ),
    timeout_s=60.0,
    program=StepLimits(cleanup=CleanupSpec("undo", 20.0)),
)
SHALLOW = tuple(
    replace(config, workflow=f"shallow {config.workflow}").limited(depth)
    for config, depth in ((MIXED, 4), (NESTED, 5), (LINE, 7), (CLEANED, 6))
)
"""The same codes with a limit of the depth, which a random program may reach."""
CONFIGS = (MIXED, NESTED, LINE, CLEANED, *SHALLOW)
STEP_NAMES = ("begin", "work", "other", "gather", "mend", "undo", "ghost")
WAIT_KEYS = ("w", "v", "w#1", "sleep", "")


class Dice:
    """Draws small numbers out of one big one."""

    def __init__(self, code: int) -> None:
        self.code = code

    def below(self, limit: int) -> int:
        self.code, found = divmod(self.code, limit)
        return found

    def pick(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]


CODE_BYTES = 6
CODES = st.integers(0, 2 ** (8 * CODE_BYTES) - 1)


def programs(max_size: int = 32) -> st.SearchStrategy[list[int]]:
    """Short programs and long ones: a run needs a while to get into trouble, a counterexample should not.

    Drawn as one string of bytes, which is many times faster than as a list of numbers.
    """
    short = st.binary(max_size=CODE_BYTES * (max_size // 4))
    long = st.binary(min_size=CODE_BYTES * (max_size // 2), max_size=CODE_BYTES * max_size)
    return (short | long).map(_codes)


def _codes(text: bytes) -> list[int]:
    return [int.from_bytes(text[at : at + CODE_BYTES]) for at in range(0, len(text), CODE_BYTES)]


def read_field(event: EventRecord, name: str) -> Any:
    return event.body.get(name) if isinstance(event.body, dict) else None


def executions(state: BrokerState) -> list[Execution]:
    """Every execution of which a process holds the body, oldest first."""
    found = [e for w in state.workers.values() for e in (*w.in_progress.values(), *w.suspended.values()) if e.live]
    return sorted(found, key=lambda e: e.seq)


def items_of(state: BrokerState) -> list[tuple[str, int]]:
    """Every work item that a run has not settled, wherever it is."""
    found = []
    for step, worker in state.workers.items():
        ids = [i.id for i in worker.queue] + [i.id for i in worker.delayed.values()]
        found += [(step, item) for item in (*ids, *worker.in_progress, *worker.suspended)]
    return sorted(found)


def event(dice: Dice) -> EventRecord:
    return EventRecord(dice.pick(PLAIN), {"n": dice.below(3)})


def start(config: BrokerConfig, at: float = 0.0) -> TickStartRun:
    return TickStartRun(at=at, run_id="run-1", config=config, event=EventRecord(START, {}), seed=7, store={"k": 0})


def _source(dice: Dice, execution: Execution) -> Source:
    ordinal = dice.below(4) if dice.below(12) == 0 else len(execution.effects)
    return Source(execution.item.step, execution.item.id, execution.seq, ordinal)


def _collects(dice: Dice, state: BrokerState, execution: Execution) -> tuple[CollectCall, ...]:
    """At most two calls, answered from the buffers as they are now, or as they might have been."""
    buffers = state.workers[execution.item.step].collected_events
    calls = []
    for _ in range(dice.pick((0, 0, 1, 2))):
        name, member, needed = dice.pick(("x", "y")), event(dice), ((A.name, 1 + dice.below(2)), (B.name, 1))
        buffer = buffers.get(name, EMPTY_BUFFER)
        found = buffer.verdict(member.kind.name, needed)
        stale = dice.below(5) == 0
        calls.append(CollectCall(name, member, needed, (found == "take") != stale, dice.below(3), buffer.generation))
        if found != "drop":
            buffers = buffers.set(name, buffer.emptied() if found == "take" else buffer.with_event(member))
    return tuple(calls)


def _finish(dice: Dice, state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    collects = _collects(dice, state, e)
    base = {"at": at, "step": e.item.step, "item": e.item.id, "seq": e.seq, "collects": collects}
    shape = dice.below(24)
    if shape == 23:
        return TickStepResult(**base, returned=(EventRecord(STOP, {"n": dice.below(3)}),))
    if shape <= 3:
        return TickStepResult(**base)
    if shape <= 10:
        members = tuple(event(dice) for _ in range(dice.below(4)))
        return TickStepResult(**base, returned=members, fanned_out=True)
    return TickStepResult(**base, returned=(event(dice),))


def _fail(dice: Dice, state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    delay = dice.pick((0.0, 0.0, 0.0, 2.0, 2.0, 5.0, 5.0, None))
    return TickStepResult(
        at=at,
        step=e.item.step,
        item=e.item.id,
        seq=e.seq,
        failure=Failure("builtins.ValueError", "no"),
        retry_delay_s=delay,
        collects=_collects(dice, state, e),
    )


def _wait(dice: Dice, _state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    return TickAwaitEvent(
        at=at,
        source=_source(dice, e),
        waiter_id=dice.pick(("w", "v", "sleep")),
        occurrence=dice.below(2),
        event_type=dice.pick((LOST, A, B)).name,
        requirements=dice.pick(((), (), (("n", 1),))),
        timeout_s=dice.pick((None, None, 3.0)),
        waiter_event=dice.pick((None, EventRecord(ASK, {}))),
        suspends=not e.waits_on and dice.below(4) > 0,
    )


def _sleep(dice: Dice, _state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    occurrence, suspends = dice.below(2), not e.waits_on and dice.below(4) > 0
    return TickSleep(
        at=at, source=_source(dice, e), occurrence=occurrence, delay_s=dice.pick((0.0, 4.0)), suspends=suspends
    )


def _record(dice: Dice, _state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    return TickRecordResult(at=at, source=_source(dice, e), name=dice.pick("ab"), value=dice.below(9))


def _start_child(dice: Dice, _state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    occurrence, suspends = dice.below(2), not e.waits_on and dice.below(4) > 0
    return TickStartChild(
        at=at, source=_source(dice, e), occurrence=occurrence, workflow="w", start=dice.below(3), suspends=suspends
    )


def _end_wait(dice: Dice, state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    keys = sorted(state.waiting.open.get(e.item.id, {})) or list(WAIT_KEYS)
    return TickEndWait(at=at, step=e.item.step, item=e.item.id, seq=e.seq, key=dice.pick(keys))


def _leave(dice: Dice, state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    item = e.item.id
    reached = sorted({**state.waiting.open.get(item, {}), **state.waiting.answers.get(item, {})})
    pending = tuple(key for key in reached if dice.below(3)) or dice.pick(((), WAIT_KEYS))
    return TickLeaveStep(at=at, step=e.item.step, item=item, seq=e.seq, pending=pending)


def _send(dice: Dice, _state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    return TickAddEvent(at=at, event=event(dice), source=_source(dice, e))


def _publish(dice: Dice, _state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    return TickPublishEvent(at=at, event=event(dice), source=_source(dice, e))


def _edit(dice: Dice, state: BrokerState, at: float, e: Execution) -> WorkflowTick:
    changed, removed = {dice.pick("kl"): dice.below(3)}, dice.pick(((), ("k",)))
    return TickEditStore(
        at=at, base_version=state.store_version, changed=changed, removed=removed, source=_source(dice, e)
    )


_BODY_ACTS: tuple[Callable[[Dice, BrokerState, float, Execution], WorkflowTick], ...] = (
    *(_finish,) * 5,
    *(_fail,) * 2,
    *(_wait,) * 4,
    *(_sleep,) * 2,
    *(_record,) * 2,
    *(_start_child,) * 2,
    _end_wait,
    _leave,
    _leave,
    _send,
    _send,
    _publish,
    _edit,
)


def child_ended(dice: Dice, number: int, at: float) -> TickChildEnded:
    result, failure = EventRecord(STOP, {"n": dice.below(3)}), Failure("builtins.ValueError", "no")
    return dice.pick(
        (
            TickChildEnded(at=at, child=number, status="completed", event=result),
            TickChildEnded(at=at, child=number, status="failed", failure=failure),
            TickChildEnded(at=at, child=number, status="cancelled"),
            TickChildEnded(at=at, child=number, status="timed_out"),
        )
    )


def _of_the_run(dice: Dice, state: BrokerState, at: float) -> WorkflowTick | None:
    """What people and other runs do to a run, now and then."""
    if state.outcome is not None and state.outcome.abandoned is not None and dice.below(2):
        return TickRetryRun(at=at)
    choice = dice.below(16)
    if choice < 4 and state.children:
        return child_ended(dice, dice.pick(sorted(state.children)), at)
    if choice == 4:
        return TickPauseRun(at=at)
    if choice == 5 or (choice < 9 and state.paused):
        return TickContinueRun(at=at)
    if choice == 10 and state.timers:
        return TickSkip(at=at, timer=dice.pick((None, *sorted(state.timers))))
    if choice == 9 and dice.below(4) == 0:
        return TickParkRun(at=at, reason="no such type")
    return None


def sensible(dice: Dice, state: BrokerState) -> WorkflowTick:
    """Something that a driver could really report in this state."""
    at = state.at + dice.pick((0.0, 0.0, 0.5, 1.0, -2.0))
    asked = _of_the_run(dice, state, at)
    if asked is not None:
        return asked
    choice = dice.below(20)
    bodies = executions(state)
    if choice < 12 and bodies:
        return dice.pick(_BODY_ACTS)(dice, state, at, dice.pick(bodies))
    if choice < 16 and state.timers:
        armed = sorted(state.timers)
        number = dice.pick([n for n in armed if n != state.timeout_timer or dice.below(8) == 0] or armed)
        timer = state.timers[number]
        cls = TickTimeout if timer.purpose == "timeout" else TickTimerFired
        return cls(at=max(at, timer.due), timer=number)
    if choice == 16:
        return TickResume(at=at, away_s=float(dice.below(3)), config=dice.pick((None, state.config)))
    if choice == 17 and dice.below(8 if state.config.cleanup is None else 2) == 0:
        return TickCancelRun(at=at, force=dice.below(8) == 0)
    target, named = dice.pick((None, None, "work")), dice.pick((None, None, None, "e1", "e2"))
    return TickAddEvent(
        at=at, event=event(dice), step=target, waiter_id=dice.pick((None, None, None, "w")), event_id=named
    )


def garbage(dice: Dice, at: float) -> WorkflowTick:
    """Any tick with numbers and names out of the blue, small enough to hit something now and then."""
    step, item, seq = dice.pick(STEP_NAMES), dice.below(5), dice.below(9)
    source, number = Source(step, item, seq, dice.below(3)), dice.below(9)
    origin = dice.pick((None, StepInput(), StepInput(Origin((number,), (("mend", 1),)))))
    choices: tuple[Callable[[], WorkflowTick], ...] = (
        lambda: start(dice.pick(CONFIGS), at),
        lambda: TickResume(at=at, away_s=float(number), config=dice.pick((None, *CONFIGS))),
        lambda: TickAddEvent(at=at, event=event(dice), source=dice.pick((None, source)), origin=origin, step=step),
        lambda: TickStepResult(at=at, step=step, item=item, seq=seq, returned=(event(dice), event(dice))),
        lambda: TickStepResult(at=at, step=step, item=item, seq=seq, failure=Failure("x.E", ""), retry_delay_s=-1.0),
        lambda: TickPublishEvent(at=at, event=event(dice), source=dice.pick((None, source))),
        lambda: TickAwaitEvent(
            at=at, source=source, waiter_id=dice.pick(WAIT_KEYS), occurrence=0, event_type=A.name, timeout_s=-1.0
        ),
        lambda: TickSleep(at=at, source=source, occurrence=number, delay_s=-1.0),
        lambda: TickEndWait(at=at, step=step, item=item, seq=seq, key=dice.pick(WAIT_KEYS)),
        lambda: TickLeaveStep(at=at, step=step, item=item, seq=seq, pending=dice.pick(((), WAIT_KEYS))),
        lambda: TickEditStore(at=at, base_version=-1, changed={}, removed=("nothing",), source=source),
        lambda: TickRecordResult(at=at, source=source, name=dice.pick(WAIT_KEYS), value=number),
        lambda: TickStartChild(at=at, source=source, occurrence=number, workflow="", suspends=False),
        lambda: child_ended(dice, number, at),
        lambda: TickRetryRun(at=at),
        lambda: TickContinueRun(at=at, max_depth=dice.pick((None, 3, 9))),
        lambda: TickTimerFired(at=at, timer=number),
        lambda: TickTimeout(at=at, timer=number),
        lambda: TickSkip(at=at, timer=dice.pick((None, number))),
    )
    return dice.pick(choices)()


def tick_for(code: int, state: BrokerState, nonsense: bool = True) -> WorkflowTick:
    dice = Dice(code)
    if nonsense and dice.below(6) == 0:
        return garbage(dice, state.at + dice.pick((0.0, 1.0, -5.0)))
    return sensible(dice, state)


class Step(NamedTuple):
    """One transition of a walk."""

    before: BrokerState
    tick: WorkflowTick
    after: BrokerState
    commands: list[WorkflowCommand]


def walk(program: Sequence[int], nonsense: bool = True) -> list[Step]:
    """Run a program from the start of a run; its first number chooses the code."""
    config = CONFIGS[program[0] % len(CONFIGS)] if program else MIXED
    planner, state, steps = StepsPlanner(), BrokerState(), []
    tick: WorkflowTick = start(config)
    for code in (0, *program[1:]):
        if steps:
            tick = tick_for(code, state, nonsense)
        after, commands = advance(state, tick, planner, read_field)
        steps.append(Step(state, tick, after, commands))
        state = after
    return steps

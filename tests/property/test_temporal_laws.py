"""An execution on Temporal is its history: whatever is told in whatever tasks, and however little may leave with each.

A program is a list of numbers that decide what happens next to a run under hand-made activations: a body returns,
fails, leaves or does something, a timer fires, somebody sends an event, or cancels. What happens goes out alone or
together with what follows, in a new task or in the same one, under budgets of a few hundred bytes and small windows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "temporal"))

from hand_made import (
    START,
    HandMade,
    WorkerStub,
    code_of,
    inbox_signal,
    initialize,
    signal,
    step_result,
    task_of,
    timer_fired,
)
from msgspec.structs import replace

from loom import Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.body_effects import sleep_key, wait_key
from loom.core.commands import CommandRunWorker
from loom.core.records import Failure
from loom.core.run import Run
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickLeaveStep,
    TickPublishEvent,
    TickSleep,
    TickTimerFired,
    WorkflowTick,
)
from loom.runtime.durable.registration import Registration
from loom.store import codec
from loom.temporal import names
from loom.temporal.bridge import activations
from loom.temporal.payloads import Effects
from loom.temporal.workflow.policy import CANCELS_FIRST, DOUBTS_SIGNALS, KEEPS_MESSAGES, Policy, flag_of

PROGRAMS = st.lists(st.integers(0, 9_999), min_size=12, max_size=40)
POLICIES = st.builds(
    Policy, st.integers(300, 6_000), st.integers(1, 6), st.just(1_000_000), st.just(2_000_000), st.just(10_000_000)
)


class Piece(Event):
    number: int
    text: str = ""


class Answer(HumanResponseEvent):
    text: str = ""


class Spread(Workflow):
    """Pieces that become more pieces."""

    @step
    async def cut(self, ev: StartEvent) -> Piece | None:
        return None

    @step(num_workers=5)
    async def sew(self, ev: Piece) -> Piece | StopEvent | None:
        return None

    @step(num_workers=2)
    async def hear(self, ev: Answer) -> Piece | None:
        return None


@cache
def code() -> Registration:
    return code_of(Spread(timeout=None))


class Live:
    """An execution, what it was told and what left it."""

    def __init__(self, policy: Policy) -> None:
        self.run = HandMade(code(), around=WorkerStub((policy,)))
        self.policy = policy
        self.told: list[activations.WorkflowActivation] = []
        self.left: list[list[Any]] = []
        self.ticks: list[list[WorkflowTick]] = []
        """What was in each activation, for the plain run."""
        self.bodies: dict[int, Any] = {}
        self.timers: dict[int, Any] = {}
        self.places: dict[int, dict[str, int]] = {}
        self._jobs: list[tuple[Any, list[WorkflowTick]]] = []
        self._add(initialize(self.run.argument))
        self.go(False)

    def go(self, same_task: bool) -> None:
        """Let it take what has gathered."""
        jobs, self._jobs = self._jobs, []
        taken: list[activations.WorkflowActivation] = []
        activate = self.run.instance.activate

        def noting(act: activations.WorkflowActivation) -> Any:
            taken.append(act)
            return activate(act)

        self.run.instance.activate = noting  # type: ignore[method-assign]
        self.run.now += 1.5
        commands = self.run.activate(*(job for job, _ in jobs), same_task=same_task)
        self.run.instance.activate = activate  # type: ignore[method-assign]
        self.told += taken
        self.left.append(commands)
        told = sorted((ticks for _, ticks in jobs), key=lambda ticks: not any(map(_is_cancel, ticks)))
        self.ticks.append([replace(tick, at=self.run.now) for ticks in told for tick in ticks])
        for command in commands:
            if command.HasField("schedule_activity"):
                self.bodies[command.schedule_activity.seq] = command
            elif command.HasField("start_timer"):
                self.timers[command.start_timer.seq] = command
            elif command.HasField("cancel_timer"):
                del self.timers[command.cancel_timer.seq]

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be told to it any more."""
        return any(c.WhichOneof("variant").endswith("workflow_execution") for commands in self.left for c in commands)

    def happen(self, number: int) -> None:
        """What a number stands for."""
        what, which, how = number % 10, number // 10 % 10, number // 100
        if what <= 4 and self.bodies:
            self._resolve(sorted(self.bodies)[which % len(self.bodies)], how)
        elif what <= 6 and self.timers:
            self._fire(sorted(self.timers)[which % len(self.timers)])
        elif what == 7 and self.bodies:
            command = task_of(list(self.bodies.values())[which % len(self.bodies)]).command
            event = code().codec.record(Piece(number=which))
            tick = TickPublishEvent(at=0.0, event=event, source=self._source(command, "publish"))
            self._add(signal(names.SIGNAL_EFFECTS, Effects((tick,))), tick)
        elif number > 9_900:
            self._add(inbox_signal(TickCancelRun(at=0.0)), TickCancelRun(at=0.0))
        else:
            event = code().codec.record(Answer(text="x" * how) if which % 2 else Piece(number=number))
            tick = TickAddEvent(at=0.0, event=event, event_id=f"id {how % 20}", accepted=True)
            self._add(inbox_signal(tick), tick)

    def settle(self) -> None:
        """Let all fences fall: what may leave has left."""
        self.go(False)
        while not self.is_closed and (fences := set(self.timers) - set(self.run.instance.driver.out.timers)):
            self._fire(min(fences))
            self.go(False)

    def _add(self, job: Any, *ticks: WorkflowTick) -> None:
        self._jobs.append((job, list(ticks)))

    def _fire(self, number: int) -> None:
        command = self.timers.pop(number)
        timer = self.run.instance.driver.out.timers.get(number)
        if timer is None:
            self._add(timer_fired(command))
        else:
            self._add(timer_fired(command), TickTimerFired(at=0.0, timer=timer.seq))

    def _resolve(self, number: int, how: int) -> None:
        command = self.bodies.pop(number)
        task = task_of(command)
        ticks = self._waits(task.command, how) if how % 8 < 2 and not task.answers else _ends(task, how)
        self._add(self.run.reported(command, *ticks), *ticks)

    def _waits(self, command: CommandRunWorker, how: int) -> tuple[WorkflowTick, ...]:
        leave = TickLeaveStep(at=0.0, step=command.step, item=command.item.id, seq=command.seq)
        if how % 8 == 0:
            sleep = TickSleep(at=0.0, source=self._source(command, "sleep"), occurrence=0, delay_s=how / 10)
            return sleep, replace(leave, pending=(sleep_key(0),))
        kind, source = code().codec.record(Answer()).kind.name, self._source(command, "wait")
        wait = TickAwaitEvent(at=0.0, source=source, waiter_id="w", occurrence=0, event_type=kind, timeout_s=float(how))
        return wait, replace(leave, pending=(wait_key("w", 0),))

    def _source(self, command: CommandRunWorker, kind: str) -> Source:
        """The same effect of a body always has the same place among its effects."""
        places = self.places.setdefault(command.execution, {})
        return Source(command.step, command.item.id, command.seq, places.setdefault(kind, len(places)))


def _is_cancel(tick: WorkflowTick) -> bool:
    """Say whether a tick overtakes all others of its activation."""
    return isinstance(tick, TickCancelRun)


def _ends(task: Any, how: int) -> tuple[WorkflowTick, ...]:
    """What a body ends with."""
    if how % 8 == 2:
        delay = float(how) if how != 98 else None
        return (step_result(task, failure=Failure("Torn", "a thread is torn"), retry_delay_s=delay),)
    if how == 99:
        return (step_result(task, returned=(code().codec.record(StopEvent(result=how)),)),)
    pieces = tuple(code().codec.record(Piece(number=n, text="x" * how)) for n in range(how % 6))
    return (step_result(task, returned=pieces, fanned_out=True),)


def perform(program: Sequence[int], policy: Policy) -> Live:
    """Let a program happen. Numbers decide too what is told together, and in which task."""
    live = Live(policy)
    for number in program:
        if live.is_closed:
            break
        live.happen(number)
        if number % 3:
            live.go(number % 7 == 0)
    if not live.is_closed:
        live.settle()
    return live


RECORDED = (flag_of(0), DOUBTS_SIGNALS, CANCELS_FIRST, KEEPS_MESSAGES)
"""The flags that the first task of a run leaves in its history."""


@given(PROGRAMS, POLICIES, st.integers(0, 60), st.integers(0, 60))
def test_a_replay_gives_the_same_commands_wherever_the_run_was_evicted(
    program: Sequence[int], policy: Policy, evicted: int, asked: int
) -> None:
    live = perform(program, policy)
    again = HandMade(code(), around=WorkerStub((policy, replace(policy, budget=1, window=1))))
    for number, (act, left) in enumerate(zip(live.told, live.left, strict=True)):
        replayed = activations.WorkflowActivation()
        replayed.CopyFrom(act)
        replayed.is_replaying = number < evicted
        replayed.available_internal_flags.extend(RECORDED)
        completion = again.instance.activate(replayed)
        assert list(completion.successful.commands) == left
        if number == asked:
            again.ask(names.QUERY_STATE)
    assert again.host.core.state == live.run.host.core.state


@given(PROGRAMS, POLICIES)
def test_every_body_of_the_run_leaves_once_and_in_order_whatever_the_budget(
    program: Sequence[int], policy: Policy
) -> None:
    live = perform(program, policy)
    sent = [int(c.schedule_activity.activity_id) for commands in live.left for c in commands if _schedules(c)]
    plain = plain_run(live)
    wanted = [command.seq for command in plain[1] if isinstance(command, CommandRunWorker)]
    assert sent == wanted[: len(sent)]
    is_full = live.run.instance.driver.out.in_flight >= policy.window
    assert live.run.host.core.is_over or is_full or len(sent) == len(wanted)


@given(PROGRAMS, POLICIES)
def test_an_execution_comes_to_what_the_plain_run_comes_to(program: Sequence[int], policy: Policy) -> None:
    live = perform(program, policy)
    host, plain = live.run.host, plain_run(live)[0]
    assert host.core.state == plain.state
    journal = [t for chunk in host.journal.chunks(lambda *_: False) for t in codec.decode_ticks("run-1", chunk)]
    assert len(journal) == plain.state.ticks


def _schedules(command: Any) -> bool:
    return bool(command.HasField("schedule_activity"))


def plain_run(live: Live) -> tuple[Run, list[Any]]:
    """The sans-IO run, told the same; and its commands, none of which is ever held."""
    argument = live.run.argument
    assert argument.start is not None
    run = Run(code().planner, read_field=code().codec.field)
    spec = codec.decode_start("run-1", argument.start.encode())
    commands: list[Any] = []
    for number, ticks in enumerate(live.ticks):
        if number == 0:
            run.feed(code().first_tick("run-1", spec, START + 1.5))
        run.feed(*ticks)
        run.drain()
        commands += run.flush().commands
    return run, commands

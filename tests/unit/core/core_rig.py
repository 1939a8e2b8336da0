"""A small driver of the reducer for unit tests: it feeds ticks and keeps the last commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from loom.core.commands import CommandPublishEvent, CommandRunWorker, WorkflowCommand
from loom.core.invariants import Move, moves, violations, wrong_moves
from loom.core.records import EVENT, START_EVENT, STOP_EVENT, EventKind, EventRecord, Failure
from loom.core.reducer import advance
from loom.core.state import BrokerConfig, BrokerState, Execution, InternalStepWorkerState, StepSpec
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickSleep,
    TickStartRun,
    TickStepResult,
    TickTimerFired,
    WorkflowTick,
)
from loom.steps.planner import StepsPlanner

T = TypeVar("T")


def kind(name: str, *bases: str) -> EventKind:
    return EventKind(name, (*bases, EVENT), name.rpartition(".")[2])


START, STOP, A, B = kind(START_EVENT), kind(STOP_EVENT), kind("t.A"), kind("t.B")


def ev(of: EventKind, **fields: Any) -> EventRecord:
    return EventRecord(of, fields)


def read_field(event: EventRecord, name: str) -> Any:
    return event.body.get(name) if isinstance(event.body, dict) else None


WORK = StepSpec("work", (START.name, A.name), num_workers=1)


class Rig:
    """A run under test. Every tick is checked against the invariants."""

    def __init__(self, *specs: StepSpec, **config: Any) -> None:
        depth = config.pop("max_depth", None)
        self.config = BrokerConfig("test", specs or (WORK,), **config).limited(depth)
        self.planner = StepsPlanner()
        self.state = BrokerState()
        self.last: list[WorkflowCommand] = []
        self.moves: list[Move] = []
        """All moves of work items so far."""

    def start(self, at: float = 0.0, of: EventKind | None = START) -> Rig:
        first = ev(of) if of is not None else None
        return self.tick(TickStartRun(at=at, run_id="r", config=self.config, event=first))

    def tick(self, tick: WorkflowTick) -> Rig:
        made = moves(self.state, tick, self.planner, read_field)
        assert wrong_moves(made, tick) == []
        self.moves += made
        self.state, self.last = advance(self.state, tick, self.planner, read_field)
        assert violations(self.state) == []
        return self

    def commands(self, of: type[T]) -> list[T]:
        return [command for command in self.last if isinstance(command, of)]

    def published(self, of: type[T]) -> list[T]:
        return [c.event for c in self.commands(CommandPublishEvent) if isinstance(c.event, of)]

    def dispatched(self) -> list[tuple[str, int]]:
        return [(c.step, c.item.id) for c in self.commands(CommandRunWorker)]

    def worker(self, step: str = "work") -> InternalStepWorkerState:
        return self.state.workers[step]

    def body(self, item: int = 1) -> Execution:
        for worker in self.state.workers.values():
            found = worker.in_progress.get(item) or worker.suspended.get(item)
            if found is not None:
                return found
        raise AssertionError(f"no execution of item {item}")

    def source(self, item: int = 1, ordinal: int | None = None) -> Source:
        body = self.body(item)
        return Source(body.item.step, item, body.seq, len(body.effects) if ordinal is None else ordinal)

    def event(self, of: EventKind = A, at: float = 0.0, fields: dict[str, Any] | None = None, **more: Any) -> Rig:
        return self.tick(TickAddEvent(at=at, event=ev(of, **(fields or {})), **more))

    def finish(
        self,
        item: int = 1,
        returned: Sequence[EventRecord] = (),
        at: float = 0.0,
        fanned_out: bool = False,
        collects: tuple[CollectCall, ...] = (),
    ) -> Rig:
        body = self.body(item)
        base = {"at": at, "step": body.item.step, "item": item, "seq": body.seq, "collects": collects}
        return self.tick(TickStepResult(**base, returned=tuple(returned), fanned_out=fanned_out))

    def fail(
        self, item: int = 1, delay: float | None = None, at: float = 0.0, collects: tuple[CollectCall, ...] = ()
    ) -> Rig:
        body = self.body(item)
        base = {"at": at, "step": body.item.step, "item": item, "seq": body.seq, "collects": collects}
        return self.tick(TickStepResult(**base, failure=Failure("builtins.ValueError", "no"), retry_delay_s=delay))

    def wait(self, item: int = 1, of: EventKind = B, waiter: str = "w", at: float = 0.0, **more: Any) -> Rig:
        ordinal = more.pop("ordinal", None)
        base = {"at": at, "source": self.source(item, ordinal), "waiter_id": waiter, "event_type": of.name}
        return self.tick(TickAwaitEvent(**base, occurrence=more.pop("occurrence", 0), **more))

    def sleep(self, item: int = 1, delay: float = 5.0, at: float = 0.0, **more: Any) -> Rig:
        base = {"at": at, "source": self.source(item, more.pop("ordinal", None)), "delay_s": delay}
        return self.tick(TickSleep(**base, occurrence=more.pop("occurrence", 0), **more))

    def fire(self, purpose: str, at: float | None = None) -> Rig:
        number, timer = next((n, t) for n, t in sorted(self.state.timers.items()) if t.purpose == purpose)
        return self.tick(TickTimerFired(at=timer.due if at is None else at, timer=number))

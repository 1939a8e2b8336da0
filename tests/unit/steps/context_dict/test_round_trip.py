"""The law of context dicts: a run that was written and read goes on as if nothing had happened."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loom.core.body_effects import CollectBuffer
from loom.core.invariants import violations
from loom.core.persistent import EMPTY_MAP, Fifo
from loom.core.records import STEP_FAILED_KIND, EventRecord, Failure
from loom.core.reducer import advance
from loom.core.run import Run
from loom.core.state import (
    Answer,
    BrokerConfig,
    BrokerState,
    Execution,
    InternalStepWorkerState,
    StepSpec,
    StepWorkerWaiter,
    Waiting,
    WorkItem,
)
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickLeaveStep,
    TickPauseRun,
    TickPublishEvent,
    TickResume,
    TickSleep,
    TickStartRun,
    TickStepResult,
    TickTimerFired,
)
from loom.steps.context_dict import context_from_dict, context_to_dict
from loom.steps.events import Event, HumanResponseEvent, StartEvent, StopEvent
from loom.steps.planner import StepsPlan, StepsPlanner
from loom.steps.registry import kind_of, wire_name
from loom.steps.serializers import JsonSerializer


class Task(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Ping(Event):
    n: int = 0


class Pong(Event):
    n: int = 0


class Answered(HumanResponseEvent):
    text: str = ""


EVENTS = (Task, Done, Ping, Pong, Answered, StartEvent, StopEvent)


def names(*classes: type[Event]) -> tuple[str, ...]:
    return tuple(wire_name(cls) for cls in classes)


def config(workers: int, take: int | None, timeout_s: float | None) -> BrokerConfig:
    return BrokerConfig(
        "Flow",
        (
            StepSpec("begin", names(StartEvent), num_workers=workers, joins=("join",), recovered_by="rescue"),
            StepSpec("work", names(Task), num_workers=workers, joins=("join",), recovered_by="rescue"),
            StepSpec("gather", names(Ping), num_workers=workers),
            StepSpec("pair", names(Ping, Pong), slots=(("a", names(Ping)), ("b", names(Pong)))),
            StepSpec("join", names(Done), collects=True, take=take),
            StepSpec("rescue", (STEP_FAILED_KIND.name,), num_workers=1, max_recoveries=2),
        ),
        timeout_s=timeout_s,
    )


def record(event: Event) -> EventRecord:
    return EventRecord(kind_of(type(event)), event)


def read_field(event: EventRecord, name: str) -> Any:
    return getattr(event.body, name, None)


Choice = tuple[str, int, int]

ACTIONS = ("return", "fan_out", "fail", "wait", "sleep", "publish", "send", "fire", "collect", "resume")


class Driver:
    """Feeds a run with whatever the choices say, as a runtime would."""

    def __init__(self, code: BrokerConfig) -> None:
        self.run = Run(StepsPlanner(), read_field=read_field)
        self.at = 1000.0
        self.feed(TickStartRun(at=self.at, run_id="r", config=code, event=record(StartEvent()), seed=7))

    @property
    def state(self) -> BrokerState:
        return self.run.state

    def feed(self, tick: Any) -> None:
        self.run.feed(tick)
        self.run.drain()
        self.run.flush()

    def act(self, action: str, pick: int, number: int) -> None:
        self.at += 1.0
        if action == "send":
            event = (Answered(text=str(number % 2)), Ping(n=number), Pong(n=number), Task(n=number))[pick % 4]
            waiter_id = f"w{number % 2}" if number % 4 == 0 else None
            event_id = f"id-{number}" if number % 3 == 0 else None
            self.feed(TickAddEvent(at=self.at, event=record(event), waiter_id=waiter_id, event_id=event_id))
        elif action == "fire":
            if self.state.timers:
                self.feed(TickTimerFired(at=self.at, timer=sorted(self.state.timers)[pick % len(self.state.timers)]))
        elif action == "resume":
            self.feed(TickResume(at=self.at))
        else:
            self.in_body(action, pick, number)

    def in_body(self, action: str, pick: int, number: int) -> None:
        live = [e for _, w in sorted(self.state.workers.items()) for _, e in sorted(w.in_progress.items())]
        if not live:
            return
        execution = live[pick % len(live)]
        item = execution.item
        step, seq, at = item.step, execution.seq, self.at
        source = Source(step, item.id, seq, len(execution.effects))
        event = (Task(n=number), Done(n=number), Ping(n=number))[number % 3]
        if action == "return":
            returned = (record(event),) if number % 4 else ()
            self.feed(TickStepResult(at=at, step=step, item=item.id, seq=seq, returned=returned))
        elif action == "fan_out":
            members = tuple(record(Task(n=n)) for n in range(number % 4))
            self.feed(TickStepResult(at=at, step=step, item=item.id, seq=seq, returned=members, fanned_out=True))
        elif action == "fail":
            delay = (None, 0.0, 5.0)[number % 3]
            failure = Failure("builtins.ValueError", f"no {number}", ValueError(f"no {number}"))
            calls = self.collects(execution.item, number) if number % 2 else ()
            tick = TickStepResult(
                at=at, step=step, item=item.id, seq=seq, failure=failure, retry_delay_s=delay, collects=calls
            )
            self.feed(tick)
        elif action == "collect":
            calls = self.collects(execution.item, number)
            self.feed(TickStepResult(at=at, step=step, item=item.id, seq=seq, collects=calls))
        elif action == "wait":
            self.feed(
                TickAwaitEvent(
                    at=at,
                    source=source,
                    waiter_id=f"w{number % 2}",
                    occurrence=number % 3,
                    event_type=wire_name(Answered),
                    requirements=(("text", str(number % 2)),) if number % 2 else (),
                    timeout_s=9.0 if number % 3 else None,
                    suspends=number % 4 != 0,
                )
            )
        elif action == "sleep":
            self.feed(TickSleep(at=at, source=source, occurrence=0, delay_s=4.0, suspends=number % 4 != 0))
        else:
            self.feed(TickPublishEvent(at=at, event=record(event), source=source))

    def collects(self, item: WorkItem, number: int) -> tuple[CollectCall, ...]:
        if not isinstance(item.event.body, Event):
            return ()
        needed = ((item.event.kind.name, 2),)
        worker = self.state.workers[item.step]
        buffer = worker.collected_events.get("default", CollectBuffer())
        took = buffer.counts.get(item.event.kind.name, 0) >= 1
        return (CollectCall("default", item.event, needed, took, 0, buffer.generation, "default" in item.reserved),)


def plain(value: Any) -> Any:
    """A value without what a dict may lose: live exceptions, sharing, and the numbers of timers and waiters."""
    if isinstance(value, Event):
        return type(value).__name__, value.model_dump()
    if isinstance(value, EventRecord):
        return value.kind.name, plain(value.body)
    if isinstance(value, Failure):
        return value.type, value.message
    if isinstance(value, Fifo):
        return [plain(entry) for entry in value]
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    if hasattr(value, "items"):
        return {key: plain(entry) for key, entry in sorted(value.items())}
    return value


def execution_of(execution: Execution) -> Any:
    started_before = execution.item.execution is not None
    known = execution.id if started_before else None
    return plain(execution.item), known, plain(execution.effects), execution.waits_on, execution.worker_id


def suspended_of(execution: Execution) -> Any:
    item = replace(execution.item, execution=None, effects=EMPTY_MAP)
    return plain(item), execution.id, plain(execution.effects), execution.waits_on


def waiter_of(waiter: StepWorkerWaiter) -> Any:
    return plain(replace(waiter, number=0, timer=None)), waiter.timer is not None


def work_of(state: BrokerState, worker: InternalStepWorkerState) -> Any:
    return {
        "queue": plain(worker.queue),
        "running": [execution_of(e) for _, e in sorted(worker.in_progress.items())],
        "suspended": [suspended_of(e) for _, e in sorted(worker.suspended.items())],
        "ready": list(worker.ready),
        "delayed": sorted(
            ((state.timers[n].due, item.id, plain(item)) for n, item in worker.delayed.items()),
            key=lambda entry: entry[:2],
        ),
        "buffers": plain(worker.collected_events),
        "waiters": [waiter_of(w) for _, w in sorted(worker.collected_waiters.items())],
    }


def pending(state: BrokerState) -> Any:
    """Everything that is to be done, and everything that is waited for."""
    numbers = {w.number: i for i, (_, w) in enumerate(state.get_active_waiters())}
    workers = {step: work_of(state, worker) for step, worker in sorted(state.workers.items())}
    return {
        "workers": {step: work for step, work in workers.items() if any(work.values())},
        "plan": plain(StepsPlan(state.plan.streams, state.plan.opened)),
        "slots": [
            (step, name, plain(events))
            for step, slots in sorted(state.plan.slots.items())
            for name, events in sorted(slots.items())
            if events
        ],
        "timers": sorted(
            (t.due, t.purpose, t.step, t.key, t.ref if t.purpose == "sleep" else 0) for t in state.timers.values()
        ),
        "open": {
            item: {k: numbers.get(n, "sleep") for k, n in keys.items()}
            for item, keys in sorted(state.waiting.open.items())
        },
        "answers": {item: plain(a) for item, a in sorted(state.waiting.answers.items()) if a},
        "kept": plain(state.waiting.kept),
        "seen": plain(state.seen),
        "counts": (state.items, state.active, state.asleep, state.waiting.kept_count, state.store_version, state.seed),
        "time": (state.alive_since, state.deadline),
        "outcome": plain(state.outcome),
    }


def through_json(state: BrokerState, now: float) -> BrokerState:
    serializer = JsonSerializer()
    data = context_to_dict(state, store=None, serializer=serializer, now=now)
    data = json.loads(json.dumps(data))
    return context_from_dict(data, config=state.config, serializer=serializer, event_classes=EVENTS, now=now)


def resumed(state: BrokerState, now: float) -> BrokerState:
    state = replace(state, run_id="r", outcome=None, is_running=True)
    after, _ = advance(state, TickResume(at=now, config=state.config), StepsPlanner(), read_field)
    return after


actions = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5), st.integers(0, 11)), max_size=25)


@given(st.integers(1, 3), st.sampled_from([None, 2]), st.sampled_from([None, 10_000.0]), actions)
def test_a_run_goes_on_after_a_round_trip_as_if_nothing_had_happened(
    workers: int, take: int | None, timeout_s: float | None, choices: list[Choice]
) -> None:
    driver = Driver(config(workers, take, timeout_s))
    for choice in choices:
        driver.act(*choice)
    state, now = driver.state, driver.at + 1
    loaded = through_json(state, now)
    if not state.is_running:
        assert not loaded.is_running
        return
    assert not any(worker.in_progress for worker in loaded.workers.values())
    before, after = resumed(state, now), resumed(loaded, now)
    assert violations(after) == violations(before) == []
    assert pending(after) == pending(before)


@given(actions)
def test_a_cancelled_run_goes_on_too(choices: list[Choice]) -> None:
    driver = Driver(config(2, None, None))
    for choice in choices:
        driver.act(*choice)
    if not driver.state.is_running:
        return
    now = driver.at
    expected = pending(resumed(driver.state, now))
    driver.feed(TickCancelRun(at=now))
    assert pending(resumed(through_json(driver.state, now), now)) == expected


@given(actions)
def test_a_loaded_run_can_be_written_again_before_anybody_takes_it_up(choices: list[Choice]) -> None:
    driver = Driver(config(2, 2, None))
    for choice in choices:
        driver.act(*choice)
    if not driver.state.is_running:
        return
    now = driver.at
    once = through_json(driver.state, now)
    much_later = through_json(once, now + 10_000)
    assert much_later.at - much_later.alive_since == once.at - once.alive_since
    expected = {**pending(resumed(once, now)), "time": None}
    assert {**pending(resumed(replace(much_later, at=now), now)), "time": None} == expected


@pytest.mark.parametrize("answered", [False, True])
def test_a_body_that_has_left_with_several_waits_runs_again_after_a_round_trip_and_finds_them(answered: bool) -> None:
    driver = Driver(config(1, None, None))
    for action, number in (("wait", 4), ("sleep", 4)):
        driver.in_body(action, 0, number)
    open_before = driver.state.waiting.open[1]
    driver.feed(TickLeaveStep(at=driver.at, step="begin", item=1, seq=1, pending=tuple(open_before)))
    assert driver.state.workers["begin"].suspended[1].waits_on == "*"
    if answered:
        driver.feed(TickPauseRun(at=driver.at))
        driver.feed(TickAddEvent(at=driver.at, event=record(Answered(text="0"))))
        assert list(driver.state.workers["begin"].ready) == [1]
    after = resumed(through_json(driver.state, driver.at), driver.at)
    assert violations(after) == []
    execution = after.workers["begin"].in_progress[1]
    assert (execution.id, set(execution.effects.values())) == (1, set(open_before))
    assert set(after.waiting.open[1]) == (set(open_before) - {"wait:1:w0"} if answered else set(open_before))


def test_every_part_of_the_state_has_been_thought_of() -> None:
    """A new field of the state needs a place in the dict: add it there, then here."""
    assert set(WorkItem.__struct_fields__) == {
        "id", "step", "event", "extra", "attempts", "first_at", "last_failure", "last_failed_at", "reserved",
        "execution", "effects",
        # For people only, and told anew by the next failure.
        "max_attempts", "began_at",
        # A run that goes on from a dict has a stream of its own: bodies that run again write to it anew.
        "writes",
    }  # fmt: skip
    assert set(InternalStepWorkerState.__struct_fields__) == {
        "num_workers", "queue", "in_progress", "busy", "suspended", "ready", "delayed", "collected_events",
        "collected_waiters",
    }  # fmt: skip
    # Only stored runs are sent events that nobody has checked, and only runs in memory are saved as dicts. Questions
    # are for people who look at stored runs.
    assert set(Waiting.__struct_fields__) == {"index", "open", "answers", "kept", "kept_count", "doubted", "asked"}
    assert set(StepWorkerWaiter.__struct_fields__) == {
        "number", "step", "item", "key", "waiter_id", "event_type", "requirements", "since", "deadline", "timer",
        "refused",
    }  # fmt: skip
    assert set(Execution.__struct_fields__) == {
        "seq", "id", "item", "worker_id", "effects", "live", "waits_on", "writes",
    }  # fmt: skip
    assert set(Answer.__struct_fields__) == {"event", "timed_out", "value", "child"}
    assert set(StepsPlan.__struct_fields__) == {"streams", "opened", "slots"}
    assert set(BrokerState.__struct_fields__) == {
        "run_id", "is_running", "config", "workers", "plan", "at", "seed", "sequence", "items", "published", "active",
        "asleep", "timers", "waiting", "store", "store_version", "seen", "deadline", "timeout_timer", "alive_since",
        "idle_since", "dropped", "outcome", "ticks",
        # A dict is made to go on from, in a run of its own: it is not paused, and it has no child runs yet.
        "paused", "children", "store_type", "due", "refused",
        # A run that is at its clean-up cannot be saved, and one that has done it is over.
        "cleanup",
        # For people only: the failure of the run that the dict was made of is told by that run.
        "last_traceback",
    }  # fmt: skip

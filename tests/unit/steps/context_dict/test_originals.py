"""Context dicts that llama-index-workflows 2.26.1 wrote, in `originals.json`, and older ones in the forms it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loom.core.commands import CommandResumeWorker, CommandRunWorker
from loom.core.invariants import violations
from loom.core.records import EventRecord, Release
from loom.core.run import Run
from loom.core.state import BrokerConfig, BrokerState, StepSpec
from loom.core.ticks import Source, TickAddEvent, TickAwaitEvent, TickResume, TickStepResult
from loom.steps.context_dict import context_from_dict, default_waiter_id
from loom.steps.errors import ContextSerdeError
from loom.steps.events import Event, HumanResponseEvent, StartEvent, StopEvent
from loom.steps.planner import StepsPlanner
from loom.steps.registry import kind_of, wire_name
from loom.steps.serializers import JsonSerializer


class Answered(HumanResponseEvent):
    text: str = ""


class Task(Event):
    n: int


class Done(Event):
    n: int


EVENTS = (Answered, Task, Done, StartEvent, StopEvent)
START, TASK, DONE = ((wire_name(cls),) for cls in (StartEvent, Task, Done))
NOW = 2000.0

WAIT = BrokerConfig("Wait", (StepSpec("ask", START),), timeout_s=60.0)
QUEUE = BrokerConfig("Queue", (StepSpec("begin", START), StepSpec("work", TASK, num_workers=2), StepSpec("end", DONE)))
FAN = BrokerConfig(
    "Fan", (StepSpec("begin", START, joins=("join",)), StepSpec("work", TASK), StepSpec("join", DONE, collects=True))
)
RETRY = BrokerConfig("Retry", (StepSpec("work", START),))
PAIR = BrokerConfig(
    "Pair",
    (
        StepSpec("begin", START),
        StepSpec("other", TASK),
        StepSpec("pair", (*TASK, *DONE), slots=(("a", TASK), ("b", DONE))),
    ),
)


def original(name: str) -> dict[str, Any]:
    text = Path(__file__).with_name("originals.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text.replace("EVENTS.", f"{__name__}."))[name]
    return data


def load(data: dict[str, Any], config: BrokerConfig, **more: Any) -> BrokerState:
    return context_from_dict(data, config=config, serializer=JsonSerializer(), event_classes=EVENTS, now=NOW, **more)


def text(event: Event) -> str:
    return JsonSerializer().serialize(event)


def record(event: Event) -> EventRecord:
    return EventRecord(kind_of(type(event)), event)


class Resumed:
    """A run that goes on from a loaded state."""

    def __init__(self, state: BrokerState) -> None:
        self.run = Run(StepsPlanner(), replace(state, run_id="r"), lambda e, name: getattr(e.body, name, None))
        self.commands: list[Any] = []
        self.feed(TickResume(at=NOW))

    def feed(self, tick: Any) -> list[Any]:
        self.run.feed(tick)
        self.run.drain()
        assert violations(self.run.state) == []
        self.commands = self.run.flush().commands
        return self.commands

    def started(self) -> list[CommandRunWorker]:
        return [command for command in self.commands if isinstance(command, CommandRunWorker)]

    def send(self, event: Event) -> None:
        self.feed(TickAddEvent(at=NOW, event=record(event)))

    def wait(self, command: CommandRunWorker, waiter_id: str, **more: Any) -> list[CommandResumeWorker]:
        source = Source(command.step, command.item.id, command.seq, 0)
        tick = TickAwaitEvent(
            at=NOW, source=source, waiter_id=waiter_id, occurrence=0, event_type=wire_name(Answered), **more
        )
        return [answer for answer in self.feed(tick) if isinstance(answer, CommandResumeWorker)]

    def finish(self, command: CommandRunWorker, *events: Event) -> None:
        self.feed(
            TickStepResult(
                at=NOW, step=command.step, item=command.item.id, seq=command.seq, returned=tuple(map(record, events))
            )
        )


def test_a_waiting_step_stays_suspended_and_gets_its_answer_when_it_runs_again() -> None:
    state = load(original("waiting"), WAIT)
    assert state.is_idle()
    assert state.deadline == pytest.approx(NOW - 0.006 + 60.0)
    [(step, waiter)] = state.get_active_waiters()
    assert (step, waiter.item, waiter.deadline) == ("ask", 1, None)
    run = Resumed(state)
    assert run.started() == []
    run.send(Answered(text="hello"))
    [command] = run.started()
    [answer] = run.wait(command, default_waiter_id(wire_name(Answered), {}, command.item.id))
    assert answer.event is not None
    assert answer.event.body.text == "hello"


def test_requirements_that_nobody_wrote_down_are_learnt_by_running_the_body_again() -> None:
    run = Resumed(load(original("waiting_with_requirements"), WAIT))
    [command] = run.started()
    run.send(Answered(text="y"))
    run.wait(command, "any", requirements=(("text", "x"),))
    run.send(Answered(text="y"))
    assert len(run.run.state.get_active_waiters()) == 1
    run.send(Answered(text="x"))
    assert run.run.state.get_active_waiters() == []


def test_work_in_progress_runs_again_before_the_queue() -> None:
    run = Resumed(load(original("queued_and_in_progress"), QUEUE))
    assert [(c.item.id, c.item.event.body.n, c.worker_id) for c in run.started()] == [(2, 0, 0), (3, 1, 1)]
    assert [item.event.body.n for item in run.run.state.workers["work"].queue] == [2, 3]
    assert run.run.state.items == 5


def test_collected_events_are_kept_with_their_counts() -> None:
    buffer = load(original("collecting"), QUEUE).workers["end"].collected_events["default"]
    assert [event.body.n for event in buffer.events] == [0, 1]
    assert dict(buffer.counts) == {wire_name(Done): 2}
    assert buffer.generation == 2


def test_an_open_stream_is_joined_once_its_last_member_is_done() -> None:
    run = Resumed(load(original("fanned_out_and_waiting"), FAN))
    run.send(Answered())
    [command] = run.started()
    run.finish(command, Done(n=2))
    [join] = run.started()
    assert isinstance(join.item.event.body, Release)
    assert [member.body.n for member in join.item.event.body.members] == [0, 1, 2]
    assert not run.run.state.plan.streams


def test_a_waiting_join_keeps_its_members() -> None:
    run = Resumed(load(original("join_waiting"), FAN))
    run.send(Answered(text="go"))
    [command] = run.started()
    release = command.item.event.body
    assert (release.step, [member.body.n for member in release.members]) == ("join", [0, 1, 2])
    assert command.item.id == 8
    [answer] = run.wait(command, default_waiter_id(wire_name(Answered), {}, 8))
    assert answer.event is not None


def test_a_delayed_retry_keeps_its_time_and_its_failure() -> None:
    state = load(original("delayed_retry"), RETRY)
    assert state.is_asleep()
    [(number, item)] = state.workers["work"].delayed.items()
    assert state.timers[number].due == 1500.0
    assert item.attempts == 1
    assert item.last_failure is not None
    assert (item.last_failure.type, item.last_failure.message) == ("builtins.ValueError", "no")


def test_half_a_pair_waits_for_the_other_half() -> None:
    run = Resumed(load(original("half_a_pair"), PAIR))
    assert [command.step for command in run.started()] == ["other"]
    run.send(Done(n=5))
    [command] = run.started()
    assert [(name, event.body.n) for name, event in command.item.extra.bound] == [("a", 1), ("b", 5)]


def test_an_answered_wait_stays_answered_while_the_next_one_is_open() -> None:
    run = Resumed(load(original("second_of_two_waits"), WAIT))
    assert run.started() == []
    run.send(Answered(text="r2"))
    [command] = run.started()
    [first] = run.wait(command, "one")
    assert first.event is not None
    assert first.event.body.text == "r1"


def test_an_answered_wait_without_other_work_is_queued_again_once() -> None:
    data = original("waiting")
    waiter = data["workers"]["ask"]["collected_waiters"][0]
    waiter["resolved_event"] = text(Answered(text="late"))
    [command] = Resumed(load(data, WAIT)).started()
    assert command.item.id == 1
    data["workers"]["ask"]["queue"] = [{"event": waiter["event"], "work_item_id": "work_item_1"}]
    assert [c.item.id for c in Resumed(load(data, WAIT)).started()] == [1]


def test_waiters_from_before_work_items_find_their_work_by_its_event() -> None:
    start = text(StartEvent())
    waiting_for = {"waiting_for_event": wire_name(Answered), "event": start}
    worker = {
        "queue": [{"event": start}],
        "collected_waiters": [
            {
                "waiter_id": f"waiter_{wire_name(Answered)}_{{}}",
                "resolved_event": text(Answered(text="a")),
                **waiting_for,
            }
        ],
    }
    run = Resumed(load({"version": 1, "is_running": True, "workers": {"ask": worker}}, WAIT))
    [command] = run.started()
    [answer] = run.wait(command, default_waiter_id(wire_name(Answered), {}, command.item.id))
    assert answer.event is not None
    assert answer.event.body.text == "a"


def test_two_old_waiters_of_one_body_are_one_piece_of_work() -> None:
    waiting_for = {"waiting_for_event": wire_name(Answered), "event": text(StartEvent())}
    worker = {
        "collected_waiters": [
            {"waiter_id": "one", "resolved_event": text(Answered()), **waiting_for},
            {"waiter_id": "two", **waiting_for},
        ]
    }
    state = load({"version": 1, "is_running": True, "workers": {"ask": worker}}, WAIT)
    assert state.is_idle()
    assert list(state.workers["ask"].suspended) == [1]


def test_events_on_their_way_arrive() -> None:
    data = original("fanned_out_and_waiting")
    [stream] = data["streams"]
    data["streams"][stream]["open_work_items"] += 1
    data["deliveries"] = [
        {"invocation_id": "invocation_4", "index": 0, "event": text(Task(n=9)), "scope_path": [stream]},
        {"invocation_id": "invocation_4", "index": 1, "event": text(Answered(text="x"))},
    ]
    state = load(data, FAN)
    assert not any(worker.in_progress for worker in state.workers.values())
    assert state.published == 0
    run = Resumed(state)
    commands = run.started()
    assert [command.item.event.body.n for command in commands] == [9, 2]
    for command in commands:
        run.finish(command, Done(n=command.item.event.body.n))
    [join] = run.started()
    assert [member.body.n for member in join.item.event.body.members] == [0, 1, 9, 2]


def test_version_1_had_bare_events_in_progress() -> None:
    worker = {"queue": [{"event": text(Task(n=2)), "attempts": 1}], "in_progress": [text(Task(n=1))]}
    state = load({"version": 1, "is_running": True, "workers": {"work": worker}}, QUEUE)
    assert [(item.event.body.n, item.attempts) for item in state.workers["work"].queue] == [(1, 0), (2, 1)]


def version_0(**more: Any) -> dict[str, Any]:
    return {
        "state": {},
        "streaming_queue": "[]",
        "queues": {"work": json.dumps([text(Task(n=1)), text(StartEvent())]), "begin": json.dumps([text(Task(n=1))])},
        "event_buffers": {"end": {wire_name(Done): [text(Done(n=7))]}},
        "in_progress": {"work": [text(Task(n=0))]},
        "accepted_events": [],
        "broker_log": [],
        "is_running": True,
        "waiting_ids": [],
        **more,
    }


def test_version_0_queued_every_event_everywhere() -> None:
    state = load(version_0(), QUEUE)
    assert [item.event.body.n for item in state.workers["work"].queue] == [0, 1]
    assert not state.workers["begin"].queue
    assert [event.body.n for event in state.workers["end"].collected_events["default"].events] == [7]


def test_version_0_kept_the_events_of_waiters_in_queues() -> None:
    data = version_0(waiting_ids=["w"], queues={"w": json.dumps([text(Answered(text="early"))])})
    run = Resumed(load(data, QUEUE))
    [answer] = run.wait(run.started()[0], "w")
    assert answer.event is not None
    assert answer.event.body.text == "early"


def test_version_0_buffers_go_to_the_only_step_that_takes_their_events() -> None:
    state = load(version_0(event_buffers={"mine": {wire_name(Done): [text(Done(n=7))]}}), QUEUE)
    assert [event.body.n for event in state.workers["end"].collected_events["mine"].events] == [7]


def test_a_version_0_buffer_that_no_step_can_own_is_named() -> None:
    with pytest.raises(ContextSerdeError, match="no step 'mine' \\(1 item\\)"):
        load(version_0(event_buffers={"mine": {wire_name(Answered): [text(Answered())]}}), QUEUE)


def test_an_empty_dict_is_a_context_that_has_not_begun() -> None:
    assert not load({}, WAIT).is_running

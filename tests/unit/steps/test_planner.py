"""The planner of Python steps, asked directly: what it answers to a fact, without a run around it."""

from __future__ import annotations

from loom.core.planner import Complete, Emit, Fail, Publish, RunStep, StepFailed, Warn
from loom.core.records import EVENT, INPUT_REQUIRED_EVENT, STOP_EVENT, EventKind, EventRecord, Failure, StepFailure
from loom.core.state import BrokerConfig, StepSpec, WorkItem
from loom.steps.planner import Origin, StepInput, StepsPlanner

A, B, DONE = (EventKind(f"m.{name}", (EVENT,), name) for name in ("A", "B", "Done"))
SUB = EventKind("m.Sub", ("m.A", EVENT), "Sub")
ASK = EventKind("m.Ask", (INPUT_REQUIRED_EVENT, EVENT), "Ask")
STOP = EventKind(STOP_EVENT, (EVENT,), "StopEvent")
CONFIG = BrokerConfig(
    "w",
    (
        StepSpec("split", ("m.Begin",), joins=("join",)),
        StepSpec("work", ("m.A",), recovered_by="mend"),
        StepSpec("any_a", ("m.A",), accept_subclasses=True),
        StepSpec("pair", ("m.A", "m.B"), slots=(("a", ("m.A",)), ("b", ("m.B",)))),
        StepSpec("join", ("m.Done",), collects=True),
        StepSpec("mend", ("workflows.events.StepFailedEvent",), max_recoveries=1),
    ),
)
NOBODY: frozenset[str] = frozenset()


def test_event_goes_to_every_step_that_takes_its_very_type() -> None:
    planner = StepsPlanner()
    plan, intents, taken = planner.on_event(CONFIG, planner.start(CONFIG), EventRecord(A, 1), None, None, NOBODY)
    assert taken
    assert [i.step for i in intents if isinstance(i, RunStep)] == ["work", "any_a"], "the pair has an empty slot still"
    _, intents, _ = planner.on_event(CONFIG, plan, EventRecord(B, 2), None, None, NOBODY)
    [run] = intents
    assert isinstance(run, RunStep)
    assert [(name, event.body) for name, event in run.extra.bound] == [("a", 1), ("b", 2)]


def test_subclass_goes_only_where_subclasses_are_wanted_and_woken_steps_are_passed_over() -> None:
    planner = StepsPlanner()
    plan = planner.start(CONFIG)
    _, intents, _ = planner.on_event(CONFIG, plan, EventRecord(SUB), None, None, NOBODY)
    assert [i.step for i in intents if isinstance(i, RunStep)] == ["any_a"]
    assert planner.on_event(CONFIG, plan, EventRecord(SUB), None, None, frozenset({"any_a"}))[1:] == ([], True)
    assert planner.on_event(CONFIG, plan, EventRecord(DONE), "work", None, NOBODY)[2] is False


def test_what_a_join_outside_of_streams_returns_carries_no_mark() -> None:
    planner = StepsPlanner()
    plan = planner.start(CONFIG)
    item = WorkItem(1, "pair", EventRecord(B), StepInput(Origin(), (("a", EventRecord(A)), ("b", EventRecord(B)))))
    plan, [emit] = planner.on_returned(CONFIG, plan, item, (EventRecord(SUB),), fanned_out=False)
    assert isinstance(emit, Emit)
    _, [run], _ = planner.on_event(CONFIG, plan, emit.event, None, emit.origin, NOBODY)
    assert isinstance(run, RunStep)
    assert run.extra is None


def test_returned_events_end_the_run_are_published_or_go_on() -> None:
    planner = StepsPlanner()
    plan, item = planner.start(CONFIG), WorkItem(1, "work", EventRecord(A))

    def returned(*kinds: EventKind) -> list[type]:
        events = tuple(EventRecord(kind) for kind in kinds)
        return [type(i) for i in planner.on_returned(CONFIG, plan, item, events, fanned_out=len(kinds) > 1)[1]]

    assert returned(STOP) == [Complete]
    assert returned(ASK) == [Publish, Emit]
    assert returned(A) == [Emit]
    assert returned() == []
    assert returned(A, STOP) == [Complete], "an end in a list is an end"


def test_stream_closes_when_its_last_member_is_settled() -> None:
    planner = StepsPlanner()
    item = WorkItem(1, "split", EventRecord(A))
    plan, emits = planner.on_returned(
        CONFIG, planner.start(CONFIG), item, (EventRecord(DONE, 1), EventRecord(DONE, 2)), fanned_out=True
    )
    fired: list[RunStep] = []
    for emit in emits:
        assert isinstance(emit, Emit)
        plan, intents, _ = planner.on_event(CONFIG, plan, emit.event, None, emit.origin, NOBODY)
        fired += [i for i in intents if isinstance(i, RunStep)]
    assert [[member.body for member in run.event.body.members] for run in fired] == [[1, 2]]
    assert not plan.streams


def test_join_takes_nothing_that_was_sent() -> None:
    planner = StepsPlanner()
    plan = planner.start(CONFIG)
    [warning] = planner.on_event(CONFIG, plan, EventRecord(DONE), None, None, NOBODY)[1]
    assert isinstance(warning, Warn)
    [failure] = planner.on_event(CONFIG, plan, EventRecord(DONE), "join", None, NOBODY)[1]
    assert isinstance(failure, Fail)


def test_failure_goes_to_the_handler_as_long_as_its_budget_lasts() -> None:
    planner = StepsPlanner()
    plan, failure = planner.start(CONFIG), Failure("ValueError", "no")
    first = StepFailed(WorkItem(1, "work", EventRecord(A)), failure, 1, 0.5, 2.0)
    [emit] = planner.on_failed(CONFIG, plan, first)[1]
    assert isinstance(emit, Emit)
    assert emit.step == "mend"
    assert emit.event.body == StepFailure("work", EventRecord(A), failure, 1, 0.5, 2.0)
    again = StepFailed(WorkItem(2, "work", EventRecord(A), emit.origin), failure, 1, 0.5, 3.0)
    [end] = planner.on_failed(CONFIG, plan, again)[1]
    assert isinstance(end, Fail)
    assert end.step == "work"


def test_idle_run_with_a_stream_that_nothing_can_close_fails() -> None:
    planner = StepsPlanner()
    item = WorkItem(1, "split", EventRecord(A))
    plan, _ = planner.on_returned(CONFIG, planner.start(CONFIG), item, (EventRecord(DONE),), fanned_out=True)
    [failure] = planner.on_idle(CONFIG, plan, [])[1]
    assert isinstance(failure, Fail)
    assert failure.failure.message.startswith("Workflow is idle but collection streams are still open")
    inside = WorkItem(2, "work", EventRecord(A), StepInput(Origin((1,))))
    assert planner.on_idle(CONFIG, plan, [inside])[1] == (), "its waiting member can"

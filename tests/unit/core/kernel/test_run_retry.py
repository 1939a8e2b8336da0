"""A failed run that is retried: it goes on as if it had not failed."""

from __future__ import annotations

from typing import Any

import pytest
from core_rig import START, STOP, A, B, Rig, ev

from loom.core.body_effects import wait_key
from loom.core.commands import CommandResumeWorker, CommandRunWorker, CommandStartTimer
from loom.core.config import StepSpec
from loom.core.records import STEP_FAILED_KIND, EventRecord, Failure
from loom.core.run import Run
from loom.core.ticks import (
    TickCancelRun,
    TickContinueRun,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickRetryRun,
    TickTimeout,
)
from loom.steps.planner import StepsPlanner

RETRY = TickRetryRun(at=50.0)
TWO = (StepSpec("work", (START.name, A.name), num_workers=1), StepSpec("other", (B.name,)))


def test_failed_item_is_next_and_begins_anew() -> None:
    rig = Rig().start().event().fail(1, delay=0.0).fail(1)
    assert rig.state.outcome is not None
    assert rig.state.outcome.status == "failed"
    rig.tick(RETRY)
    (command,) = rig.commands(CommandRunWorker)
    item = command.item
    assert (item.id, item.attempts, item.first_at, dict(item.effects)) == (1, 0, 50.0, {})
    assert item.last_failure == Failure("builtins.ValueError", "no")
    assert [queued.id for queued in rig.worker().queue] == [2]
    assert (rig.state.outcome, rig.state.is_running) == (None, True)
    assert rig.finish(1, [ev(STOP)]).state.outcome is not None


def test_failed_item_gets_a_new_execution_whose_effects_apply_again() -> None:
    rig = Rig().start()
    before = rig.body().id
    assert rig.tick(TickPublishEvent(at=0.0, event=ev(B), source=rig.source())).published(EventRecord) == [ev(B)]
    rig.fail(1).tick(RETRY)
    assert rig.body().id != before
    assert rig.tick(TickPublishEvent(at=50.0, event=ev(B), source=rig.source())).published(EventRecord) == [ev(B)]


def test_answers_and_recorded_results_of_the_failed_item_stay() -> None:
    rig = Rig().start().wait().event(B)
    rig.tick(TickRecordResult(at=0.0, source=rig.source(), name="charge", value=17))
    rig.fail(1).tick(RETRY)
    (command,) = rig.commands(CommandRunWorker)
    assert dict(command.records) == {"charge": 17}
    (resumed,) = rig.wait(at=50.0).commands(CommandResumeWorker)
    assert resumed.event == ev(B)


def test_other_work_goes_on_where_it_was() -> None:
    rig = Rig(*TWO).start().event(B).event(B).wait(2, of=A, waiter="x")
    executing = rig.body(3)
    rig.fail(1).tick(RETRY)
    assert sorted(rig.dispatched()) == [("other", 3), ("work", 1)]
    assert rig.body(3).id == executing.id
    assert rig.body(2).waits_on == "wait:0:x"
    assert rig.event(A, at=50.0).dispatched() == [("other", 2)]


def test_timed_out_run_gets_all_of_its_time_once_more() -> None:
    rig = Rig(timeout_s=10.0).start().sleep(delay=30.0)
    rig.tick(TickTimeout(at=10.0, timer=1))
    assert not rig.state.timers
    rig.tick(RETRY)
    assert (rig.state.deadline, rig.state.alive_since) == (60.0, 50.0)
    armed = [(c.purpose, c.due) for c in rig.commands(CommandStartTimer)]
    assert armed == [("sleep", 30.0), ("timeout", 60.0)]
    assert rig.fire("sleep", at=51.0).dispatched() == [("work", 1)]


def test_failure_that_was_no_steps_restores_the_work() -> None:
    join = StepSpec("gather", (B.name,), collects=True)
    rig = Rig(StepSpec("work", (START.name, A.name)), join).start()
    rig.event(B, step="gather")
    assert rig.state.outcome is not None
    assert rig.tick(RETRY).dispatched() == [("work", 1)]


def test_recovered_failure_leaves_nothing_to_retry_with() -> None:
    rig = Rig(
        StepSpec("work", (START.name,), recovered_by="mend"),
        StepSpec("mend", (STEP_FAILED_KIND.name,), max_recoveries=1),
    )
    rig.start().fail(1)
    assert [item for step, item in rig.dispatched()] == [2]
    rig.fail(2).tick(RETRY)
    assert rig.dispatched() == [("mend", 2)]


def test_run_can_fail_and_be_retried_again_and_again() -> None:
    rig = Rig().start()
    for _ in range(3):
        rig.fail(1, at=50.0)
        assert not rig.state.is_running
        rig.tick(RETRY)
        assert rig.dispatched() == [("work", 1)]


def test_paused_run_that_failed_is_paused_when_it_is_retried() -> None:
    rig = Rig().start().tick(TickPauseRun(at=0.0)).fail(1).tick(RETRY)
    assert rig.dispatched() == []
    assert rig.tick(TickContinueRun(at=50.0)).dispatched() == [("work", 1)]


@pytest.mark.parametrize("how", ["running", "completed", "cancelled", "parked"])
def test_other_runs_are_not_retried(how: str) -> None:
    rig = Rig().start()
    if how == "completed":
        rig.finish(1, [ev(STOP)])
    elif how == "cancelled":
        rig.tick(TickCancelRun(at=0.0))
    elif how == "parked":
        rig.tick(TickParkRun(at=0.0, reason="no such type"))
    before = rig.state
    assert rig.tick(TickRetryRun(at=0.0)).last == []
    assert (rig.state.outcome, rig.state.dropped) == (before.outcome, before.dropped + 1)


def test_driver_gets_another_ending_after_a_retry() -> None:
    rig = Rig().start().fail(1)
    run = Run(StepsPlanner(), rig.state)
    assert len(run.flush().commands) == 1
    assert run.is_closed
    run.feed(RETRY)
    run.drain()
    assert not run.is_closed
    assert [type(c).__name__ for c in run.flush().commands] == ["CommandRunWorker", "CommandPublishEvent"]


def test_parked_by_a_tick_keeps_everything_and_says_why() -> None:
    rig = Rig().start().event().tick(TickParkRun(at=0.0, reason="no type t.B"))
    assert rig.state.outcome is not None
    assert (rig.state.outcome.status, rig.state.outcome.message) == ("parked", "no type t.B")
    assert len(rig.worker().queue) == 1


def test_another_event_takes_the_place_of_what_the_failed_work_was_for() -> None:
    rig = Rig().start().event(A).fail(1)
    rig.tick(TickRetryRun(at=50.0, event=ev(START, n=2), step="work", item=1))
    (command,) = rig.commands(CommandRunWorker)
    assert (command.item.id, command.item.event) == (1, ev(START, n=2))
    assert [queued.event for queued in rig.worker().queue] == [ev(A)]


def test_another_event_answers_the_wait_that_the_failed_work_had_come_to() -> None:
    rig = Rig().start().wait().event(B, fields={"n": 1}).wait(occurrence=1).event(B, fields={"n": 2}).event(B)
    rig.fail(1).tick(TickRetryRun(at=50.0, event=ev(B, n=3), step="work", item=1, key=wait_key("w", 1)))
    (first,) = rig.wait(at=50.0).commands(CommandResumeWorker)
    (second,) = rig.wait(at=50.0, occurrence=1).commands(CommandResumeWorker)
    assert (first.event, second.event) == (ev(B, n=1), ev(B, n=3))
    assert rig.state.waiting.kept_count == 1  # what came early stays for whom it came


@pytest.mark.parametrize("place", [{"item": 7}, {"step": "other"}, {"key": wait_key("w", 0)}])
def test_an_event_for_a_place_that_is_not_there_changes_nothing(place: dict[str, Any]) -> None:
    rig = Rig(*TWO).start().fail(1)
    before = rig.state
    rig.tick(TickRetryRun(at=50.0, event=ev(START), **{"step": "work", "item": 1, **place}))
    assert rig.state.outcome == before.outcome
    assert rig.state.dropped == before.dropped + 1

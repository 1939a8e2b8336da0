"""How a run begins, is recovered, is paused, becomes idle, ends and is retried; its child runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from core_rig import START, STOP, WORK, A, B, Rig, ev, kind
from msgspec.structs import replace

from loom.core.body_effects import wait_key
from loom.core.commands import (
    CommandCancelChild,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
)
from loom.core.records import (
    STEP_FAILED_KIND,
    CancelledReport,
    EventRecord,
    Failure,
    IdleReport,
    TimedOutReport,
    WaiterReport,
)
from loom.core.run import Run
from loom.core.state import BrokerConfig, ChildEnd, StepSpec, Waiting
from loom.core.ticks import (
    CollectCall,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEditStore,
    TickEndWait,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickResume,
    TickRetryRun,
    TickStartChild,
    TickStartRun,
    TickTimeout,
)
from loom.steps.planner import StepsPlanner


def test_start_brings_code_seed_and_store() -> None:
    rig = Rig()
    rig.tick(TickStartRun(at=3.0, run_id="r", config=rig.config, seed=7, store={"k": 1}))
    state = rig.state
    assert (state.run_id, state.seed, dict(state.store), state.at, state.is_running) == ("r", 7, {"k": 1}, 3.0, True)


def test_start_without_an_event_is_idle_at_once() -> None:
    assert len(Rig().start(of=None).published(IdleReport)) == 1


def test_start_without_a_run_id_is_refused() -> None:
    rig = Rig()
    rig.tick(TickStartRun(at=0.0, run_id="", config=rig.config, event=ev(START)))
    assert (rig.state.is_running, rig.last) == (False, [])


def test_timeout_is_armed_with_the_start() -> None:
    rig = Rig(timeout_s=10.0).start(at=5.0)
    assert [(c.purpose, c.due) for c in rig.commands(CommandStartTimer)] == [("timeout", 15.0)]


def test_timeout_says_which_steps_were_active() -> None:
    rig = Rig(timeout_s=10.0).start()
    rig.tick(TickTimeout(at=10.0, timer=rig.state.timeout_timer))
    assert rig.published(TimedOutReport) == [TimedOutReport(10.0, ("work",))]
    assert rig.state.outcome.message == "Operation timed out after 10.0 seconds. Currently active steps: work"
    assert (len(rig.state.timers), rig.state.active) == (0, 0)


def test_timeout_of_a_waiting_run_names_no_step() -> None:
    rig = Rig(timeout_s=10.0).start().wait(1)
    rig.tick(TickTimeout(at=10.0, timer=rig.state.timeout_timer))
    assert rig.state.outcome.message.endswith("No steps active")


def test_foreign_timeout_is_counted() -> None:
    rig = Rig(timeout_s=10.0).start().tick(TickTimeout(at=1.0, timer=99))
    assert (rig.state.is_running, rig.state.dropped) == (True, 1)


def test_time_that_nobody_was_alive_moves_the_deadline_and_no_other_timer() -> None:
    rig = Rig(timeout_s=10.0).start().wait(1, timeout_s=4.0).tick(TickResume(at=103.0, away_s=100.0))
    assert [(c.purpose, c.due) for c in rig.commands(CommandStartTimer)] == [("timeout", 110.0), ("waiter", 4.0)]
    assert (rig.state.deadline, rig.state.alive_since) == (110.0, 100.0)


def test_recovery_with_code_that_lacks_a_busy_step_parks_and_the_right_code_goes_on() -> None:
    rig = Rig().start()
    other = BrokerConfig("test", (StepSpec("else", (A.name,)),))
    rig.tick(TickResume(at=1.0, config=other))
    assert rig.state.outcome.status == "parked"
    assert "'work'" in rig.state.outcome.message
    rig.tick(TickResume(at=2.0, config=BrokerConfig("test", (WORK,))))
    assert rig.dispatched() == [("work", 1)]


@pytest.mark.parametrize(
    "holding",
    [
        lambda rig: rig.start(),
        lambda rig: rig.start().wait(1),
        lambda rig: rig.start().fail(1, delay=9.0),
        lambda rig: rig.start().event(A).wait(2, suspends=False).wait(1),
    ],
    ids=["executing", "suspended", "delayed", "both"],
)
def test_no_kind_of_work_is_lost_to_other_code(holding: Callable[[Rig], Rig]) -> None:
    rig = holding(Rig(replace(WORK, num_workers=2)))
    held = rig.state.workers
    rig.tick(TickResume(at=1.0, config=BrokerConfig("test", ())))
    assert (rig.state.outcome.status, rig.state.workers) == ("parked", held)


def test_step_without_work_may_vanish_from_the_code() -> None:
    rig = Rig().start().finish(1).tick(TickResume(at=1.0, config=BrokerConfig("test", ())))
    assert rig.state.is_running
    assert rig.state.config.steps == ()


def test_recovery_with_more_workers_uses_them() -> None:
    rig = Rig().start().event(A).tick(TickResume(at=1.0, config=BrokerConfig("test", (replace(WORK, num_workers=2),))))
    assert rig.dispatched() == [("work", 1), ("work", 2)]


def test_idle_is_told_on_the_transition_only_with_what_is_waited_for() -> None:
    rig = Rig().start().wait(1, requirements=(("n", 1),), timeout_s=5.0, at=1.0)
    (report,) = rig.published(IdleReport)
    assert report == IdleReport((WaiterReport("work", B.name, "w", (("n", 1),), 1.0, 6.0),), 1.0)
    rig.tick(TickEditStore(at=2.0, base_version=0, changed={"k": 1}))
    assert (rig.published(IdleReport), rig.state.idle_since) == ([], 1.0)


def test_run_without_waiters_names_the_steps_that_take_answers() -> None:
    rig = Rig(WORK, StepSpec("answer", (B.name,), inputs=(B.name,))).start().finish(1)
    assert [(w.step, w.event_type) for w in rig.published(IdleReport)[0].waiters] == [("answer", B.name)]


def test_idle_ends_with_work_and_is_told_again_after_it() -> None:
    rig = Rig().start().finish(1).event(A, at=1.0)
    assert rig.state.idle_since is None
    assert len(rig.finish(2, at=2.0).published(IdleReport)) == 1


def test_cancelled_run_keeps_its_work() -> None:
    rig = Rig().start().event(A).tick(TickCancelRun(at=1.0))
    assert rig.published(CancelledReport) == [CancelledReport()]
    assert (rig.state.outcome.status, rig.state.active) == ("cancelled", 2)


def test_completed_run_keeps_its_result_and_nothing_else() -> None:
    rig = Rig(timeout_s=9.0).start().event(A).wait(1).event(kind("t.C")).finish(2, [ev(STOP, n=1)])
    state = rig.state
    assert state.outcome.event == ev(STOP, n=1)
    assert (len(state.workers), len(state.timers), state.deadline, state.active) == (0, 0, None, 0)
    assert (state.waiting, state.plan) == (Waiting(), rig.planner.start(rig.config))
    assert rig.commands(CommandRunWorker) == []


def test_active_steps_are_those_that_hold_a_worker() -> None:
    rig = Rig(WORK, StepSpec("other", (A.name,))).start().event(A).wait(1)
    assert rig.state.active_steps() == ("work", "other")
    rig.finish(2).finish(3)
    assert rig.state.active_steps() == ()


PAUSE, CONTINUE = TickPauseRun(at=0.0), TickContinueRun(at=0.0)


def paused(*specs: StepSpec) -> Rig:
    return Rig(*specs).start().tick(PAUSE)


def test_new_work_is_queued_although_a_worker_is_free() -> None:
    rig = paused(StepSpec("work", (START.name, A.name)))
    rig.event()
    assert rig.dispatched() == []
    assert [item.id for item in rig.worker().queue] == [2]


def test_body_at_work_finishes_and_what_it_returns_waits() -> None:
    rig = paused().finish(1, [ev(A)])
    assert rig.dispatched() == []
    assert (rig.state.active, len(rig.worker().queue)) == (1, 1)
    assert rig.tick(CONTINUE).dispatched() == [("work", 2)]


def test_run_can_complete_while_it_is_paused() -> None:
    rig = paused().finish(1, [ev(STOP)])
    assert rig.state.outcome is not None
    assert rig.state.outcome.status == "completed"


def test_answered_body_goes_on_only_when_the_run_is_continued() -> None:
    rig = Rig().start().wait().tick(PAUSE).event(B)
    assert rig.commands(CommandResumeWorker) == []
    assert list(rig.worker().ready) == [1]
    (resumed,) = rig.tick(CONTINUE).commands(CommandResumeWorker)
    assert resumed.event == ev(B)


def test_answer_to_a_child_task_of_an_executing_body_passes() -> None:
    rig = Rig().start().wait(suspends=False).tick(PAUSE).event(B)
    assert len(rig.commands(CommandResumeWorker)) == 1


def test_timers_fire_and_their_work_waits() -> None:
    rig = Rig().start().fail(1, delay=5.0).tick(PAUSE).fire("retry")
    assert rig.dispatched() == []
    assert rig.state.active == 1
    assert rig.tick(TickContinueRun(at=6.0)).dispatched() == [("work", 1)]


def test_failed_attempt_that_is_due_at_once_waits() -> None:
    rig = paused().fail(1, delay=0.0)
    assert rig.dispatched() == []
    assert rig.tick(CONTINUE).dispatched() == [("work", 1)]


def test_body_whose_collect_was_answered_wrongly_runs_again_after_the_pause_as_the_same_execution() -> None:
    rig = Rig().start().tick(PAUSE)
    execution = rig.body()
    stale = CollectCall("x", ev(A), ((A.name, 1),), took=False, ordinal=0)
    rig.finish(1, collects=(stale,))
    assert rig.dispatched() == []
    (again,) = rig.tick(CONTINUE).commands(CommandRunWorker)
    assert (again.item.id, again.execution) == (1, execution.id)


def test_pause_of_a_paused_run_and_continue_of_a_running_one_change_nothing() -> None:
    rig = paused().event()
    assert rig.tick(PAUSE).last == []
    rig.tick(CONTINUE)
    assert rig.tick(CONTINUE).last == []


def test_continue_uses_the_workers_of_every_step() -> None:
    rig = paused(StepSpec("work", (START.name, A.name), num_workers=2), StepSpec("other", (B.name,)))
    rig.event().event().event(B)
    assert rig.tick(CONTINUE).dispatched() == [("work", 2), ("other", 4)]


def test_recovery_leaves_the_run_paused() -> None:
    rig = paused().event().tick(TickResume(at=1.0))
    assert rig.state.paused
    assert rig.dispatched() == []
    assert rig.tick(TickContinueRun(at=1.0)).dispatched() == [("work", 1)]


def test_run_is_blocked_when_it_is_paused_and_no_body_is_at_work() -> None:
    rig = paused().event()
    assert not rig.state.is_blocked()
    rig.finish(1)
    assert rig.state.is_blocked()
    assert not rig.state.is_idle()
    assert not rig.tick(CONTINUE).state.is_blocked()


def test_idle_and_sleeping_runs_are_blocked_and_ended_ones_are_not() -> None:
    assert Rig().start().wait().state.is_blocked()
    assert Rig().start().sleep().state.is_blocked()
    assert not Rig().start().state.is_blocked()
    assert not Rig().start().finish(1, [ev(STOP)]).state.is_blocked()
    assert not Rig().state.is_blocked()


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


def child(rig: Rig, item: int = 1, occurrence: int = 0, ordinal: int | None = None, **more: Any) -> Rig:
    source = rig.source(item, ordinal)
    return rig.tick(
        TickStartChild(at=0.0, source=source, occurrence=occurrence, workflow="pay", start={"n": 1}, **more)
    )


def ended(rig: Rig, number: int, status: Any = "completed", **more: Any) -> Rig:
    return rig.tick(TickChildEnded(at=0.0, child=number, status=status, **more))


def parent() -> Rig:
    return child(Rig().start())


def test_child_is_started_under_an_id_of_its_parents_and_the_worker_is_free() -> None:
    rig = parent()
    assert rig.commands(CommandStartChild) == [CommandStartChild(2, "r:2", "pay", {"n": 1})]
    assert rig.body().waits_on == "child:0"
    assert rig.event().dispatched() == [("work", 2)]


def test_parent_that_waits_is_idle_and_says_for_what() -> None:
    rig = parent()
    assert rig.state.is_idle()
    (report,) = rig.published(IdleReport)
    assert report.waiters == (WaiterReport("work", "child run", "r:2", since=0.0),)


def test_result_goes_to_the_body_that_waits() -> None:
    rig = ended(parent(), 2, event=ev(STOP, n=7))
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.event) == ("child:0", ev(STOP, n=7))
    assert resumed.child == ChildEnd("r:2", "completed")
    assert not rig.state.children


@pytest.mark.parametrize("status", ["failed", "cancelled", "timed_out"])
def test_failure_is_an_answer_too(status: str) -> None:
    failure = Failure("x.E", "no") if status == "failed" else None
    rig = ended(parent(), 2, status, failure=failure)
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.event, resumed.child) == (None, ChildEnd("r:2", status, failure))  # type: ignore[arg-type]


def test_end_of_an_unknown_child_is_dropped_and_counted() -> None:
    rig = ended(parent(), 9)
    assert rig.state.dropped == 1
    ended(rig, 2, event=ev(STOP))
    assert ended(rig, 2, event=ev(STOP)).state.dropped == 2


def test_body_that_runs_again_after_a_crash_finds_its_child() -> None:
    rig = child(Rig().start(), suspends=False).tick(TickResume(at=0.0))
    assert rig.commands(CommandStartChild) == []
    assert child(rig, ordinal=0).commands(CommandStartChild) == []
    (resumed,) = ended(rig, 2, event=ev(STOP)).commands(CommandResumeWorker)
    assert resumed.event == ev(STOP)


def test_body_that_runs_again_finds_the_answer_that_came_meanwhile() -> None:
    rig = parent().tick(TickResume(at=0.0))
    assert rig.last == []
    assert ended(rig, 2, event=ev(STOP)).dispatched() == [("work", 1)]
    (resumed,) = child(rig, ordinal=0).commands(CommandResumeWorker)
    assert resumed.event == ev(STOP)


def test_two_children_at_once_each_have_their_answer() -> None:
    rig = child(Rig().start(), suspends=False)
    child(rig, occurrence=1, suspends=False)
    ended(rig, 3, event=ev(STOP, n=3))
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.event) == ("child:1", ev(STOP, n=3))
    assert set(rig.state.children) == {2}


def test_wait_that_the_body_gives_up_cancels_its_child() -> None:
    rig = parent()
    rig.tick(TickEndWait(at=0.0, step="work", item=1, seq=rig.body().seq, key="child:0"))
    assert rig.commands(CommandCancelChild) == [CommandCancelChild(2, "r:2")]
    assert rig.body().waits_on == ""


def test_settled_item_cancels_what_it_waited_for() -> None:
    rig = child(Rig().start(), suspends=False).finish(1)
    assert rig.commands(CommandCancelChild) == [CommandCancelChild(2, "r:2")]


def test_new_attempt_finds_the_child_that_is_under_way_and_one_that_failed_is_started_anew() -> None:
    rig = child(Rig().start(), suspends=False)
    child(rig, occurrence=1, suspends=False)
    ended(rig, 2, "failed", failure=Failure("x.E", "no"))
    rig.fail(1, delay=0.0)
    (started,) = child(rig, suspends=False).commands(CommandStartChild)
    assert started.run_id == "r:5"
    assert child(rig, occurrence=1, suspends=False).commands(CommandStartChild) == []


@pytest.mark.parametrize("how", ["completed", "failed", "timed_out", "cancelled"])
def test_every_end_of_the_parent_ends_its_children(how: str) -> None:
    rig = Rig(timeout_s=10.0).start().event()
    child(rig)
    if how == "completed":
        rig.finish(2, [ev(STOP)])
    elif how == "failed":
        rig.fail(2)
    elif how == "timed_out":
        rig.fire("timeout")
    else:
        rig.tick(TickCancelRun(at=0.0))
    assert [c.run_id for c in rig.commands(CommandCancelChild)] == ["r:3"]
    assert rig.state.outcome is not None
    assert (rig.state.outcome.status, len(rig.state.children)) == (how, 0)


def test_parked_parent_keeps_its_children() -> None:
    rig = parent().tick(TickParkRun(at=0.0, reason="no such type"))
    assert rig.commands(CommandCancelChild) == []
    rig.tick(TickResume(at=0.0))
    assert rig.commands(CommandStartChild) == []
    assert ended(rig, 2, event=ev(STOP)).dispatched() == [("work", 1)]


def test_retry_lets_whoever_had_waited_for_a_child_ask_again() -> None:
    rig = parent().event().fail(2).tick(TickRetryRun(at=0.0))
    assert [c.item.id for c in rig.commands(CommandRunWorker)] == [1]
    assert [item.id for item in rig.worker().queue] == [2]
    (started,) = child(rig, ordinal=0).commands(CommandStartChild)
    assert started.run_id != "r:2"


def test_effect_of_another_kind_at_the_same_place_parks() -> None:
    rig = child(Rig().start(), suspends=False).tick(TickResume(at=0.0)).wait(ordinal=0)
    assert rig.state.outcome is not None
    assert "'child:0'" in rig.state.outcome.message

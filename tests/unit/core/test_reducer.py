"""The reducer as a whole: dispatch, lateness, derived events, the store, failed work, replay."""

from __future__ import annotations

import pytest
from core_rig import START, STOP, WORK, A, B, Rig, ev, kind, read_field

from loom.core.commands import CommandQueueEvent, CommandRunWorker, CommandStartTimer, CommandWarn
from loom.core.planner import Emit, Fail
from loom.core.records import (
    INPUT_REQUIRED_EVENT,
    STEP_FAILED_KIND,
    EventRecord,
    FailedReport,
    Failure,
    IdleReport,
    StepFailure,
    UnhandledReport,
)
from loom.core.reducer import advance, no_fields, reduce, replay, replay_steps
from loom.core.state import BrokerConfig, BrokerState, StepSpec, WorkItem
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickEditStore,
    TickPublishEvent,
    TickResume,
    TickStartRun,
    TickStepResult,
    TickTimerFired,
)
from loom.steps.planner import StepsPlanner

CHAIN = (StepSpec("plan", (START.name,)), StepSpec("write", (A.name,)))


def test_single_step_shows_the_event_that_the_run_makes_itself() -> None:
    config = BrokerConfig("test", CHAIN)
    start = TickStartRun(at=0.0, run_id="r", config=config, event=ev(START))
    _, commands = reduce(BrokerState(), start, StepsPlanner())
    assert [c.tick.event.kind for c in commands if isinstance(c, CommandQueueEvent)] == [START]
    _, outward = advance(BrokerState(), start, StepsPlanner())
    assert not [c for c in outward if isinstance(c, CommandQueueEvent)]
    assert [c.step for c in outward if isinstance(c, CommandRunWorker)] == ["plan"]


def test_returned_event_reaches_its_step_within_the_transition() -> None:
    rig = Rig(*CHAIN).start().finish(1, [ev(A)])
    assert rig.dispatched() == [("write", 2)]


def test_every_accepting_step_gets_the_event_and_knows_that_it_is_shared() -> None:
    rig = Rig(StepSpec("a", (START.name, A.name)), StepSpec("b", (A.name,))).start().event(A)
    assert [(c.step, c.item.event.shared) for c in rig.commands(CommandRunWorker)] == [("a", True), ("b", True)]


def test_event_for_one_step_reaches_no_other() -> None:
    rig = Rig(StepSpec("a", (START.name, A.name)), StepSpec("b", (A.name,))).start().event(A, step="b")
    assert [(c.step, c.item.event.shared) for c in rig.commands(CommandRunWorker)] == [("b", False)]


def test_waiter_of_a_step_takes_the_event_instead_of_the_step() -> None:
    rig = Rig(StepSpec("a", (START.name, A.name)), StepSpec("b", (A.name,))).start().wait(1, of=A).event(A)
    assert rig.dispatched() == [("b", 2)]


def test_unknown_event_is_reported() -> None:
    rig = Rig().start().event(B)
    assert rig.published(UnhandledReport) == [UnhandledReport(B, None, idle=False, kept=True)]


def test_question_to_the_outside_is_not_unhandled() -> None:
    rig = Rig().start().event(kind("t.Ask", INPUT_REQUIRED_EVENT))
    assert rig.published(UnhandledReport) == []


def test_repeated_event_id_is_dropped() -> None:
    rig = Rig().start().event(A, event_id="e")
    assert rig.event(A, event_id="e").last == []
    assert rig.state.items == 2


def test_event_that_was_refused_may_be_sent_again_under_its_id() -> None:
    rig = Rig(keep_unclaimed=0).start().event(B, event_id="e").wait(1).event(B, event_id="e")
    assert rig.state.get_active_waiters() == []


def test_kept_event_is_kept_once_under_its_id() -> None:
    assert Rig().start().event(B, event_id="e").event(B, event_id="e").state.waiting.kept_count == 1


def test_event_that_a_step_returned_is_not_kept() -> None:
    rig = Rig().start().finish(1, [ev(B)])
    assert [report.kept for report in rig.published(UnhandledReport)] == [False]


def test_unhandled_event_says_whether_the_run_was_idle() -> None:
    idle = Rig().start().finish(1).event(B)
    assert [report.idle for report in idle.published(UnhandledReport)] == [True]
    asleep = Rig().start().sleep(1).event(B)
    assert [report.idle for report in asleep.published(UnhandledReport)] == [False]


def test_event_that_ends_the_run_is_not_unhandled() -> None:
    rig = Rig(StepSpec("begin", (START.name,)), StepSpec("join", (A.name,), collects=True)).start()
    rig.event(A, step="join")
    assert rig.state.outcome.status == "failed"
    assert rig.published(UnhandledReport) == []


def test_child_task_of_a_waiting_body_can_send() -> None:
    rig = Rig(*CHAIN).start().wait(1)
    rig.tick(TickAddEvent(at=0.0, event=ev(A), source=rig.source(1)))
    assert rig.dispatched() == [("write", 2)]


def test_clock_never_goes_back() -> None:
    assert Rig().start(at=5.0).event(A, at=1.0).state.at == 5.0


def test_state_knows_where_it_stands_in_the_journal() -> None:
    assert Rig(*CHAIN).start().finish(1, [ev(A)]).event(A).state.ticks == 3


def test_nothing_happens_before_the_start() -> None:
    rig = Rig().event(A)
    assert (rig.last, rig.state.dropped, rig.state.is_running) == ([], 1, False)


def test_second_start_is_refused() -> None:
    rig = Rig().start()
    before = rig.state.items
    rig.start(at=9.0)
    assert (rig.last, rig.state.items, rig.state.dropped) == ([], before, 1)


def test_late_result_times_the_run_out() -> None:
    rig = Rig(timeout_s=10.0).start().finish(1, [ev(STOP)], at=10.1)
    assert rig.state.outcome.status == "timed_out"


def test_result_at_the_very_deadline_counts() -> None:
    rig = Rig(timeout_s=10.0).start().finish(1, [ev(STOP)], at=10.0)
    assert rig.state.outcome.status == "completed"


def test_timeout_that_arrives_as_a_plain_timer_ends_the_run_too() -> None:
    rig = Rig(timeout_s=10.0).start()
    rig.tick(TickTimerFired(at=10.0, timer=rig.state.timeout_timer))
    assert rig.state.outcome.status == "timed_out"


def test_cancelled_run_is_not_recovered() -> None:
    rig = Rig().start().tick(TickCancelRun(at=1.0)).tick(TickResume(at=2.0))
    assert (rig.state.outcome.status, rig.last) == ("cancelled", [])


def test_parked_run_takes_nothing_but_a_recovery() -> None:
    other = BrokerConfig("test", ())
    rig = Rig().start().tick(TickResume(at=1.0, config=other)).event(A, at=2.0)
    assert (rig.state.outcome.status, rig.state.dropped, rig.last) == ("parked", 1, [])


def test_planners_warning_goes_to_the_log() -> None:
    rig = Rig(StepSpec("begin", (START.name,)), StepSpec("join", (A.name,), collects=True)).start().event(A)
    assert ["A is ignored" in c.notice.message for c in rig.commands(CommandWarn)] == [True]


def test_over_is_over() -> None:
    rig = Rig().start().tick(TickCancelRun(at=1.0))
    ended = rig.state.outcome
    rig.event(A, at=2.0).tick(TickTimerFired(at=3.0, timer=1)).tick(TickCancelRun(at=4.0))
    assert (rig.state.outcome, rig.state.dropped, rig.last) == (ended, 3, [])


def test_result_of_an_unknown_execution_is_counted() -> None:
    rig = Rig().start()
    for step, item, seq in (("work", 1, 99), ("work", 7, 1), ("ghost", 1, 1)):
        rig.tick(TickStepResult(at=0.0, step=step, item=item, seq=seq))
    assert (rig.state.dropped, rig.state.active) == (3, 1)


def test_timer_that_is_not_armed_is_counted() -> None:
    assert Rig().start().tick(TickTimerFired(at=0.0, timer=44)).state.dropped == 1


def test_store_edits_change_and_remove_keys_and_count_versions() -> None:
    rig = Rig().start()
    rig.tick(TickEditStore(at=0.0, base_version=0, changed={"a": 1, "b": 2}))
    rig.tick(TickEditStore(at=0.0, base_version=1, changed={"a": 3}, removed=("b", "c")))
    assert (dict(rig.state.store), rig.state.store_version) == ({"a": 3}, 2)


def test_published_event_goes_to_the_stream_only() -> None:
    rig = Rig().start().tick(TickPublishEvent(at=0.0, event=ev(A)))
    assert rig.published(EventRecord) == [ev(A)]
    assert rig.state.items == 1


def test_body_without_a_reader_has_no_fields() -> None:
    assert no_fields(ev(A, n=1), "n") is None
    assert read_field(ev(A, n=1), "n") == 1


def test_planner_may_fail_a_run_instead_of_letting_it_idle() -> None:
    class Impatient(StepsPlanner):
        def on_idle(self, config: object, plan: object, waiting: list[WorkItem]) -> object:
            assert [item.id for item in waiting] == [1]
            return plan, (Fail("work", Failure("x.Stuck", "stuck")),)

    rig = Rig().start()
    rig.planner = Impatient()
    rig.wait(1)
    assert rig.state.outcome.failure == Failure("x.Stuck", "stuck")
    assert rig.published(IdleReport) == []


def test_planner_may_add_an_event_when_the_run_would_idle() -> None:
    class Busy(StepsPlanner):
        def on_idle(self, config: object, plan: object, waiting: list[WorkItem]) -> object:
            return plan, (Emit(ev(A)),)

    rig = Rig().start()
    rig.planner = Busy()
    assert rig.finish(1).dispatched() == [("work", 2)]


def test_failed_transition_leaves_the_state_as_it_was() -> None:
    class Broken(StepsPlanner):
        def on_event(self, *_args: object) -> object:
            raise RuntimeError("planner")

    rig = Rig().start()
    before = rig.state
    rig.planner = Broken()
    with pytest.raises(RuntimeError, match="planner"):
        rig.event(A)
    assert rig.state is before
    assert advance(before, TickAddEvent(at=0.0, event=ev(A)), StepsPlanner())[0].items == 2


def test_type_of_the_store_is_that_of_the_start_until_an_edit_names_another() -> None:
    rig = Rig()
    rig.tick(TickStartRun(at=0.0, run_id="r", config=rig.config, store={"a": 1}, store_type="t.State"))
    rig.tick(TickEditStore(at=0.0, base_version=0, changed={"a": 2}))
    assert rig.state.store_type == "t.State"
    rig.tick(TickEditStore(at=0.0, base_version=1, changed={}, state_type="t.Other"))
    assert rig.state.store_type == "t.Other"


def test_number_of_the_letter_changes_nothing() -> None:
    plain = Rig().start().event(A).state
    assert Rig().start().event(A, mail=17).state == plain


JOURNAL = [
    TickStartRun(at=0.0, run_id="r", config=BrokerConfig("test", (WORK,)), event=ev(START)),
    TickAddEvent(at=1.0, event=ev(A)),
    TickStepResult(at=2.0, step="work", item=1, seq=1, returned=(ev(STOP),)),
]


def test_journal_gives_the_state_that_it_made() -> None:
    state = replay(JOURNAL, StepsPlanner(), None, read_field)
    assert (state.run_id, state.at, state.outcome.event) == ("r", 2.0, ev(STOP))


def test_nothing_gives_a_run_that_has_not_begun() -> None:
    assert replay([], StepsPlanner()) == BrokerState()


def test_snapshot_and_tail_give_the_same_state() -> None:
    snapshot = replay(JOURNAL[:2], StepsPlanner())
    assert replay(JOURNAL[2:], StepsPlanner(), snapshot) == replay(JOURNAL, StepsPlanner())


def test_every_past_state_and_its_commands_can_be_looked_at() -> None:
    steps = list(replay_steps(JOURNAL, StepsPlanner()))
    assert [tick for tick, _, _ in steps] == JOURNAL
    assert [state.at for _, state, _ in steps] == [0.0, 1.0, 2.0]
    assert [sum(isinstance(c, CommandRunWorker) for c in commands) for _, _, commands in steps] == [1, 0, 0]
    tail = list(replay_steps(JOURNAL[1:], StepsPlanner(), steps[0][1]))
    assert tail == steps[1:]


ONE = StepSpec("work", (START.name, A.name), num_workers=1)
MENDED = (
    StepSpec("work", (START.name, A.name), recovered_by="mend"),
    StepSpec("mend", (STEP_FAILED_KIND.name,), max_recoveries=1),
)


def test_retry_now_goes_before_the_queue_and_counts_attempts() -> None:
    rig = Rig(ONE).start().event(A).fail(1, delay=0.0, at=1.0)
    (again,) = rig.commands(CommandRunWorker)
    assert (again.item.id, again.item.attempts, again.item.last_failed_at) == (1, 1, 1.0)
    assert again.item.last_failure.message == "no"
    assert again.item.first_at == 0.0


def test_delayed_retry_is_a_timer_and_gives_the_worker_to_others() -> None:
    rig = Rig(ONE).start().event(A).fail(1, delay=2.5, at=1.0)
    assert [(c.purpose, c.due) for c in rig.commands(CommandStartTimer)] == [("retry", 3.5)]
    assert rig.dispatched() == [("work", 2)]
    rig.finish(2, at=2.0)
    assert rig.state.is_asleep()
    assert rig.fire("retry").dispatched() == [("work", 1)]
    assert (rig.state.asleep, rig.state.active) == (0, 1)


def test_retry_timer_fires_once() -> None:
    rig = Rig(ONE).start().fail(1, delay=2.5)
    (timer,) = rig.state.timers
    rig.fire("retry").tick(TickTimerFired(at=9.0, timer=timer))
    assert (rig.dispatched(), rig.state.dropped) == ([], 1)


def test_retry_is_a_new_execution_whose_effects_apply_again() -> None:
    rig = Rig(ONE).start()
    publish = TickPublishEvent(at=0.0, event=rig.body().item.event, source=rig.source(ordinal=0))
    rig.tick(publish).fail(1, delay=0.0)
    (again,) = rig.commands(CommandRunWorker)
    assert again.execution == again.seq
    assert not again.item.effects
    rig.tick(TickPublishEvent(at=0.0, event=again.item.event, source=rig.source(ordinal=0)))
    assert len(rig.last) == 1


def test_final_failure_goes_to_the_recovery_step_with_its_history() -> None:
    rig = Rig(*MENDED).start(at=1.0).fail(1, delay=0.0, at=2.0).fail(1, at=4.0)
    (command,) = rig.commands(CommandRunWorker)
    body = command.item.event.body
    assert isinstance(body, StepFailure)
    assert (command.step, body.step, body.attempts, body.elapsed_s, body.failed_at) == ("mend", "work", 2, 3.0, 4.0)


def test_failure_that_nothing_recovers_ends_the_run() -> None:
    rig = Rig(ONE).start().event(A).fail(1, at=2.0)
    (report,) = rig.published(FailedReport)
    assert (report.step, report.attempts, report.elapsed_s) == ("work", 1, 2.0)
    assert (rig.state.outcome.status, rig.state.is_running, rig.state.active) == ("failed", False, 0)


def test_recovery_has_a_budget_along_its_line() -> None:
    rig = Rig(*MENDED).start().fail(1)
    rig.finish(2, [rig.body(2).item.event.body.input])
    assert rig.dispatched() == [("work", 3)]
    assert rig.fail(3).state.outcome.status == "failed"


def test_work_that_failed_for_good_waits_no_more() -> None:
    rig = Rig(*MENDED).start().wait(1, timeout_s=9.0, suspends=False).fail(1)
    assert rig.state.get_active_waiters() == []
    assert not rig.state.timers


# The draft: timers are state.


def test_recovery_asks_for_every_timer_again_under_its_number_in_order() -> None:
    rig = Rig(timeout_s=50.0).start().wait(1, timeout_s=9.0)
    numbers = sorted(rig.state.timers)
    rig.tick(TickResume(at=1.0))
    assert [c.seq for c in rig.commands(CommandStartTimer)] == numbers


def test_fired_timer_is_believed_whatever_its_time() -> None:
    rig = Rig().start().fail(1, delay=60.0).fire("retry", at=1.0)
    assert rig.dispatched() == [("work", 1)]
    assert rig.state.at == 1.0


def test_only_timers_that_bring_work_back_make_a_run_asleep() -> None:
    waiting = Rig(timeout_s=50.0).start().wait(1, timeout_s=9.0)
    assert waiting.state.is_idle()
    retrying = Rig(timeout_s=50.0).start().fail(1, delay=9.0)
    assert retrying.state.is_asleep()


def test_disarmed_timer_does_nothing() -> None:
    rig = Rig().start().wait(1, timeout_s=9.0)
    (number,) = rig.state.timers
    rig.event(B).tick(TickTimerFired(at=9.0, timer=number))
    assert (rig.last, rig.state.dropped) == ([], 1)

"""Waiting for events and for time."""

from __future__ import annotations

from core_rig import START, STOP, A, B, Rig, ev, kind

from loom.core.body_effects import wait_key
from loom.core.commands import CommandCancelTimer, CommandResumeWorker, CommandStartTimer
from loom.core.config import StepSpec
from loom.core.records import INPUT_REQUIRED_EVENT, EventRecord
from loom.core.reports import IdleReport, UnhandledReport
from loom.core.ticks import TickAddEvent, TickEndWait, TickResume

WIDE = StepSpec("work", (START.name, A.name), num_workers=0)


def end_wait(rig: Rig, key: str) -> Rig:
    return rig.tick(TickEndWait(at=0.0, step="work", item=1, seq=rig.body().seq, key=key))


def give_up(rig: Rig) -> Rig:
    """The body stops the wait that it is suspended in."""
    return end_wait(rig, rig.body().waits_on)


def test_wait_gives_the_worker_back_and_the_answer_wakes_the_same_body() -> None:
    rig = Rig().start().event(A).wait(1)
    assert rig.dispatched() == [("work", 2)]
    rig.finish(2).event(B, fields={"n": 1})
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.event, resumed.worker_id) == (wait_key("w", 0), ev(B, n=1), 0)
    assert resumed.seq == rig.body(1).seq


def test_woken_body_waits_for_a_free_worker_and_goes_before_the_queue() -> None:
    rig = Rig().start().event(A).event(A).wait(1).event(B)
    assert rig.commands(CommandResumeWorker) == []
    rig.finish(2)
    assert [c.step for c in rig.commands(CommandResumeWorker)] == ["work"]
    assert rig.dispatched() == []


def test_two_waits_in_a_row_get_two_answers() -> None:
    rig = Rig().start().wait(1).event(B, fields={"n": 1}).wait(1, occurrence=1).event(B, fields={"n": 2})
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.event) == (wait_key("w", 1), ev(B, n=2))


def test_waiter_takes_only_what_meets_its_requirements() -> None:
    rig = Rig().start().wait(1, requirements=(("user", "ann"),)).event(B, fields={"user": "bob"})
    assert rig.commands(CommandResumeWorker) == []
    rig.event(B, fields={"user": "ann"})
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B, user="ann")]


def test_event_for_a_waiter_id_reaches_that_waiter_alone() -> None:
    rig = Rig(WIDE).start().event(A).wait(1, waiter="x").wait(2, waiter="y").event(B, waiter_id="y")
    assert [c.key for c in rig.commands(CommandResumeWorker)] == [wait_key("y", 0)]


def test_one_event_answers_every_matching_waiter_oldest_first_and_is_marked_as_shared() -> None:
    rig = Rig(WIDE).start().event(A).event(A).wait(2).wait(1).wait(3).event(B)
    resumed = rig.commands(CommandResumeWorker)
    assert [c.seq for c in resumed] == [rig.body(2).seq, rig.body(1).seq, rig.body(3).seq]
    assert all(c.event is not None and c.event.shared for c in resumed)


def test_answer_of_a_subclass_needs_a_step_that_takes_subclasses() -> None:
    sub = kind("t.SubB", B.name)
    strict = Rig().start().wait(1).event(sub)
    assert strict.commands(CommandResumeWorker) == []
    lax = Rig(StepSpec("work", (START.name,), accept_subclasses=True)).start().wait(1).event(sub)
    assert len(lax.commands(CommandResumeWorker)) == 1


def test_early_event_is_kept_for_its_waiter_and_given_once() -> None:
    rig = Rig(WIDE).start().event(A).event(B, fields={"n": 1})
    assert rig.published(UnhandledReport)[0].kept
    rig.wait(1)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B, n=1)]
    assert rig.state.waiting.kept_count == 0
    rig.wait(2)
    assert rig.commands(CommandResumeWorker) == []


def test_kept_events_have_a_limit() -> None:
    rig = Rig(keep_unclaimed=1).start().event(B).event(B)
    assert not rig.published(UnhandledReport)[0].kept
    assert rig.state.waiting.kept_count == 1


def test_accepted_event_is_kept_whatever_the_limit_and_its_id_stays_taken() -> None:
    rig = Rig(keep_unclaimed=1).start().event(B).event(B, accepted=True, event_id="e")
    assert rig.published(UnhandledReport)[0].kept
    assert rig.state.waiting.kept_count == 2
    assert rig.event(B, accepted=True, event_id="e").state.waiting.kept_count == 2


def test_events_that_a_body_sends_are_not_kept() -> None:
    rig = Rig().start()
    rig.tick(TickAddEvent(at=0.0, event=ev(B), source=rig.source()))
    assert not rig.published(UnhandledReport)[0].kept


def test_repeated_wait_after_a_crash_finds_its_answer() -> None:
    rig = Rig().start().wait(1).event(B).tick(TickResume(at=1.0))
    rig.wait(1, at=1.0, ordinal=0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B)]


def test_repeated_wait_under_a_made_up_id_finds_its_answer_by_position() -> None:
    rig = Rig().start().wait(1, waiter="auto-1").event(B).tick(TickResume(at=1.0))
    rig.wait(1, at=1.0, waiter="auto-2", ordinal=0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B)]


def test_waiter_of_a_dead_process_starts_the_body_again_when_answered() -> None:
    rig = Rig().start().wait(1).tick(TickResume(at=1.0))
    assert rig.dispatched() == []
    rig.event(B, at=1.0)
    assert rig.dispatched() == [("work", 1)]
    assert rig.commands(CommandResumeWorker) == []


def test_waiter_times_out_by_its_timer() -> None:
    rig = Rig().start().wait(1, timeout_s=3.0)
    assert [(c.purpose, c.due) for c in rig.commands(CommandStartTimer)] == [("waiter", 3.0)]
    rig.fire("waiter")
    assert [(c.event, c.timed_out) for c in rig.commands(CommandResumeWorker)] == [(None, True)]


def test_answer_cancels_the_timer_of_its_waiter() -> None:
    rig = Rig().start().wait(1, timeout_s=3.0)
    (armed,) = rig.commands(CommandStartTimer)
    assert rig.event(B).commands(CommandCancelTimer) == [CommandCancelTimer(armed.seq)]


def test_timed_out_wait_is_waited_for_anew_by_the_next_attempt_but_an_answer_stays() -> None:
    rig = Rig().start().wait(1, timeout_s=3.0).fire("waiter").fail(1, delay=0.0, at=3.0)
    assert rig.wait(1, at=3.0).commands(CommandResumeWorker) == []
    rig.event(B, at=3.0).fail(1, delay=0.0, at=3.0).wait(1, at=3.0)
    assert len(rig.commands(CommandResumeWorker)) == 1


def test_wait_in_a_child_task_keeps_the_worker() -> None:
    rig = Rig().start().event(A).wait(1, suspends=False)
    assert rig.dispatched() == []
    rig.event(B)
    assert [c.worker_id for c in rig.commands(CommandResumeWorker)] == [None]
    assert list(rig.worker().in_progress) == [1]


def test_abandoned_wait_gives_the_body_a_worker_again() -> None:
    rig = give_up(Rig().start().wait(1, timeout_s=9.0))
    assert list(rig.worker().in_progress) == [1]
    assert rig.state.get_active_waiters() == []
    assert len(rig.commands(CommandCancelTimer)) == 1


def test_abandoned_sleep_is_not_asleep_any_more() -> None:
    rig = give_up(Rig().start().sleep(1))
    assert not rig.state.timers
    assert (rig.state.active, rig.state.asleep) == (1, 0)


def test_end_of_a_wait_without_a_name_changes_nothing() -> None:
    rig = end_wait(Rig().start(), "")
    assert list(rig.worker().in_progress) == [1]


def test_sleep_makes_a_run_asleep_and_not_idle() -> None:
    rig = Rig().start().sleep(1, delay=5.0)
    assert rig.state.is_asleep()
    assert not rig.state.is_idle()
    assert rig.published(IdleReport) == []
    rig.fire("sleep")
    assert len(rig.commands(CommandResumeWorker)) == 1
    assert not rig.state.is_asleep()


def test_second_wait_of_a_suspended_body_changes_no_worker() -> None:
    rig = Rig().start().wait(1).wait(1, waiter="v")
    assert list(rig.worker().suspended) == [1]
    assert [w.waiter_id for _, w in rig.state.get_active_waiters()] == ["w", "v"]


def test_waiter_called_sleep_is_no_sleep() -> None:
    rig = Rig().start().wait(1, waiter="sleep", suspends=False).sleep(1)
    assert [timer.purpose for timer in rig.state.timers.values()] == ["sleep"]
    assert rig.state.is_asleep()


def test_body_that_ends_while_it_sleeps_leaves_nothing_asleep() -> None:
    rig = Rig().start().sleep(1).finish(1)
    assert (rig.state.active, rig.state.asleep) == (0, 0)
    assert not rig.state.timers


def test_body_that_fails_while_it_sleeps_is_retried_and_sleeps_anew() -> None:
    rig = Rig().start().sleep(1, delay=5.0).fail(1, delay=0.0, at=1.0)
    assert (rig.state.active, rig.state.asleep) == (1, 0)
    rig.sleep(1, delay=5.0, at=1.0)
    assert rig.state.is_asleep()


def test_settled_item_leaves_no_waiter_behind() -> None:
    rig = Rig().start().wait(1, timeout_s=9.0, suspends=False).finish(1)
    assert rig.state.get_active_waiters() == []
    assert not rig.state.timers
    assert not rig.state.waiting.open


def test_only_the_answered_wait_of_an_item_is_closed() -> None:
    rig = Rig().start().wait(1, waiter="x", suspends=False).wait(1, waiter="y", of=kind("t.C"), suspends=False).event(B)
    assert list(rig.state.waiting.open[1]) == [wait_key("y", 0)]
    assert not rig.event(kind("t.C")).state.waiting.open


def test_sleep_that_is_over_is_closed() -> None:
    assert not Rig().start().sleep(1).fire("sleep").state.waiting.open


def test_sleep_in_a_child_task_keeps_the_worker() -> None:
    rig = Rig().start().sleep(1, suspends=False)
    assert list(rig.worker().in_progress) == [1]
    rig.fire("sleep")
    assert [c.worker_id for c in rig.commands(CommandResumeWorker)] == [None]


def test_second_sleep_of_a_suspended_body_changes_no_worker() -> None:
    rig = Rig().start().wait(1).sleep(1)
    assert rig.body().waits_on == wait_key("w", 0)
    assert rig.state.is_asleep()


def test_early_subclass_is_kept_for_a_step_that_takes_subclasses() -> None:
    sub = kind("t.SubB", B.name)
    strict = Rig().start().event(sub).wait(1)
    assert strict.commands(CommandResumeWorker) == []
    lax = Rig(StepSpec("work", (START.name,), accept_subclasses=True)).start().event(sub).wait(1)
    assert [c.event for c in lax.commands(CommandResumeWorker)] == [ev(sub)]


def test_early_event_for_a_waiter_id_is_kept_for_that_id() -> None:
    rig = Rig(WIDE).start().event(A).event(B, waiter_id="y").wait(1, waiter="x")
    assert rig.commands(CommandResumeWorker) == []
    assert len(rig.wait(2, waiter="y").commands(CommandResumeWorker)) == 1


def test_body_that_gives_up_another_wait_stays_suspended() -> None:
    rig = Rig().start().wait(1, waiter="child", suspends=False).wait(1)
    end_wait(rig, wait_key("child", 0))
    assert rig.body().waits_on == wait_key("w", 0)
    assert [w.waiter_id for _, w in rig.state.get_active_waiters()] == ["w"]


def test_abandoned_sleep_is_closed() -> None:
    assert not give_up(Rig().start().sleep(1)).state.waiting.open


def test_answers_are_forgotten_with_their_item() -> None:
    rig = Rig().start().wait(1).event(B)
    assert list(rig.state.waiting.answers) == [1]
    assert not rig.finish(1).state.waiting.answers


def test_ends_and_questions_are_not_kept() -> None:
    rig = Rig().start().event(STOP).event(kind(INPUT_REQUIRED_EVENT))
    assert rig.state.waiting.kept_count == 0


def test_early_event_that_was_given_is_given_again_after_a_crash() -> None:
    rig = Rig().start().event(B).wait(1).tick(TickResume(at=1.0)).wait(1, at=1.0, ordinal=0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B)]


def test_question_of_a_waiter_is_published_once() -> None:
    ask = ev(kind(INPUT_REQUIRED_EVENT))
    rig = Rig().start().wait(1, waiter_event=ask, suspends=False)
    assert rig.published(EventRecord) == [ask]
    rig.tick(TickResume(at=1.0)).wait(1, waiter_event=ask, at=1.0, ordinal=0)
    assert rig.published(EventRecord) == []


def test_waiter_outlives_a_failed_attempt() -> None:
    rig = Rig().start().wait(1, suspends=False, timeout_s=9.0).fail(1, delay=0.0).event(B).wait(1)
    assert len(rig.commands(CommandResumeWorker)) == 1


def test_kept_events_are_given_by_what_the_waiter_requires() -> None:
    rig = Rig().start().event(B, fields={"n": 1}).event(B, fields={"n": 2}).wait(1, requirements=(("n", 2),))
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B, n=2)]
    rig.wait(1, waiter="v")
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B, n=1)]


def test_kept_event_for_a_waiter_id_must_still_be_of_the_type() -> None:
    rig = Rig().start().event(kind("t.C"), waiter_id="w").wait(1)
    assert rig.commands(CommandResumeWorker) == []


def test_kept_event_for_another_waiter_id_is_not_given_to_a_step_that_takes_subclasses() -> None:
    lax = Rig(StepSpec("work", (START.name,), accept_subclasses=True)).start()
    assert lax.event(B, waiter_id="other").wait(1).commands(CommandResumeWorker) == []

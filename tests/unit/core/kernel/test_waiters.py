"""Waits for events and for time, recorded results, refused events, and bodies that leave."""

from __future__ import annotations

from typing import Any

import pytest
from core_rig import START, STOP, A, B, Rig, ev, kind
from msgspec.structs import replace

from loom.core.body_effects import ANY, child_key, sleep_key, wait_key
from loom.core.commands import CommandCancelTimer, CommandResumeWorker, CommandRunWorker, CommandStartTimer, CommandWarn
from loom.core.persistent import EMPTY_MAP, Map
from loom.core.records import (
    CHECKED,
    INPUT_REQUIRED_EVENT,
    UNCHECKED,
    EventKind,
    EventRecord,
    IdleReport,
    Refusal,
    RefusedReport,
    UnhandledReport,
)
from loom.core.state import BrokerConfig, BrokerState, Execution, StepSpec
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickRecordResult,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickStartChild,
    TickStepResult,
    TickTimerFired,
)

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


def record(rig: Rig, name: str = "charge", value: Any = 17, ordinal: int | None = None) -> Rig:
    return rig.tick(TickRecordResult(at=0.0, source=rig.source(1, ordinal), name=name, value=value))


def test_body_is_told_when_its_result_is_recorded_and_keeps_its_worker() -> None:
    rig = record(Rig().start())
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.value, resumed.worker_id) == ("once:charge", 17, None)
    assert rig.body().waits_on == ""


def test_first_result_of_a_name_counts() -> None:
    rig = record(record(Rig().start()), value=18)
    (resumed,) = rig.commands(CommandResumeWorker)
    assert resumed.value == 17


def test_later_attempts_and_recoveries_know_the_results() -> None:
    rig = record(record(Rig().start()), "mail", None)
    for again in (rig.fail(1, delay=0.0), rig.tick(TickResume(at=0.0))):
        (command,) = again.commands(CommandRunWorker)
        assert dict(command.records) == {"charge": 17, "mail": None}


def test_delayed_and_released_work_knows_its_results() -> None:
    rig = record(Rig().start()).wait().tick(TickResume(at=1.0)).event(B, at=1.0)
    (command,) = rig.commands(CommandRunWorker)
    assert dict(command.records) == {"charge": 17}


def test_results_go_when_the_item_is_settled() -> None:
    rig = record(Rig().start().event()).finish(1)
    assert not rig.state.waiting.answers
    (command,) = rig.commands(CommandRunWorker)
    assert (command.item.id, dict(command.records)) == (2, {})


def test_body_that_records_something_else_at_the_same_place_parks() -> None:
    rig = record(Rig().start(), "charge").tick(TickResume(at=0.0))
    record(rig, "charges", ordinal=0)
    assert rig.state.outcome is not None
    assert rig.state.outcome.status == "parked"
    assert "'once:charge' and is now 'once:charges'" in rig.state.outcome.message


def test_record_of_an_execution_that_is_over_is_refused() -> None:
    rig = Rig().start()
    source = rig.source()
    rig.finish(1, [ev(STOP)])
    assert rig.tick(TickRecordResult(at=0.0, source=source, name="charge", value=17)).state.dropped == 1


KEY = wait_key("w", 0)


def unchecked(kind: EventKind = B, body: str = "wrong") -> EventRecord:
    return EventRecord(kind, body, UNCHECKED)


def send(rig: Rig, event: EventRecord, at: float = 0.0, **more: Any) -> Rig:
    return rig.tick(TickAddEvent(at=at, event=event, **more))


def refuse(rig: Rig, event: EventRecord, item: int = 1, at: float = 0.0, key: str = KEY, **more: Any) -> Rig:
    body = rig.body(item)
    tick = TickRefuseEvent(
        at=at,
        step=body.item.step,
        item=item,
        seq=body.seq,
        event_type="B",
        reason="n: missing",
        key=key,
        fingerprint=event.fingerprint(),
        **more,
    )
    return rig.tick(tick)


def test_a_refused_answer_opens_the_wait_again_with_its_old_deadline() -> None:
    rig = Rig().start().wait(1, timeout_s=10.0)
    (before,) = rig.worker().collected_waiters.values()
    send(rig, unchecked(), at=3.0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [unchecked()]
    refuse(rig, unchecked(), at=4.0)
    (after,) = rig.worker().collected_waiters.values()
    assert (after.since, after.deadline, after.waiter_id) == (before.since, before.deadline, before.waiter_id)
    assert after.refused is not None
    assert (after.refused.event_type, after.refused.reason, after.refused.at) == ("B", "n: missing", 4.0)
    assert rig.published(RefusedReport) == [RefusedReport("B", "work", "n: missing", "w")]
    assert rig.commands(CommandStartTimer)[0].due == 10.0
    assert rig.commands(CommandWarn)
    assert rig.state.is_idle()
    assert rig.published(IdleReport)[0].waiters[0].refused == after.refused
    rig.event(B, at=5.0, fields={"n": 1})
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [ev(B, n=1)]
    assert rig.commands(CommandCancelTimer)
    assert rig.finish(1, at=6.0).state.waiting.doubted == EMPTY_MAP


def test_an_open_wait_after_a_refusal_runs_into_its_deadline() -> None:
    rig = refuse(send(Rig().start().wait(1, timeout_s=10.0), unchecked()), unchecked(), at=30.0)
    (timer,) = rig.commands(CommandStartTimer)
    rig.tick(TickTimerFired(at=30.0, timer=timer.seq))
    assert rig.commands(CommandResumeWorker)[0].timed_out


def test_a_refusal_that_arrives_twice_does_not_refuse_the_next_answer() -> None:
    rig = refuse(send(Rig().start().wait(1), unchecked()), unchecked())
    send(rig, unchecked(body="right"))
    dropped = rig.state.dropped
    refuse(rig, unchecked())
    assert rig.state.dropped == dropped + 1
    assert rig.published(RefusedReport) == []
    assert rig.state.waiting.answers[1][KEY].event == unchecked(body="right")


def test_each_of_several_waiters_refuses_for_itself() -> None:
    rig = send(Rig(WIDE).start().event(A).wait(1).wait(2), unchecked())
    assert all(c.event is not None and c.event.is_shared for c in rig.commands(CommandResumeWorker))
    refuse(rig, unchecked(), item=1)
    assert [w.item for w in rig.worker().collected_waiters.values()] == [1]
    refuse(rig, unchecked(), item=2)
    rig.event(B)
    assert len(rig.commands(CommandResumeWorker)) == 2


def test_a_refused_early_event_makes_room_for_the_next_one() -> None:
    rig = send(send(Rig().start(), unchecked()), unchecked(body="right")).wait(1, timeout_s=5.0, at=1.0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [unchecked()]
    refuse(rig, unchecked(), at=2.0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [unchecked(body="right")]
    refuse(rig, unchecked(body="right"), at=3.0)
    (waiter,) = rig.worker().collected_waiters.values()
    assert (waiter.since, waiter.deadline) == (1.0, 6.0)


def test_a_body_that_was_away_refuses_when_it_is_back() -> None:
    rig = send(Rig().start().wait(1), unchecked()).tick(TickResume(at=1.0))
    rig.wait(1, at=1.0, ordinal=0)
    assert [c.event for c in rig.commands(CommandResumeWorker)] == [unchecked()]
    refuse(rig, unchecked(), at=1.0)
    assert rig.body().waits_on == KEY
    # A crash after it finds an open wait, and refuses nothing.
    rig.tick(TickResume(at=2.0)).event(B, at=3.0)
    assert rig.dispatched() == [("work", 1)]


def test_a_body_that_leaves_after_a_refusal_is_woken_by_the_next_answer() -> None:
    rig = send(Rig().start().wait(1), unchecked())
    refuse(rig, unchecked())
    rig.tick(TickLeaveStep(at=0.0, step="work", item=1, seq=rig.body().seq, pending=(KEY,)))
    assert not rig.body().live
    rig.event(B)
    assert rig.dispatched() == [("work", 1)]


def test_a_wait_in_a_child_task_keeps_its_worker() -> None:
    rig = send(Rig().start().wait(1, suspends=False), unchecked())
    refuse(rig, unchecked(), suspends=False)
    assert 1 in rig.worker().in_progress
    rig.event(B)
    assert len(rig.commands(CommandResumeWorker)) == 1


def test_what_a_step_takes_by_its_signature_is_dropped_and_the_run_is_idle() -> None:
    rig = send(Rig(StepSpec("work", (START.name,)), StepSpec("take", (B.name,), inputs=(B.name,))).start(), unchecked())
    rig.finish(1)
    refuse(rig, unchecked(), item=2, key="")
    assert rig.state.is_idle()
    (idle,) = rig.published(IdleReport)
    assert [(w.step, w.refused.reason if w.refused else None) for w in idle.waiters] == [("take", "n: missing")]
    assert rig.published(RefusedReport) == [RefusedReport("B", "take", "n: missing")]
    # The next one is worked on, and what was refused is made good.
    rig.event(B).finish(3)
    assert rig.state.refused == EMPTY_MAP


def test_the_next_piece_of_work_begins_when_one_is_refused() -> None:
    rig = Rig(StepSpec("take", (B.name,), num_workers=1)).start(of=None)
    send(send(rig, unchecked()), unchecked(body="right"))
    refuse(rig, unchecked(), key="")
    assert rig.dispatched() == [("take", 2)]


def test_a_join_of_several_slots_keeps_the_events_that_fit() -> None:
    join = StepSpec("join", (A.name, B.name), slots=(("a", (A.name,)), ("b", (B.name,))))
    rig = Rig(join).start(of=None).event(A, fields={"n": 1})
    send(rig, unchecked())
    assert rig.dispatched() == [("join", 1)]
    refuse(rig, unchecked(), key="", parameters=("b",))
    assert rig.state.is_idle()
    rig.event(B)
    assert rig.dispatched() == [("join", 2)]
    assert dict(rig.body(2).item.extra.bound)["a"] == ev(A, n=1)


def test_an_answer_that_was_checked_leaves_no_doubt() -> None:
    rig = send(Rig().start().wait(1), EventRecord(B, "x", CHECKED))
    assert rig.state.waiting.doubted == EMPTY_MAP


def test_a_wait_that_nobody_remembers_parks_the_run_instead_of_waiting_for_ever() -> None:
    rig = send(Rig().start().wait(1), EventRecord(B, "x", CHECKED))
    refuse(rig, EventRecord(B, "x", CHECKED))
    assert rig.state.outcome is not None
    assert rig.state.outcome.status == "parked"
    assert "does not fit its class" in rig.state.outcome.message


def test_a_refusal_is_told_of_the_input_that_it_was_for() -> None:
    spec = StepSpec("both", ("shop.App", "shop.Note"), inputs=("shop.App", "shop.Note"))
    state = BrokerState(run_id="a", is_running=True, config=BrokerConfig("w", steps=(spec,)))

    def refused(event_type: str) -> list[bool]:
        refusal = Refusal(event_type, "by: Field required", 0.0)
        reports = replace(state, refused=Map({"both": refusal})).waiter_reports()
        return [report.refused is refusal for report in reports]

    assert refused("App") == [True, False]
    assert refused("AppOfAnotherKind") == [True, True], "it may be a subclass of either"


C = kind("t.C")
W, V = wait_key("w", 0), wait_key("v", 0)


def leave(rig: Rig, *pending: str, item: int = 1, seq: int | None = None, at: float = 0.0) -> Rig:
    found = rig.body(item).seq if seq is None else seq
    return rig.tick(TickLeaveStep(at=at, step="work", item=item, seq=found, pending=pending))


def begun(rig: Rig) -> CommandRunWorker:
    (command,) = rig.commands(CommandRunWorker)
    return command


def two_waits() -> Rig:
    """A body that waits in two child tasks has left."""
    rig = Rig().start().wait(1, suspends=False).wait(1, of=C, waiter="v", suspends=False)
    return leave(rig, W, V)


def test_answer_starts_a_body_that_has_left_from_the_top_as_the_same_execution() -> None:
    rig = Rig().start()
    rig.tick(TickPublishEvent(at=0.0, event=ev(A), source=rig.source())).wait(1)
    before: Execution = rig.body()
    assert leave(rig, W).body() == Execution(
        before.seq, before.id, before.item, before.worker_id, before.effects, live=False, waits_on=W
    )
    again = begun(rig.event(B))
    assert rig.commands(CommandResumeWorker) == []
    assert (again.execution, again.item.execution) == (before.id, before.id)
    assert dict(again.item.effects) == {0: "publish", 1: W}
    assert again.seq > before.seq
    assert again.item.attempts == 0


def test_run_whose_only_body_has_left_is_idle() -> None:
    rig = leave(Rig().start().wait(1, suspends=False), W)
    assert rig.state.is_idle()
    assert rig.state.idle_since == 0.0


def test_body_that_leaves_gives_its_worker_to_the_queue() -> None:
    rig = leave(Rig().start().event(A).wait(1, suspends=False), W)
    assert rig.dispatched() == [("work", 2)]
    assert list(rig.worker().suspended) == [1]


def test_nothing_of_a_body_that_has_left_counts_any_more() -> None:
    rig = leave(Rig().start().wait(1), W)
    seq = rig.body().seq
    late = TickStepResult(at=0.0, step="work", item=1, seq=seq, returned=(ev(STOP),))
    assert rig.tick(late).tick(TickEndWait(at=0.0, step="work", item=1, seq=seq, key=W)).state.dropped == 2
    assert leave(rig, W, seq=seq).state.dropped == 3
    assert list(rig.state.waiting.open[1]) == [W]


@pytest.mark.parametrize(("item", "seq"), [(1, 99), (7, 1)])
def test_leaving_of_an_unknown_execution_is_counted_and_refused(item: int, seq: int) -> None:
    rig = leave(Rig().start(), W, item=item, seq=seq)
    assert rig.state.dropped == 1
    assert list(rig.worker().in_progress) == [1]


def test_body_whose_answer_came_before_it_left_begins_again_on_its_worker() -> None:
    rig = Rig().start().wait(1).event(B)
    assert len(rig.commands(CommandResumeWorker)) == 1
    again = begun(leave(rig, W))
    assert (again.seq, again.worker_id, again.execution) == (rig.body().seq, 0, 1)
    assert dict(again.item.effects) == {0: W}
    assert rig.state.active == 1


def test_body_that_was_answered_from_a_kept_event_begins_again() -> None:
    rig = Rig().start().event(B).wait(1)
    assert dict(begun(leave(rig, W)).item.effects) == {0: W}


def test_body_that_waits_for_a_worker_when_it_leaves_begins_again_once_one_is_free() -> None:
    rig = Rig().start().event(A).wait(1).event(B)
    assert list(rig.worker().ready) == [1]
    assert leave(rig, W).dispatched() == []
    assert rig.state.active == 2
    rig.finish(2)
    assert rig.dispatched() == [("work", 1)]
    assert rig.commands(CommandResumeWorker) == []


def test_body_that_was_to_go_on_begins_again_although_it_left_with_another_wait() -> None:
    rig = Rig().start().event(A).wait(1).wait(1, of=C, waiter="v", suspends=False).event(B)
    leave(rig, V)
    assert list(rig.event(C).worker().ready) == [1]
    assert rig.finish(2).dispatched() == [("work", 1)]


def test_answer_to_a_child_task_before_its_body_leaves_brings_the_suspended_body_back() -> None:
    rig = Rig().start().wait(1, suspends=False).wait(1, of=C, waiter="v").event(B)
    assert rig.body().waits_on == V
    assert dict(begun(leave(rig, W, V)).item.effects) == {0: W, 1: V}
    assert rig.body().waits_on == ""


def test_body_that_is_to_begin_again_is_not_made_ready_once_more_by_its_own_wait() -> None:
    rig = Rig().start().wait(1, suspends=False).wait(1, of=C, waiter="v").event(A).event(B)
    assert list(leave(rig, W, V).worker().ready) == [1]
    assert list(rig.event(C).worker().ready) == [1]
    assert rig.finish(2).dispatched() == [("work", 1)]


def test_each_of_several_waits_brings_a_body_back() -> None:
    assert two_waits().body().waits_on == ANY
    assert two_waits().event(B).dispatched() == [("work", 1)]
    assert two_waits().event(C).dispatched() == [("work", 1)]


def test_own_wait_and_one_of_a_child_task_both_bring_a_body_back() -> None:
    rig = Rig().start().wait(1, suspends=False).wait(1, of=C, waiter="v")
    assert leave(rig, W, V).event(B).dispatched() == [("work", 1)]


def test_second_answer_makes_a_body_ready_no_second_time() -> None:
    rig = two_waits().event(A)
    assert list(rig.event(B).worker().ready) == [1]
    assert list(rig.event(C).worker().ready) == [1]
    assert rig.finish(2).dispatched() == [("work", 1)]
    assert rig.state.active == 1


def test_event_that_answers_two_waits_of_a_body_starts_it_once() -> None:
    rig = Rig().start().wait(1, suspends=False).wait(1, waiter="v", suspends=False)
    assert leave(rig, W, V).event(B).dispatched() == [("work", 1)]
    assert not rig.state.waiting.open


def test_body_with_no_wait_that_could_be_answered_begins_again_at_once() -> None:
    rig = Rig().start().wait(1, suspends=False)
    rig.tick(TickEndWait(at=0.0, step="work", item=1, seq=rig.body().seq, key=W))
    assert leave(rig, W).dispatched() == [("work", 1)]
    assert leave(rig).dispatched() == [("work", 1)]


def test_timeout_of_a_waiter_brings_a_body_back() -> None:
    rig = leave(Rig().start().wait(1, timeout_s=3.0), W)
    assert rig.fire("waiter").dispatched() == [("work", 1)]
    assert rig.state.waiting.answers[1][W].timed_out


def test_end_of_a_sleep_brings_a_body_back() -> None:
    rig = leave(Rig().start().sleep(1).wait(1), sleep_key(0), W)
    assert rig.state.is_asleep()
    assert rig.fire("sleep").dispatched() == [("work", 1)]
    assert (rig.state.active, rig.state.asleep) == (1, 0)


def test_end_of_a_child_run_brings_a_body_back() -> None:
    rig = Rig().start()
    rig.tick(TickStartChild(at=0.0, source=rig.source(), occurrence=0, workflow="pay"))
    (number,) = rig.state.children
    leave(rig, child_key(0)).tick(TickChildEnded(at=0.0, child=number, status="cancelled"))
    assert rig.dispatched() == [("work", 1)]


def test_paused_run_begins_nothing_again_before_it_is_continued() -> None:
    rig = leave(Rig().start().tick(TickPauseRun(at=0.0)).event(B).wait(1, suspends=False), W)
    assert rig.dispatched() == []
    assert [item.effects[0] for item in rig.worker().queue] == [W]
    again = begun(rig.tick(TickContinueRun(at=0.0)))
    assert (again.execution, dict(again.item.effects)) == (1, {0: W})


def test_answer_in_a_paused_run_brings_a_body_back_when_it_is_continued() -> None:
    rig = two_waits().tick(TickPauseRun(at=0.0)).event(B)
    assert rig.dispatched() == []
    assert rig.tick(TickContinueRun(at=0.0)).dispatched() == [("work", 1)]


def test_suspended_body_that_leaves_a_paused_run_with_its_answer_waits_for_the_continue() -> None:
    rig = Rig().start().wait(1).tick(TickPauseRun(at=0.0)).event(B)
    assert leave(rig, W).dispatched() == []
    assert rig.tick(TickContinueRun(at=0.0)).dispatched() == [("work", 1)]


def test_body_that_has_left_waits_on_after_a_recovery() -> None:
    rig = two_waits().tick(TickResume(at=1.0))
    assert (rig.dispatched(), rig.body().waits_on) == ([], ANY)
    assert rig.event(C, at=1.0).dispatched() == [("work", 1)]


def test_body_may_leave_again_and_again() -> None:
    rig = two_waits().event(B)
    leave(rig, V)
    assert (rig.body().live, rig.body().waits_on) == (False, V)
    rig.event(C).finish(1)
    assert not rig.worker().suspended
    assert not rig.state.waiting.answers


def test_next_attempt_of_a_body_that_had_left_is_another_execution() -> None:
    rig = two_waits().event(B).fail(1, delay=0.0)
    again = begun(rig)
    assert (again.execution, again.item.attempts, dict(again.item.effects)) == (again.seq, 1, {})
    assert list(rig.state.waiting.answers[1]) == [W]


@pytest.mark.parametrize("end", [TickCancelRun(at=0.0), TickParkRun(at=0.0, reason="no such type")])
def test_run_that_is_over_refuses_what_leaves(end: TickCancelRun | TickParkRun) -> None:
    rig = Rig().start().wait(1, suspends=False)
    seq = rig.body().seq
    assert leave(rig.tick(end), W, seq=seq).state.dropped == 1
    assert rig.last == []


def test_retried_run_brings_back_what_had_left_for_a_child_run_that_was_cancelled() -> None:
    rig = Rig(WIDE).start().event(A)
    rig.tick(TickStartChild(at=0.0, source=rig.source(), occurrence=0, workflow="pay", suspends=False))
    leave(rig.wait(1, suspends=False), child_key(0), W).fail(2).tick(TickRetryRun(at=1.0))
    assert sorted(rig.dispatched()) == [("work", 1), ("work", 2)]

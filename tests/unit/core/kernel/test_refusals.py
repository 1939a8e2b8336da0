"""Events that nobody had checked and that do not fit: the wait is open again, or the work is dropped."""

from __future__ import annotations

from typing import Any

from core_rig import START, A, B, Rig, ev
from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import wait_key
from loom.core.commands import CommandCancelTimer, CommandResumeWorker, CommandStartTimer, CommandWarn
from loom.core.config import BrokerConfig, StepSpec
from loom.core.persistent import EMPTY_MAP
from loom.core.records import CHECKED, UNCHECKED, EventKind, EventRecord
from loom.core.reports import IdleReport, Refusal, RefusedReport
from loom.core.state import BrokerState
from loom.core.ticks import TickAddEvent, TickLeaveStep, TickRefuseEvent, TickResume, TickTimerFired

WIDE = StepSpec("work", (START.name, A.name), num_workers=0)
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

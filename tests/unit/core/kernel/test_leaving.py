"""Bodies that leave their process because they wait: when they begin again, and that they do so once."""

from __future__ import annotations

import pytest
from core_rig import START, STOP, A, B, Rig, ev, kind

from loom.core.body_effects import ANY, child_key, sleep_key, wait_key
from loom.core.commands import CommandResumeWorker, CommandRunWorker
from loom.core.config import StepSpec
from loom.core.state import Execution
from loom.core.ticks import (
    TickCancelRun,
    TickChildEnded,
    TickContinueRun,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickResume,
    TickRetryRun,
    TickStartChild,
    TickStepResult,
)

WIDE = StepSpec("work", (START.name, A.name), num_workers=0)
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


def test_body_that_has_left_waits_on_after_a_take_up() -> None:
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

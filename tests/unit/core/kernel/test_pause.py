"""A paused run: what still happens, what waits, and when it may leave memory."""

from __future__ import annotations

from core_rig import START, STOP, A, B, Rig, ev

from loom.core.commands import CommandResumeWorker, CommandRunWorker
from loom.core.config import StepSpec
from loom.core.ticks import CollectCall, TickContinueRun, TickPauseRun, TickResume

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


def test_take_up_leaves_the_run_paused() -> None:
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

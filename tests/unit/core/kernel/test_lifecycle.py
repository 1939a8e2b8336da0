"""How a run begins, is taken up, becomes idle and ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_rig import START, STOP, WORK, A, B, Rig, ev, kind
from msgspec.structs import replace

from loom.core.commands import CommandRunWorker, CommandStartTimer
from loom.core.config import BrokerConfig, StepSpec
from loom.core.reports import CancelledReport, IdleReport, TimedOutReport, WaiterReport
from loom.core.state import Waiting
from loom.core.ticks import TickCancelRun, TickEditStore, TickResume, TickStartRun, TickTimeout


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


def test_take_up_with_code_that_lacks_a_busy_step_parks_and_the_right_code_goes_on() -> None:
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


def test_take_up_with_more_workers_uses_them() -> None:
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

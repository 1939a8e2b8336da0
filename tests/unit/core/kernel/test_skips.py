"""Delays that end because a caller says so: which timers, in which order, and that nothing else changes."""

from __future__ import annotations

import pytest
from core_rig import B, Rig

from loom.core.commands import CommandCancelTimer, CommandResumeWorker
from loom.core.reducer import replay
from loom.core.state import skippable
from loom.core.ticks import (
    ControlTick,
    TickCancelRun,
    TickContinueRun,
    TickPauseRun,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickTimerFired,
)


def armed(rig: Rig, purpose: str) -> int:
    return next(number for number, timer in rig.state.timers.items() if timer.purpose == purpose)


def test_skipped_backoff_begins_the_attempt_and_cancels_its_timer() -> None:
    rig = Rig().start().fail(delay=60.0)
    timer = armed(rig, "retry")
    rig.tick(TickSkip(at=1.0))
    assert rig.dispatched() == [("work", 1)]
    assert [command.seq for command in rig.commands(CommandCancelTimer)] == [timer]
    assert (rig.state.asleep, rig.state.at, rig.body().item.attempts) == (0, 1.0, 1)


def test_skipped_sleep_wakes_its_body() -> None:
    rig = Rig().start().sleep(1, delay=60.0).tick(TickSkip(at=0.0))
    assert len(rig.commands(CommandResumeWorker)) == 1
    assert not rig.state.is_asleep()


@pytest.mark.parametrize("timer", [None, 1, 999])
def test_timeouts_and_unknown_timers_are_left_alone(timer: int | None) -> None:
    rig = Rig(timeout_s=100.0).start().wait(timeout_s=10.0)
    before = dict(rig.state.timers)
    rig.tick(TickSkip(at=1.0, timer=timer))
    assert dict(rig.state.timers) == before
    assert rig.last == []
    rig.tick(TickSkip(at=1.0, timer=armed(rig, "waiter")))
    assert dict(rig.state.timers) == before


def test_skip_comes_once_and_the_timer_that_fires_later_is_dropped() -> None:
    rig = Rig().start().fail(delay=60.0)
    timer = armed(rig, "retry")
    rig.tick(TickSkip(at=1.0, timer=timer)).tick(TickSkip(at=1.0, timer=timer))
    assert rig.last == []
    rig.tick(TickTimerFired(at=60.0, timer=timer))
    assert (rig.last, rig.state.dropped) == ([], 1)


def test_timer_that_is_due_is_left_to_fire() -> None:
    rig = Rig().start().fail(delay=5.0)
    rig.tick(TickSkip(at=5.0))
    assert rig.last == []
    assert rig.fire("retry").dispatched() == [("work", 1)]


def test_all_delays_end_in_the_order_in_which_they_are_due() -> None:
    rig = Rig().start().event().fail(1, delay=90.0).fail(2, delay=30.0)
    late, early = sorted(rig.state.timers)
    assert skippable(rig.state.timers, rig.state.at) == [early, late]
    rig.tick(TickSkip(at=1.0))
    assert rig.dispatched() == [("work", 2)]
    # As with a retry that is due: it goes to the head of the queue, and the only worker is busy with the first.
    assert [item.id for item in rig.worker().queue] == [1]
    rig.finish(2)
    assert rig.dispatched() == [("work", 1)]


def test_paused_run_begins_what_was_skipped_when_it_is_resumed() -> None:
    rig = Rig().start().sleep(1, delay=60.0).tick(TickPauseRun(at=0.0)).tick(TickSkip(at=0.0))
    assert not rig.commands(CommandResumeWorker)
    assert len(rig.tick(TickContinueRun(at=1.0)).commands(CommandResumeWorker)) == 1


def test_body_that_left_its_process_begins_again() -> None:
    rig = Rig().start().sleep(1, delay=60.0).tick(TickResume(at=1.0)).tick(TickSkip(at=1.0))
    assert rig.dispatched() == [("work", 1)]


def test_run_that_is_over_takes_no_skip_and_a_retried_one_not_the_skip_of_before() -> None:
    rig = Rig().start().fail(delay=60.0).tick(TickCancelRun(at=0.0)).tick(TickSkip(at=0.0))
    assert rig.state.outcome is not None
    assert rig.last == []
    assert issubclass(TickSkip, ControlTick)
    failed = Rig().start().event().fail(1, delay=60.0).fail(2).tick(TickSkip(at=0.0))
    assert failed.last == []
    failed.tick(TickRetryRun(at=1.0))
    assert armed(failed, "retry")


def test_answer_that_came_stays_and_replay_gives_the_same() -> None:
    ticks = []
    rig = Rig()
    plain = rig.tick
    rig.tick = lambda tick: (ticks.append(tick), plain(tick))[1]  # type: ignore[method-assign]
    rig.start().sleep(1, delay=60.0, suspends=False).wait(1, suspends=False).event(B)
    rig.tick(TickSkip(at=2.0))
    assert replay(ticks, rig.planner) == rig.state

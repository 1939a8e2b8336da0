"""The draft: timers are state."""

from __future__ import annotations

from core_rig import B, Rig

from loom.core.commands import CommandStartTimer
from loom.core.ticks import TickResume, TickTimerFired


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

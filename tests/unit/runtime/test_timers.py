from __future__ import annotations

import tracemalloc

from loom.core.commands import CommandStartTimer
from loom.core.ticks import TickTimeout, TickTimerFired
from loom.runtime.timers import ArmedTimers


def armed(*timers: CommandStartTimer) -> ArmedTimers:
    found = ArmedTimers()
    for timer in timers:
        found.start(timer)
    return found


def test_nothing_is_due_without_timers() -> None:
    assert armed().next_due is None
    assert armed().fire(1e12) == []


def test_timers_fire_in_order_of_their_due_times_and_never_early() -> None:
    timers = armed(
        CommandStartTimer(1, 30.0, "sleep"), CommandStartTimer(2, 10.0, "retry"), CommandStartTimer(3, 20.0, "waiter")
    )
    assert timers.next_due == 10.0
    assert timers.fire(9.999) == []
    assert timers.fire(20.0) == [TickTimerFired(at=20.0, timer=2), TickTimerFired(at=20.0, timer=3)]
    assert timers.next_due == 30.0


def test_timers_of_one_moment_fire_in_the_order_of_their_numbers() -> None:
    timers = armed(*(CommandStartTimer(number, 5.0, "sleep") for number in (3, 1, 2)))
    assert [tick.timer for tick in timers.fire(5.0) if isinstance(tick, TickTimerFired)] == [1, 2, 3]


def test_timer_fires_once() -> None:
    timers = armed(CommandStartTimer(1, 5.0, "sleep"))
    assert len(timers.fire(5.0)) == 1
    assert timers.fire(6.0) == []


def test_cancelled_timer_does_not_fire() -> None:
    timers = armed(CommandStartTimer(1, 5.0, "sleep"), CommandStartTimer(2, 6.0, "sleep"))
    timers.cancel(1)
    timers.cancel(99)
    assert timers.next_due == 6.0
    assert timers.fire(10.0) == [TickTimerFired(at=10.0, timer=2)]


def test_started_again_it_fires_at_its_new_time_only() -> None:
    timers = armed(CommandStartTimer(1, 5.0, "sleep"), CommandStartTimer(1, 8.0, "sleep"))
    assert timers.next_due == 8.0
    assert timers.fire(5.0) == []
    assert len(timers.fire(8.0)) == 1


def test_timeout_of_the_run_is_a_tick_of_its_own() -> None:
    assert armed(CommandStartTimer(4, 5.0, "timeout")).fire(5.0) == [TickTimeout(at=5.0, timer=4)]


def test_timers_that_were_cancelled_take_no_room() -> None:
    timers = ArmedTimers()
    timers.start(CommandStartTimer(0, 5.0, "timeout"))
    tracemalloc.start()
    for seq in range(1, 20_000):
        timers.start(CommandStartTimer(seq, 2000.0 + seq, "waiter"))
        timers.cancel(seq)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 100_000
    assert timers.next_due == 5.0
    assert len(timers.fire(10_000_000.0)) == 1

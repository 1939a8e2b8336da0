"""The life of a run as a table: each row happens on the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from core_rig import STOP, WORK, B, Rig, ev

from loom.core.records import RUN_CANCELLED_KIND
from loom.core.run_life import TABLE, Life, LifeChange, life_change, life_of
from loom.core.state import BrokerState, CleanupSpec, StepLimits, StepSpec
from loom.core.ticks import (
    TickCancelRun,
    TickContinueRun,
    TickParkRun,
    TickPauseRun,
    TickResume,
    TickRetryRun,
    TickTimeout,
)


def begun() -> Rig:
    return Rig(WORK, timeout_s=60.0).start()


def idle() -> Rig:
    return begun().wait()


def asleep() -> Rig:
    return begun().sleep(delay=5.0)


def paused() -> Rig:
    return begun().tick(TickPauseRun(at=0.0))


def parked() -> Rig:
    return begun().tick(TickParkRun(at=0.0, reason="no such step"))


def failed() -> Rig:
    return begun().fail()


def cancel(rig: Rig, at: float = 0.0) -> Rig:
    return rig.tick(TickCancelRun(at=at))


def covered() -> Rig:
    """A paused run whose cancel is answered by a clean-up."""
    undo = StepSpec("undo", (RUN_CANCELLED_KIND.name,), num_workers=1)
    return Rig(WORK, undo, program=StepLimits(cleanup=CleanupSpec("undo", 60.0))).start().tick(TickPauseRun(at=0.0))


def expire(rig: Rig) -> Rig:
    number = rig.state.timeout_timer
    assert number is not None
    return rig.tick(TickTimeout(at=60.0, timer=number))


SCENARIOS: tuple[tuple[Callable[[], Rig], Callable[[Rig], Rig], Life], ...] = (
    (lambda: Rig(WORK), lambda rig: rig.start(), "at work"),
    (begun, lambda rig: rig.sleep(delay=5.0), "asleep"),
    (idle, lambda rig: rig.fail(delay=5.0), "asleep"),
    (begun, lambda rig: rig.wait(), "idle"),
    (asleep, lambda rig: rig.finish(1), "idle"),
    (asleep, lambda rig: rig.fire("sleep"), "at work"),
    (asleep, lambda rig: rig.event(), "at work"),
    (idle, lambda rig: rig.event(B), "at work"),
    (lambda: begun().wait(timeout_s=1.0), lambda rig: rig.fire("waiter"), "at work"),
    (begun, lambda rig: rig.tick(TickPauseRun(at=0.0)), "paused"),
    (idle, lambda rig: rig.tick(TickPauseRun(at=0.0)), "paused"),
    (paused, lambda rig: rig.tick(TickContinueRun(at=0.0)), "at work"),
    (lambda: idle().tick(TickPauseRun(at=0.0)), lambda rig: rig.tick(TickContinueRun(at=0.0)), "idle"),
    (begun, lambda rig: rig.tick(TickParkRun(at=0.0, reason="no such step")), "parked"),
    (parked, lambda rig: rig.tick(TickResume(at=1.0)), "at work"),
    (begun, lambda rig: rig.finish(1, [ev(STOP)]), "completed"),
    (begun, lambda rig: rig.fail(), "failed"),
    (idle, expire, "failed"),
    (failed, lambda rig: rig.tick(TickRetryRun(at=1.0)), "at work"),
    (idle, cancel, "cancelled"),
    (parked, cancel, "cancelled"),
    (covered, cancel, "at work"),
    (parked, lambda rig: cancel(rig, at=100.0), "failed"),
)
"""Where a run is, what happens to it, and where it is then."""


@pytest.mark.parametrize(("given", "when", "then"), SCENARIOS)
def test_change_happens(given: Callable[[], Rig], when: Callable[[Rig], Rig], then: Life) -> None:
    rig = given()
    before = rig.state
    assert life_of(when(rig).state) == then
    assert life_of(before) != then


def test_every_row_has_a_scenario() -> None:
    shown = set()
    for given, when, _ in SCENARIOS:
        rig = given()
        before = life_of(rig.state)
        after = life_of(when(rig).state)
        shown.update(row for row in TABLE if before in row.before and after in row.after)
    assert shown == {*TABLE}


def test_rows_name_every_place_and_differ() -> None:
    assert {place for row in TABLE for place in (*row.before, *row.after)} == {*get_args(Life)}
    assert len({row.event for row in TABLE}) == len(TABLE)


def test_row_counts_for_its_ticks_only() -> None:
    assert life_change("paused", "idle", TickContinueRun(at=0.0)) in TABLE
    assert life_change("paused", "idle", TickResume(at=0.0)) is None
    assert life_change("completed", "at work", TickRetryRun(at=0.0)) is None
    assert life_of(BrokerState()) == "new"


def test_a_row_is_a_change() -> None:
    assert [row for row in TABLE if isinstance(row, LifeChange) and {*row.before} & {*row.after}] == []

"""Every invariant can be broken, and says so."""

from __future__ import annotations

import pytest
from core_rig import Rig
from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import ANY
from loom.core.invariants import violations
from loom.core.persistent import EMPTY_FIFO, Fifo
from loom.core.state import BrokerState, Child, Outcome
from loom.core.ticks import TickPauseRun


def sound() -> BrokerState:
    """Item 1 waits, item 2 executes, item 3 is queued."""
    return Rig().start().event().event().wait(1).state


def broken(**fields: object) -> list[str]:
    return violations(replace(sound(), **fields))


def with_worker(**fields: object) -> list[str]:
    state = sound()
    return violations(replace(state, workers=state.workers.set("work", replace(state.workers["work"], **fields))))


def test_sound_states_break_nothing() -> None:
    assert violations(BrokerState()) == []
    assert violations(sound()) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"active": 7}, "active is 7"),
        ({"asleep": 1}, "asleep is 1"),
        ({"active": -1}, "negative"),
        ({"outcome": Outcome("failed")}, "over and running"),
        ({"idle_since": 1.0}, "not idle"),
    ],
)
def test_wrong_counts_and_lifecycles_are_told(fields: dict[str, object], told: str) -> None:
    assert any(told in problem for problem in broken(**fields))


def test_wrong_waiters_are_told() -> None:
    waiting = sound().waiting
    assert any("index of waiters" in p for p in broken(waiting=replace(waiting, index=Map())))
    assert any("kept events" in p for p in broken(waiting=replace(waiting, kept_count=1)))


def test_wrong_child_runs_are_told() -> None:
    unknown = Map({9: Child("r:9", "pay", "work", 1, "child:0", 0.0)})
    assert any("nobody waits for" in p for p in broken(children=unknown))
    waiting = sound().waiting
    opened = waiting.open.set(1, Map({"child:0": 9}))
    assert any("not under way" in p for p in broken(waiting=replace(waiting, open=opened)))
    over = Outcome("cancelled")
    assert any("a child run is under way" in p for p in broken(children=unknown, is_running=False, outcome=over))


def test_body_that_has_left_for_nothing_is_told() -> None:
    state = sound()
    worker = state.workers["work"]
    left = Map({1: replace(worker.suspended[1], waits_on=ANY, live=False)})
    workers = state.workers.set("work", replace(worker, suspended=left))
    assert violations(replace(state, workers=workers)) == []
    waiting = replace(state.waiting, open=Map())
    assert any("bring it back" in problem for problem in broken(workers=workers, waiting=waiting))


def test_paused_run_may_have_work_queued_although_a_worker_is_free() -> None:
    state = Rig().start().event().tick(TickPauseRun(at=0.0)).finish(1).state
    assert violations(state) == []
    assert any("a worker is free" in problem for problem in violations(replace(state, paused=False)))


def test_wrong_workers_are_told() -> None:
    worker = sound().workers["work"]
    execution = worker.in_progress[2]
    twice = worker.in_progress.set(9, replace(execution, item=replace(execution.item, id=9)))
    cases = {
        "share a worker id": {"in_progress": twice},
        "busy bits": {"busy": 6},
        "not suspended": {"ready": Fifo.of([44])},
        "in no wait": {"suspended": Map({1: replace(worker.suspended[1], waits_on="")})},
        "twice": {"ready": Fifo.of([1, 1])},
        "no process its body": {"in_progress": Map({2: replace(execution, live=False)})},
        "that has left": {"suspended": Map({1: replace(worker.suspended[1], waits_on=ANY)})},
        "in two places": {"queue": Fifo.of([execution.item])},
        "a worker is free": {"in_progress": Map(), "busy": 0},
    }
    for told, fields in cases.items():
        assert any(told in problem for problem in with_worker(**fields)), told
    assert with_worker(queue=EMPTY_FIFO) != []

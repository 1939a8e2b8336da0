"""Every invariant can be broken, and says so; every row of the table of a work item happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_rig import START, STOP, A, B, Rig, ev, read_field
from msgspec.structs import replace

from loom.core.body_effects import ANY, sleep_key, wait_key
from loom.core.invariants import TABLE, Change, TracedDraft, change_of, violations, wrong_moves
from loom.core.persistent import EMPTY_FIFO, Fifo, Map
from loom.core.state import BrokerState, Child, Outcome, StepSpec
from loom.core.ticks import (
    TickEndWait,
    TickLeaveStep,
    TickPauseRun,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickStartChild,
    TickTimerFired,
    WorkflowTick,
)


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


WIDE = StepSpec("work", (START.name, A.name), num_workers=2)


def begun(*specs: StepSpec) -> Rig:
    """Item 1 executes."""
    return Rig(*specs).start()


def end_wait(rig: Rig) -> Rig:
    return rig.tick(TickEndWait(at=0.0, step="work", item=1, seq=rig.body().seq, key=wait_key("w", 0)))


def leave(rig: Rig, *pending: str) -> Rig:
    return rig.tick(TickLeaveStep(at=0.0, step="work", item=1, seq=rig.body().seq, pending=pending))


def refuse(rig: Rig) -> Rig:
    told = {"event_type": "StartEvent", "reason": "n is missing"}
    return rig.tick(TickRefuseEvent(at=0.0, step="work", item=1, seq=rig.body().seq, **told))


def start_child(rig: Rig) -> Rig:
    return rig.tick(TickStartChild(at=0.0, source=rig.source(), occurrence=0, workflow="pay"))


def pause(rig: Rig) -> Rig:
    return rig.tick(TickPauseRun(at=0.0))


def stop(rig: Rig, item: int) -> Rig:
    """Let another item end the run."""
    return rig.finish(item, [ev(STOP)])


SCENARIOS: dict[tuple[str, str, str], tuple[Callable[[], Rig], ...]] = {
    ("new", "the planner wants it, and a worker is free", "executing"): (begun,),
    ("new", "the planner wants it, and it has to wait its turn", "queued"): (
        lambda: begun().event(),
        lambda: pause(begun(WIDE)).event(),
    ),
    ("queued", "a worker is free", "executing"): (lambda: begun().event().finish(1),),
    ("executing", "its body waits, sleeps or has left", "suspended"): (
        lambda: begun().wait(),
        lambda: begun().sleep(),
        lambda: start_child(begun()),
        lambda: leave(begun().wait(suspends=False), wait_key("w", 0)),
    ),
    ("suspended", "a wait was answered or has timed out", "ready"): (
        lambda: begun().wait().event(B),
        lambda: begun().wait(timeout_s=1.0).fire("waiter"),
        lambda: begun().sleep().fire("sleep"),
        lambda: leave(begun().wait()),
    ),
    ("ready", "a worker is free, or its body went on by itself", "executing"): (
        lambda: begun().wait().event(B),
        lambda: begun().wait().event().event(B).finish(2),
        lambda: end_wait(begun().wait().event().event(B)),
    ),
    ("suspended", "its body went on by itself", "executing"): (
        lambda: end_wait(begun().wait()),
        lambda: begun().wait().finish(1),
    ),
    ("executing", "it failed, and the next attempt has a delay", "delayed"): (lambda: begun().fail(delay=1.0),),
    ("delayed", "the delay is over", "queued"): (
        lambda: begun().fail(delay=1.0).fire("retry"),
        lambda: begun().fail(delay=1.0).tick(TickSkip(at=0.5)),
    ),
    ("executing", "its body has to run again", "queued"): (
        lambda: begun().fail(delay=0.0),
        lambda: begun().fail(),
        lambda: leave(pause(begun()), sleep_key(0)),
    ),
    ("executing", "its process is gone", "queued"): (
        lambda: begun().tick(TickResume(at=1.0)),
        lambda: begun(WIDE).event().fail(2).tick(TickRetryRun(at=1.0)),
    ),
    ("suspended", "the run is retried, and its wait is gone", "queued"): (
        lambda: start_child(begun(WIDE)).event().fail(2).tick(TickRetryRun(at=1.0)),
    ),
    ("executing", "it returned, or failed for good", "settled"): (lambda: begun().finish(1),),
    ("executing", "its event was refused", "settled"): (lambda: refuse(begun()),),
    ("queued", "the run is over or cancelled", "dropped"): (lambda: stop(begun().event(), 1),),
    ("executing", "the run is over or cancelled", "dropped"): (lambda: stop(begun(WIDE).event(), 2),),
    ("suspended", "the run is over or cancelled", "dropped"): (lambda: stop(begun().wait().event(), 2),),
    ("ready", "the run is over or cancelled", "dropped"): (lambda: stop(begun().wait().event().event(B), 2),),
    ("delayed", "the run is over or cancelled", "dropped"): (lambda: stop(begun().fail(delay=9.0).event(), 2),),
}
"""Ways to make each change of the table happen. The rig checks all other changes on the way."""


def test_every_row_has_a_scenario() -> None:
    assert list(SCENARIOS) == [row[:3] for row in TABLE]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.before}-{row.after}-{row.event}")
def test_change_happens(row: Change) -> None:
    for scenario in SCENARIOS[row[:3]]:
        assert row in [move.change for move in scenario().moves]


def test_rows_can_be_told_apart() -> None:
    for row in TABLE:
        others = [r for r in TABLE if (r.before, r.after) == (row.before, row.after) and r is not row]
        assert not others or row.ticks
        assert not {*row.ticks} & {tick for other in others for tick in other.ticks}
        assert {other.event for other in others}.isdisjoint({row.event})


def test_item_that_failed_a_run_stays_where_it_was_until_the_retry() -> None:
    rig = begun(WIDE).event().wait(2).fail(1)
    assert [(move.item, move.after) for move in rig.moves[-1:]] == [(1, "queued")]
    rig.tick(TickRetryRun(at=1.0))
    assert [(move.item, move.before, move.after) for move in rig.moves[-1:]] == [(1, "queued", "executing")]


def test_change_that_is_not_in_the_table_is_told() -> None:
    rig = begun().wait()
    draft = TracedDraft(rig.state, rig.planner, read_field)
    worker, tick = rig.worker(), TickTimerFired(at=0.0, timer=1)
    item = worker.suspended[1].item
    draft.workers = draft.workers.set("work", replace(worker, suspended=Map(), delayed=Map({1: item})))
    made = draft.take_moves(tick)
    assert [(move.before, move.after, move.change) for move in made] == [("suspended", "delayed", None)]
    assert "went from suspended to delayed by TickTimerFired" in wrong_moves(made, tick)[0]
    assert draft.take_moves(tick) == []


@pytest.mark.parametrize(
    ("before", "after", "tick"),
    [
        ("delayed", "queued", TickResume(at=0.0)),
        ("suspended", "queued", TickResume(at=0.0)),
        ("settled", "queued", TickRetryRun(at=0.0)),
    ],
)
def test_row_counts_for_its_ticks_only(before: str, after: str, tick: WorkflowTick) -> None:
    assert change_of(before, after, tick) is None


def test_traced_draft_makes_the_same_state() -> None:
    rig = begun().event().wait(1)
    assert TracedDraft(rig.state, rig.planner, read_field).freeze() == rig.state

"""The depth of chains of executions: what is deeper than what, what begins anew, and what happens at the limit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_rig import START, STOP, A, B, Rig, ev, kind
from hypothesis import given
from hypothesis import strategies as st

from loom.core.commands import CommandHalt, CommandPublishEvent, CommandQueueEvent, CommandRunWorker
from loom.core.records import CHECKED, SHARED, EventRecord, deepest_of
from loom.core.reducer import reduce
from loom.core.run import terminal_command
from loom.core.state import BrokerConfig, BrokerState, StepSpec, config_for, raised
from loom.core.ticks import (
    CollectCall,
    TickCancelRun,
    TickContinueRun,
    TickResume,
    TickRetryRun,
    TickStartRun,
    TickStepResult,
)
from loom.steps.planner import StepsPlanner

C, D = kind("t.C"), kind("t.D")
DEEP = 100
"""A limit that no test here reaches by accident."""

BEGIN = StepSpec("begin", (START.name,))
WORK = StepSpec("work", (A.name,))
OTHER = StepSpec("other", (B.name,))


def rig(*specs: StepSpec, depth: int | None = DEEP) -> Rig:
    return Rig(*specs, max_depth=depth).start()


def depth_of(run: Rig, item: int) -> int:
    return run.body(item).item.event.depth


def calls(event: EventRecord, needed: dict[str, int], *, took: bool, **more: Any) -> tuple[CollectCall, ...]:
    return (CollectCall("x", event, tuple(needed.items()), took, 0, **more),)


# -- records -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**40), st.sampled_from([False, True, SHARED, CHECKED, SHARED | CHECKED]))
def test_a_depth_leaves_the_marks_as_they_are(depth: int, marks: int) -> None:
    record = EventRecord(A, "{}", marks)
    deep = record.at_depth(depth)
    assert (deep.depth, deep.is_shared, deep.checked) == (depth, record.is_shared, record.checked)
    assert deep.for_many().depth == depth
    assert deep.for_many().is_shared
    assert deep.at_depth(0) == record
    assert deep.without_marks() == EventRecord(A, "{}")


def test_a_record_without_a_depth_is_written_as_ever() -> None:
    assert msgspec.json.encode(EventRecord(A, "{}"))[-12:] == b',"{}",false]'


def test_a_config_without_a_limit_is_written_as_ever() -> None:
    assert msgspec.json.encode(BrokerConfig("w")) == b'["w",[],null,1000,null]'
    assert BrokerConfig("w").limited(3).limited(None) == BrokerConfig("w")


def test_the_deepest_of_some_events() -> None:
    assert deepest_of([]) == 0
    assert deepest_of([ev(A), ev(A).at_depth(3).for_many(), ev(A).at_depth(2)]) == 3


# -- what is deeper ----------------------------------------------------------------------------------------------------


def test_what_is_returned_is_one_deeper_and_what_comes_from_outside_is_not() -> None:
    run = rig(BEGIN, WORK, OTHER)
    run.finish(1, [ev(A)]).finish(2, [ev(B)])
    assert depth_of(run, 3) == 2
    assert depth_of(run.event(A), 4) == 0


def test_what_is_sent_is_one_deeper_as_well() -> None:
    run = rig(BEGIN, WORK, OTHER)
    run.finish(1, [ev(A)]).event(B, source=run.source(2))
    assert depth_of(run, 3) == 2


def test_an_event_for_several_steps_has_its_depth_in_each() -> None:
    run = rig(BEGIN, WORK, StepSpec("also", (A.name,))).finish(1, [ev(A)])
    assert [depth_of(run, item) for item in (2, 3)] == [1, 1]
    assert run.body(2).item.event.is_shared


def test_without_a_limit_nothing_is_counted() -> None:
    run = rig(BEGIN, WORK, OTHER, depth=None)
    run.finish(1, [ev(A)]).finish(2, [ev(B)])
    assert run.body(3).item.event == ev(B)


def test_a_recovery_is_deeper_than_what_has_failed_and_another_attempt_is_not() -> None:
    mend = StepSpec("mend", ("workflows.events.StepFailedEvent",), max_recoveries=1)
    run = rig(BEGIN, StepSpec("work", (A.name,), recovered_by="mend"), mend)
    run.finish(1, [ev(A)]).fail(2, delay=0.0)
    assert depth_of(run, 2) == 1
    run.fail(2)
    assert depth_of(run, 3) == 2


# -- joins -------------------------------------------------------------------------------------------------------------


def test_a_join_is_as_deep_as_its_deepest_member_wherever_that_comes() -> None:
    split = StepSpec("split", (START.name,), joins=("gather",))
    run = rig(split, WORK, OTHER, StepSpec("gather", (C.name,), collects=True))
    run.finish(1, [ev(A), ev(A)], fanned_out=True)
    run.finish(2, [ev(B)]).finish(4, [ev(C)])  # a longer way, which comes first
    run.finish(3, [ev(C)])
    assert depth_of(run, 5) == 3


def test_a_join_of_nothing_is_deeper_than_what_has_closed_its_stream() -> None:
    split = StepSpec("split", (START.name,), joins=("gather",))
    run = rig(split, WORK, StepSpec("gather", (C.name,), collects=True))
    run.finish(1, [ev(A)], fanned_out=True).finish(2, [])
    assert depth_of(run, 3) == 2


def test_a_join_of_an_empty_list_is_deeper_than_the_step_that_returned_it() -> None:
    split = StepSpec("split", (START.name,), joins=("gather",))
    run = rig(split, StepSpec("gather", (C.name,), collects=True)).finish(1, [], fanned_out=True)
    assert depth_of(run, 2) == 1


def test_a_step_of_several_slots_is_as_deep_as_the_deepest_of_them() -> None:
    pair = StepSpec("pair", (C.name, D.name), slots=(("left", (C.name,)), ("right", (D.name,))))
    run = rig(BEGIN, WORK, pair)
    run.finish(1, [ev(A)]).finish(2, [ev(C)]).event(D)
    assert depth_of(run, 3) == 2


def test_what_follows_from_collected_events_is_deeper_than_the_deepest_of_them() -> None:
    gather = StepSpec("gather", (B.name, A.name))
    run = rig(BEGIN, gather, OTHER)
    run.finish(1, [ev(A)]).finish(2, [ev(B)])  # `gather` and `other` both take it, at depth 2
    run.finish(3, collects=calls(ev(B), {B.name: 2}, took=False))
    run.event(B)
    assert depth_of(run, 5) == 0
    run.finish(5, [ev(A)], collects=calls(ev(B), {B.name: 2}, took=True, generation=1))
    assert depth_of(run, 7) == 3


def test_a_set_that_a_failed_attempt_had_collected_stays_as_deep() -> None:
    gather = StepSpec("gather", (B.name,))
    run = rig(BEGIN, WORK, gather, OTHER)
    run.finish(1, [ev(A)]).finish(2, [ev(B)]).finish(3, collects=calls(ev(B), {B.name: 2}, took=False))
    run.event(B)
    took = calls(ev(B), {B.name: 2}, took=True, generation=1)
    run.fail(5, delay=0.0, collects=took)
    run.finish(5, [ev(A)], collects=calls(ev(B), {B.name: 2}, took=True, generation=1, reserved=True))
    assert depth_of(run, 7) == 3


# -- what begins anew --------------------------------------------------------------------------------------------------


def test_an_answer_from_outside_begins_a_chain_anew() -> None:
    run = rig(BEGIN, WORK).finish(1, [ev(A)])
    assert depth_of(run.wait(2, of=B), 2) == 1
    assert depth_of(run.event(B), 2) == 0


def test_an_early_answer_begins_a_chain_anew() -> None:
    run = rig(BEGIN, WORK).finish(1, [ev(A)]).event(B)
    assert depth_of(run.wait(2, of=B), 2) == 0


def test_an_answer_of_a_step_makes_work_as_deep_as_itself() -> None:
    run = rig(BEGIN, WORK, OTHER).finish(1, [ev(A)])
    run.wait(2, of=C).event(B, source=run.source(2))
    run.finish(3, [ev(C)])
    assert depth_of(run, 2) == 3


def test_a_shallow_answer_of_a_step_makes_work_no_shallower() -> None:
    run = rig(BEGIN, WORK, OTHER).finish(1, [ev(A)]).finish(2, [ev(A)]).finish(3, [ev(A)])
    run.wait(4, of=C).event(B)
    run.finish(5, [ev(C)])
    assert depth_of(run, 4) == 3


def test_a_sleep_and_a_wait_that_times_out_begin_a_chain_anew() -> None:
    run = rig(BEGIN, WORK).finish(1, [ev(A)])
    assert depth_of(run.sleep(2).fire("sleep"), 2) == 0
    run.finish(2, [ev(A)])
    assert depth_of(run.wait(3, timeout_s=5.0, at=5.0).fire("waiter"), 3) == 0


def test_a_retry_with_a_delay_and_a_pause_begin_nothing_anew() -> None:
    run = rig(BEGIN, WORK).finish(1, [ev(A)]).fail(2, delay=5.0).fire("retry")
    assert depth_of(run, 2) == 1
    assert depth_of(run.tick(TickContinueRun(at=6.0)), 2) == 1


# -- the limit ---------------------------------------------------------------------------------------------------------


def parked(run: Rig) -> str:
    assert run.state.outcome is not None
    assert run.state.outcome.status == "parked"
    return run.state.outcome.message


def test_all_that_comes_with_what_is_too_deep_is_kept() -> None:
    split = StepSpec("split", (START.name,), joins=("gather",))
    run = rig(split, WORK, OTHER, StepSpec("gather", (C.name,), collects=True), depth=1)
    run.finish(1, [ev(A), ev(B), ev(A)], fanned_out=True)
    assert parked(run).startswith("Step 'work' would be execution 2 in a row")
    assert [item.id for item in (*run.worker("work").queue, *run.worker("other").queue)] == [2, 4, 3]
    assert terminal_command(run.state) == CommandHalt("parked", parked(run))
    run.tick(TickResume(at=1.0, config=raised(run.config, 2)))
    assert sorted(run.dispatched()) == [("other", 3), ("work", 2), ("work", 4)]


def test_at_the_limit_an_answer_of_a_step_parks_as_well() -> None:
    run = rig(BEGIN, WORK, OTHER, depth=3).finish(1, [ev(A)])
    run.wait(2, of=C).event(B, source=run.source(2)).finish(3, [ev(C)])
    assert parked(run).startswith("Step 'work' would be execution 4 in a row")


def test_a_run_that_is_over_is_not_parked() -> None:
    run = rig(BEGIN, WORK, depth=1)
    run.finish(1, [ev(A), ev(STOP)], fanned_out=True)
    assert run.state.outcome is not None
    assert run.state.outcome.status == "completed"


def test_a_parked_run_can_be_cancelled() -> None:
    run = rig(BEGIN, WORK, depth=1).finish(1, [ev(A)])
    run.tick(TickCancelRun(at=1.0))
    assert run.state.outcome is not None
    assert run.state.outcome.status == "cancelled"


def test_a_limit_is_raised_and_never_lowered_or_given() -> None:
    run = rig(BEGIN, WORK, depth=2).tick(TickContinueRun(at=0.0, max_depth=5))
    assert run.state.config.max_depth == 5
    assert run.tick(TickContinueRun(at=0.0, max_depth=3)).state.config.max_depth == 5
    free = rig(BEGIN, WORK, depth=None).tick(TickContinueRun(at=0.0, max_depth=3))
    assert free.state.config.max_depth is None


@pytest.mark.parametrize(
    ("had", "code", "has"), [(5, 9, 9), (5, 3, 5), (5, None, None), (None, 5, None), (None, None, None), (5, 5, 5)]
)
def test_other_code_raises_or_drops_the_limit_of_a_run(had: int | None, code: int | None, has: int | None) -> None:
    run, now = BrokerConfig("w").limited(had), BrokerConfig("w", (WORK,)).limited(code)
    assert config_for(now, run, keeps_timeout=True) == BrokerConfig("w", (WORK,)).limited(has)


def test_a_failed_run_that_is_retried_goes_on_where_it_was() -> None:
    run = rig(BEGIN, WORK, depth=3).finish(1, [ev(A)]).finish(2, [ev(A)]).fail(3)
    run.tick(TickRetryRun(at=1.0)).finish(3, [ev(A)])
    assert "max_depth allows 3" in parked(run)


def test_single_steps_of_the_reducer_park_after_the_last_derived_event() -> None:
    """`reduce` shows derived events as commands; the run is parked when none of them is left."""
    config = BrokerConfig("w", (BEGIN, WORK, StepSpec("also", (A.name,)))).limited(1)
    planner, state = StepsPlanner(), BrokerState()
    ticks: list[Any] = [TickStartRun(at=0.0, run_id="r", config=config, event=ev(START))]
    statuses = []
    for _ in range(10):
        if not ticks:
            break
        state, commands = reduce(state, ticks.pop(0), planner)
        ticks += [command.tick for command in commands if isinstance(command, CommandQueueEvent)]
        statuses.append(state.outcome.status if state.outcome is not None else "running")
        if len(statuses) == 2:
            seq = next(iter(state.workers["begin"].in_progress.values())).seq
            ticks = [TickStepResult(at=0.0, step="begin", item=1, seq=seq, returned=(ev(A), ev(A)), fanned_out=True)]
    assert statuses == ["running", "running", "running", "running", "parked"]
    assert [len(state.workers[step].queue) for step in ("work", "also")] == [2, 2]


@given(st.lists(st.sampled_from("rwsf"), max_size=30))
def test_a_limit_that_is_not_reached_changes_nothing(moves: str) -> None:
    """Commands for the world are the same with a limit and without, but for the depth in them."""
    runs = [rig(BEGIN, WORK, OTHER, depth=depth) for depth in (None, 1_000)]
    told: list[list[Any]] = [[], []]
    for move in moves:
        for run, log in zip(runs, told, strict=True):
            latest = max((e.item.id for w in run.state.workers.values() for e in w.in_progress.values()), default=None)
            if move == "w" or latest is None:
                run.event(B)
            elif move == "s":
                run.event(A, source=run.source(latest))
            elif move == "f":
                run.fail(latest, delay=0.0)
            else:
                run.finish(latest, [ev(A)])
            log += [(c.step, c.seq, c.item.id) for c in run.commands(CommandRunWorker)]
            log += [c.event for c in run.commands(CommandPublishEvent)]
    assert told[0] == told[1]

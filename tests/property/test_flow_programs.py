"""Random flows end in one way only: in small bites, replayed, stored after every tick, and after crashes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from flow_driver import EPOCH, Driver, Moment, stored
from flow_programs import comparable, flows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom.core.reducer import replay
from loom.flows import outcomes, planner, walk
from loom.flows.invariants import leftovers
from loom.flows.planner import FlowPlanner
from loom.flows.program import SUCCEEDED, Program
from loom.runtime.flow import load

# A flow is a large example: fewer of them say as much.
any_flow = settings(max_examples=max(20, settings().max_examples // 3), suppress_health_check=list(HealthCheck))


def loops_seen(moments: list[Moment]) -> list[Any]:
    """The iterations on the stream. Those of loops that run side by side come in any order."""
    seen = [(i.path, i.iteration, i.status, i.condition_result, str(i.result)) for m in moments for i in m.iterations]
    return sorted(seen, key=lambda entry: entry[0])


def check_iterations(driver: Driver, begins_again: bool) -> None:
    """The stream tells of each iteration once and in order; only a loop that is tried again begins again."""
    last: dict[str, int] = {}
    for iteration in (i for moment in driver.moments for i in moment.iterations):
        loop = iteration.path.rpartition("[")[0]
        assert iteration.iteration == last.get(loop, -1) + 1 or (begins_again and not iteration.iteration)
        assert 0 <= iteration.duration <= driver.now - EPOCH
        last[loop] = iteration.iteration


def attempts(moments: list[Moment]) -> set[tuple[str, str, int]]:
    """The calls that were made, by action, key and attempt."""
    return {(call.action, call.key, call.attempt) for moment in moments for call in moment.calls}


def by_action(moments: list[Moment]) -> Counter[tuple[str, int]]:
    """How many calls there were, the repeated ones counted once."""
    return Counter((action, attempt) for action, _, attempt in attempts(moments))


@given(flows())
@any_flow
def test_a_flow_ends_and_its_journal_gives_the_same_state(definition: Any) -> None:
    program = load(definition, name="random").program
    driver = Driver(program)
    result = driver.go_on()
    again = replay([moment.tick for moment in driver.moments], FlowPlanner(program))
    assert stored(again) == stored(driver.state)
    restoring = Driver(program, restores=True)
    assert restoring.go_on() == result
    assert stored(restoring.state) == stored(again)
    check_iterations(driver, begins_again="retry" in str(definition))


@given(flows())
@any_flow
def test_nothing_is_left_behind_at_the_end(definition: Any) -> None:
    program = load(definition, name="random").program
    plans = []

    def spy(self: walk.Walk, status: str, cause: Any, error: Any = None) -> None:
        plans.append(self.freeze())
        outcomes.end_flow(self, status, cause, error)

    with pytest.MonkeyPatch.context() as patch:
        # A flow that is terminated may leave anything behind: this is the end that flows come to by themselves.
        patch.setattr(walk, "end_flow", spy)
        driver = Driver(program)
        driver.go_on()
    assert [leftovers(plan) for plan in plans] in ([], [[]])
    state = driver.state
    assert (state.active, state.asleep, len(state.timers), len(state.workers)) == (0, 0, 0, 0)


@given(flows(), st.integers(1, 3))
@any_flow
def test_a_walk_in_small_bites_comes_to_the_same_end(definition: Any, fuel: int) -> None:
    program = load(definition, name="random").program
    whole = Driver(program)
    result = whole.go_on()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "FUEL", fuel)
        bites = Driver(program)
        assert comparable(bites.go_on()) == comparable(result)
    assert fuel > 1 or len(bites.moments) > len(whole.moments)
    assert loops_seen(bites.moments) == loops_seen(whole.moments)


@given(flows(), st.data(), st.sampled_from([None, None, 1, 4]))
@any_flow
def test_a_flow_goes_on_after_crashes_at_any_ticks(definition: Any, data: st.DataObject, fuel: int | None) -> None:
    program = load(definition, name="random").program
    with pytest.MonkeyPatch.context() as patch:
        if fuel is not None:
            patch.setattr(planner, "FUEL", fuel)
        whole = Driver(program)
        result = whole.go_on()
        lived, driver = [], whole
        for _ in range(data.draw(st.integers(1, 3), label="crashes")):
            # What was not committed never was; what was under way is begun again.
            tick = data.draw(st.integers(1, len(driver.moments)), label="tick")
            if driver.moments[tick - 1].state.is_running:
                lived += driver.moments[:tick]
                driver = Driver(program, stored(lived[-1].state))
                assert attempts(driver.moments) <= attempts(lived), "what is called again has the key that it had"
                assert comparable(driver.go_on()) == comparable(result)
        lived += driver.moments
    assert loops_seen(lived) == loops_seen(whole.moments)
    cursors = [cursor for moment in lived for cursor in moment.cursors]
    assert cursors == list(range(len(cursors))), "the stream has neither a gap nor a repetition"
    assert by_action(lived) == by_action(whole.moments)


@given(flows(), st.frozensets(st.integers(1, 30), min_size=1, max_size=4), st.booleans())
@any_flow
def test_a_flow_that_is_paused_comes_to_the_same_end(definition: Any, pauses: frozenset[int], restores: bool) -> None:
    program = load(definition, name="random").program
    expected = Driver(program).go_on()
    paused = Driver(program, pauses=pauses, restores=restores)
    result = paused.go_on()
    begun = [call for moment in paused.moments if moment.state.paused for call in moment.calls]
    assert begun == [], "a paused run begins nothing"
    if not any(action.iterations for action in result.actions.values()):
        # The time of a pause counts for the limits of loops.
        assert comparable(result) == comparable(expected)


@given(flows(), st.integers(1, 3))
@any_flow
def test_a_failed_flow_can_be_retried_again_and_again(definition: Any, fuel: int) -> None:
    program = load(definition, name="random").program
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "FUEL", fuel)
        driver = Driver(program, restores=True)
        result = driver.go_on()
        for _ in range(2):
            if driver.state.outcome is None or driver.state.outcome.status != "failed":
                return
            begun = len(driver.moments)
            kept = {name for name, action in result.actions.items() if action.status == "Succeeded"}
            again = driver.retry()
            called = {call.action for moment in driver.moments[begun:] for call in moment.calls}
            top = {program.nodes[index].name for index in program.blocks[0].nodes}
            assert called.isdisjoint(kept & top), "what has succeeded at the top level does not run again"
            result = again  # variables keep their values, so that it may go better this time


def needs_success_alone(program: Program) -> set[str]:
    """Actions that run after successes only, and so do all before and around them: none has a failure for a reason."""
    reasons: dict[int, bool] = {}

    def has_other_reason(index: int) -> bool:
        if index not in reasons:
            node = program.nodes[index]
            owner = program.blocks[node.block].owner
            reasons[index] = any(wanted != SUCCEEDED or has_other_reason(before) for before, wanted in node.after) or (
                owner >= 0 and has_other_reason(owner)
            )
        return reasons[index]

    return {node.name for node in program.nodes if not has_other_reason(node.index)}


@given(flows(), st.sampled_from([2_000, 2_000, 1, 5]))
@any_flow
def test_a_retried_flow_does_nothing_again_that_ended_well(definition: Any, fuel: int) -> None:
    program = load(definition, name="random").program
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "FUEL", fuel)
        driver = Driver(program, restores=True)
        driver.go_on()
        if driver.state.outcome is None or driver.state.outcome.status != "failed":
            return
        begun = len(driver.moments)
        driver.mended = True
        driver.retry()
        again = replay([moment.tick for moment in driver.moments], FlowPlanner(program))
    assert stored(again) == stored(driver.state)
    before = {one for moment in driver.moments[:begun] for one in moment.ended_well}
    after = [one for moment in driver.moments[begun:] for one in moment.ended_well]
    lasting = {node.name for node in program.nodes if node.type != "terminate"} & needs_success_alone(program)
    if "retry" not in str(definition):  # a container's own policy begins it anew
        assert [one for one in after if one in before and one[0] in lasting] == []

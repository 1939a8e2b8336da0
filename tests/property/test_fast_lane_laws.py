"""The law of the fast lane: it gives the same states and commands as the slow way, which defines them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from msgspec.structs import replace
from strategies import ASK, CONFIGS, STOP, A, B, C, programs, read_field, walk

from loom.core.commands import WorkflowCommand
from loom.core.records import EventRecord
from loom.core.reducer import advance
from loom.core.state import BrokerConfig, BrokerState
from loom.core.ticks import TickStepResult, WorkflowTick
from loom.steps.planner import StepsPlanner


class SlowPlanner(StepsPlanner):
    """Offers no fast lane, so that every result goes the slow way."""

    def plain_taker(self, *_facts: object) -> None:
        """Promise nothing."""

    def ends_plainly(self, *_facts: object) -> bool:
        """Promise nothing."""
        return False


class CountingPlanner(StepsPlanner):
    """Counts how often the fast lane was taken."""

    taken = 0

    def plain_taker(self, *facts: object) -> str | None:
        """Name the taker as ever."""
        found = super().plain_taker(*facts)  # type: ignore[arg-type]
        self.taken += found is not None
        return found


def both_ways(state: BrokerState, tick: WorkflowTick) -> tuple[BrokerState, list[WorkflowCommand]]:
    """Do a transition by the fast lane and the slow way. Return what both give."""
    fast = advance(state, tick, StepsPlanner(), read_field)
    assert fast == advance(state, tick, SlowPlanner(), read_field)
    return fast


@given(programs())
def test_fast_lane_gives_what_the_slow_way_gives_in_any_state(program: list[int]) -> None:
    for step in walk(program):
        assert both_ways(step.before, step.tick) == (step.after, step.commands)


@given(programs(max_size=30))
def test_fast_lane_gives_what_the_slow_way_gives_for_every_result_that_could_come(program: list[int]) -> None:
    state = walk(program)[-1].after
    for name in sorted(state.workers):
        worker = state.workers[name]
        for execution in [*worker.in_progress.values(), *worker.suspended.values()]:
            item, seq, returned = execution.item.id, execution.seq, (EventRecord(A, {}),)
            plain = TickStepResult(at=state.at + 1.0, step=name, item=item, seq=seq, returned=returned)
            both_ways(state, plain)
            for kind in (B, C, STOP, ASK):
                both_ways(state, replace(plain, returned=(EventRecord(kind, {}),)))
            for odd in ({"at": state.at - 5.0}, {"at": state.at + 1e9}, {"fanned_out": True}, {"seq": seq + 1}):
                both_ways(state, replace(plain, **odd))
            both_ways(state, replace(plain, writes=0))
            both_ways(state, replace(plain, returned=()))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.workflow)
def test_random_programs_take_the_fast_lane(config: BrokerConfig) -> None:
    """A law that is never put to the test says nothing: some walk of each code must come by."""
    planner, first = CountingPlanner(), CONFIGS.index(config)
    for seed in range(60):
        chance = random.Random(seed)
        for step in walk([first, *(chance.getrandbits(48) for _ in range(30))]):
            advance(step.before, step.tick, planner, read_field)
    assert planner.taken

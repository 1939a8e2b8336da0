"""Laws of the lanes of a run: they say what its state says, after any tick, whatever has happened before."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from strategies import programs, read_field, walk

from loom.core.invariants import violations
from loom.core.reducer import replay
from loom.core.state import BrokerState
from loom.core.ticks import WorkflowTick
from loom.runtime.views.lanes import WORK, LaneRecord
from loom.runtime.views.step_lanes import StepLanes
from loom.steps.planner import StepsPlanner

Counts = dict[str, tuple[int, int, int, int]]


def fed(ticks: list[WorkflowTick]) -> StepLanes:
    lanes = StepLanes(read_field)
    lanes.feed(ticks)
    return lanes


def counted(lanes: StepLanes, tick: int) -> Counts:
    found = {
        name: (
            lane.count("executing", tick),
            lane.count("waiting", tick),
            lane.count("queued", tick),
            lane.count("delayed", tick),
        )
        for name, lane in lanes.lanes.by_name.items()
    }
    return {name: counts for name, counts in found.items() if any(counts)}


def in_state(state: BrokerState) -> Counts:
    if state.outcome is not None and state.outcome.status != "parked":
        return {}  # what a cancelled run had in hand does not go on
    is_parked = state.outcome is not None
    found = {
        name: (
            0 if is_parked else len(worker.in_progress),
            len(worker.suspended),
            len(worker.queue),
            len(worker.delayed),
        )
        for name, worker in state.workers.items()
    }
    return {name: counts for name, counts in found.items() if any(counts)}


def bars(lane: LaneRecord) -> list[tuple[float, float | None, int, int, int, int, int | None, str | None]]:
    return [tuple(row) for row in lane.rows(list(range(len(lane))))]  # type: ignore[misc]


@given(programs(96))
def test_counts_are_those_of_the_state_after_each_tick(program: list[int]) -> None:
    steps = walk(program)
    lanes = fed([step.tick for step in steps])
    for number, step in enumerate(steps):
        assert counted(lanes, number) == in_state(step.after), (number, step.tick)


@given(programs(96))
def test_a_timeline_of_a_prefix_is_a_prefix(program: list[int]) -> None:
    ticks = [step.tick for step in walk(program)]
    half = len(ticks) // 2
    lanes = StepLanes(read_field)
    lanes.feed(ticks[:half])
    before = {name: bars(lane) for name, lane in lanes.lanes.by_name.items()}
    lanes.feed(ticks[half:])
    whole = fed(ticks)
    for name, lane in whole.lanes.by_name.items():
        assert bars(lane) == bars(lanes.lanes.by_name[name])
        for early, late in zip(before.get(name, []), bars(lane), strict=False):
            if early[1] is not None:
                assert early == late
            else:
                assert (early[0], early[2], early[4:7]) == (late[0], late[2], late[4:7])


@given(programs(96))
def test_no_more_work_at_a_time_than_the_step_has_workers(program: list[int]) -> None:
    steps = walk(program, nonsense=False)
    lanes = fed([step.tick for step in steps])
    limits = {spec.name: spec.num_workers for step in steps[:1] for spec in step.after.config.steps}
    for name, lane in lanes.lanes.by_name.items():
        # A suspended body that goes on by itself may be one more than `num_workers`.
        most = max(len(step.after.workers[name].in_progress) for step in steps if name in step.after.workers)
        if limits.get(name) != 1 or most > 1:
            continue
        work = sorted((row[0], row[1]) for row in bars(lane) if row[2] == WORK and row[1] is not None)
        assert all(first[1] <= second[0] for first, second in pairwise(work)), name


@given(programs(96))
def test_a_pruned_history_ends_as_the_whole_one_does(program: list[int]) -> None:
    ticks = [step.tick for step in walk(program)]
    half = len(ticks) // 2
    state = replay(ticks[:half], StepsPlanner(), None, read_field)
    lanes = StepLanes(read_field, state)
    lanes.feed(ticks[half:])
    assert not violations(state)
    assert counted(lanes, len(ticks) - 1) == counted(fed(ticks), len(ticks) - 1)

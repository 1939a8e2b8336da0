"""Laws of the reducer: what must hold for any tick in any state, whatever has happened before."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import (
    CONFIGS,
    START,
    STOP,
    A,
    C,
    Dice,
    Step,
    event,
    executions,
    garbage,
    items_of,
    programs,
    read_field,
    start,
    tick_for,
    walk,
)

from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandPublishEvent,
    CommandQueueEvent,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
)
from loom.core.invariants import violations, wrong_changes
from loom.core.records import EventRecord, Failure, IdleReport, Release
from loom.core.reducer import advance, replay, replay_steps
from loom.core.run_life import life_change, life_of
from loom.core.state import BrokerConfig, BrokerState, StepSpec
from loom.core.ticks import (
    TickCancelRun,
    TickChildEnded,
    TickPublishEvent,
    TickRecordResult,
    TickResume,
    TickRetryRun,
    TickStartChild,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.steps.planner import StepsPlanner

BROKEN = ("completed", "failed", "timed_out")
"""How a run ends for good; a cancelled or parked one keeps its work."""


def settled(state: BrokerState) -> BrokerState:
    """A state without what may change although nothing happened."""
    return replace(state, dropped=0, at=0.0, ticks=0)


def is_overdue(state: BrokerState) -> bool:
    """Whether the next tick finds the run's time over, whatever it is: so it may be after a parked run was taken up."""
    return state.deadline is not None and state.at > state.deadline


@given(programs())
def test_any_tick_in_any_state_gives_one_answer_and_a_sound_state(program: list[int]) -> None:
    for step in walk(program):
        again = advance(step.before, step.tick, StepsPlanner(), read_field)
        assert again == (step.after, step.commands)
        assert violations(step.after) == []
        assert wrong_changes(step.before, step.tick, StepsPlanner(), read_field) == []
        was, now = life_of(step.before), life_of(step.after)
        assert was == now or life_change(was, now, step.tick) is not None
        assert not [c for c in step.commands if isinstance(c, CommandQueueEvent)]


@given(programs(max_size=10))
def test_run_that_has_not_begun_refuses_everything_but_a_start(program: list[int]) -> None:
    state = BrokerState()
    for code in program:
        dice = Dice(code)
        tick = garbage(dice, 1.0)
        if not hasattr(tick, "run_id"):
            state, commands = advance(state, tick, StepsPlanner(), read_field)
            assert (settled(state), commands) == (BrokerState(), [])


@given(programs(), st.integers(0, 39))
def test_replay_equals_live_from_the_beginning_and_from_any_snapshot(program: list[int], cut: int) -> None:
    steps = walk(program)
    ticks = [step.tick for step in steps]
    replayed = list(replay_steps(ticks, StepsPlanner(), None, read_field))
    # The live states are compared after the whole walk: had a later tick changed one of them, it would differ now.
    assert [(after, commands) for _, after, commands in replayed] == [(s.after, s.commands) for s in steps]
    cut = min(cut, len(steps) - 1)
    assert replay(ticks[cut + 1 :], StepsPlanner(), steps[cut].after, read_field) == steps[-1].after


@given(programs())
def test_time_and_counters_never_go_back(program: list[int]) -> None:
    for before, tick, after, _ in walk(program):
        assert after.at >= max(before.at, tick.at)
        assert after.ticks == before.ticks + 1
        for name in ("sequence", "items", "published", "dropped", "store_version"):
            assert getattr(after, name) >= getattr(before, name)


@given(programs())
def test_numbers_are_unique_and_increasing_and_the_stream_has_no_gap(program: list[int]) -> None:
    workers, timers, cursors = [], [], []
    for _, tick, _, commands in walk(program):
        workers += [c.seq for c in commands if isinstance(c, CommandRunWorker)]
        cursors += [c.cursor for c in commands if isinstance(c, CommandPublishEvent)]
        if not isinstance(tick, TickResume | TickRetryRun):
            timers += [c.seq for c in commands if isinstance(c, CommandStartTimer)]
    assert workers == sorted(set(workers))
    assert timers == sorted(set(timers))
    assert not set(workers) & set(timers)
    assert cursors == list(range(len(cursors)))


def _is_applied(step: Step) -> bool:
    return step.after.dropped == step.before.dropped and step.after.outcome is None


@given(programs())
def test_repeated_result_is_a_no_op(program: list[int]) -> None:
    for step in walk(program):
        if isinstance(step.tick, TickStepResult | TickTimerFired) and _is_applied(step):
            after, commands = advance(step.after, step.tick, StepsPlanner(), read_field)
            assert settled(after) == settled(step.after)
            assert (after.dropped, commands) == (step.after.dropped + 1, [])


@given(programs())
def test_repeated_effect_is_a_no_op(program: list[int]) -> None:
    for step in walk(program):
        source = getattr(step.tick, "source", None)
        if source is None or not _is_applied(step) or not hasattr(step.tick, "event"):
            continue
        after, commands = advance(step.after, step.tick, StepsPlanner(), read_field)
        assert (settled(after), commands) == (settled(step.after), [])


@given(programs(), st.integers(-3, 3).filter(bool))
def test_result_of_another_execution_is_a_no_op(program: list[int], off: int) -> None:
    state = walk(program)[-1].after
    if is_overdue(state):
        return
    for execution in executions(state):
        item = execution.item
        tick = TickStepResult(at=state.at, step=item.step, item=item.id, seq=execution.seq + off)
        after, commands = advance(state, tick, StepsPlanner(), read_field)
        assert (settled(after), commands) == (settled(state), [])


@given(programs(), programs(max_size=6))
def test_end_absorbs_whatever_comes_later(program: list[int], later: list[int]) -> None:
    state = walk(program)[-1].after
    if state.outcome is None:
        return
    for code in later:
        tick = tick_for(code, state)
        if state.outcome.status == "parked" and isinstance(tick, TickResume | TickCancelRun):
            continue
        if state.outcome.status in ("failed", "timed_out") and isinstance(tick, TickRetryRun):
            continue
        after, commands = advance(state, tick, StepsPlanner(), read_field)
        assert (settled(after), commands) == (settled(state), [])


@given(programs())
def test_run_that_ended_for_good_has_nothing_left_to_do(program: list[int]) -> None:
    state = walk(program)[-1].after
    if state.outcome is not None and state.outcome.status in BROKEN:
        assert (items_of(state), len(state.timers), state.active, state.asleep) == ([], 0, 0, 0)
        assert state.get_active_waiters() == []
        assert not state.children


@given(programs())
def test_timers_outside_are_the_timers_inside(program: list[int]) -> None:
    armed: set[int] = set()
    for before, tick, after, commands in walk(program):
        if isinstance(tick, TickResume) or (isinstance(tick, TickRetryRun) and before.outcome != after.outcome):
            armed.clear()
        elif isinstance(tick, TickTimerFired) or (isinstance(tick, TickTimeout) and tick.timer == before.timeout_timer):
            armed.discard(tick.timer)
        for command in commands:
            if isinstance(command, CommandStartTimer):
                armed.add(command.seq)
            elif isinstance(command, CommandCancelTimer):
                armed.remove(command.seq)
        if after.is_running:
            assert armed == set(after.timers)


@given(programs())
def test_every_open_wait_has_its_waiter_or_its_timer(program: list[int]) -> None:
    for step in walk(program):
        state = step.after
        if not state.is_running:
            continue
        listed = sorted(number for keys in state.waiting.open.values() for number in keys.values())
        waiters = [waiter.number for _, waiter in state.get_active_waiters()]
        sleeps = [number for number, timer in state.timers.items() if timer.purpose == "sleep"]
        assert listed == sorted([*waiters, *sleeps, *state.children])
        alive = {item for _, item in items_of(state)}
        assert set(state.waiting.open) <= alive
        assert set(state.waiting.answers) <= alive


@given(programs())
def test_idle_means_nothing_can_move_and_is_told_once_per_transition(program: list[int]) -> None:
    for before, tick, after, commands in walk(program):
        told = [c for c in commands if isinstance(c, CommandPublishEvent) and isinstance(c.event, IdleReport)]
        became = after.is_idle() and before.idle_since is None
        assert len(told) == int(became), (tick, before.idle_since)
        assert (after.idle_since is not None) == after.is_idle()
        if after.is_idle():
            assert not any(w.queue or w.in_progress or w.ready or w.delayed for w in after.workers.values())
            assert not [t for t in after.timers.values() if t.purpose == "retry"]


@given(programs())
def test_work_item_leaves_only_by_its_own_result(program: list[int]) -> None:
    for before, tick, after, _ in walk(program):
        assert max(Counter(items_of(after)).values(), default=1) == 1
        if after.outcome is None and after.cleanup == before.cleanup:
            gone = set(items_of(before)) - set(items_of(after))
            own = {(tick.step, tick.item)} if isinstance(tick, TickStepResult) else set()
            assert gone <= own


@given(programs(), st.floats(0, 100))
def test_crash_at_any_point_loses_no_work_and_doubles_none(program: list[int], away: float) -> None:
    state = walk(program, nonsense=False)[-1].after
    if not state.is_running:
        return
    after, commands = advance(state, TickResume(at=state.at + away, away_s=away), StepsPlanner(), read_field)
    assert items_of(after) == items_of(state)
    dispatched = [(c.step, c.item.id) for c in commands if isinstance(c, CommandRunWorker)]
    assert len(set(dispatched)) == len(dispatched)
    held = {(e.item.step, e.item.id): (e.id, e.effects) for e in executions(state)}
    for command in (c for c in commands if isinstance(c, CommandRunWorker)):
        execution = after.workers[command.step].in_progress[command.item.id]
        if (command.step, command.item.id) in held:
            assert (execution.id, execution.effects) == held[command.step, command.item.id]
    assert [t.due for n, t in sorted(after.timers.items()) if n != after.timeout_timer] == [
        t.due for n, t in sorted(state.timers.items()) if n != state.timeout_timer
    ]


@given(programs())
def test_effects_of_a_dead_process_are_refused(program: list[int]) -> None:
    state = walk(program)[-1].after
    if not state.is_running:
        return
    after, _ = advance(state, TickResume(at=state.at), StepsPlanner(), read_field)
    if is_overdue(after):
        return
    for execution in executions(state):
        item = execution.item
        tick = TickStepResult(at=after.at, step=item.step, item=item.id, seq=execution.seq, returned=(event(Dice(1)),))
        late, commands = advance(after, tick, StepsPlanner(), read_field)
        assert (settled(late), commands) == (settled(after), [])


def _branches(workers: int) -> BrokerConfig:
    return BrokerConfig(
        "branches",
        (
            StepSpec("begin", (START.name,), joins=("gather",)),
            StepSpec("work", (A.name,), num_workers=workers),
            StepSpec("gather", (C.name,), collects=True),
        ),
    )


@given(st.integers(0, 6), st.integers(0, 3), st.lists(st.integers(0, 2**16), min_size=30, max_size=30))
def test_order_in_which_branches_finish_does_not_change_the_set(size: int, workers: int, order: list[int]) -> None:
    planner, members = StepsPlanner(), []
    state, _ = advance(BrokerState(), start(_branches(workers)), planner)
    fan = tuple(EventRecord(A, n) for n in range(size))
    tick = TickStepResult(at=0.0, step="begin", item=1, seq=1, returned=fan, fanned_out=True)
    state, _ = advance(state, tick, planner)
    for code in order:
        dice, running = Dice(code), executions(state)
        execution = dice.pick(running)
        item = execution.item
        base = {"at": state.at, "step": item.step, "item": item.id, "seq": execution.seq}
        if item.step == "gather":
            assert isinstance(item.event.body, Release)
            members = [m.body for m in item.event.body.members]
            tick = TickStepResult(**base, returned=(EventRecord(STOP, sorted(members)),))
        elif dice.below(4) == 0:
            tick = TickStepResult(**base, failure=Failure("x.E", ""), retry_delay_s=0.0)
        else:
            tick = TickStepResult(**base, returned=(EventRecord(C, item.event.body),))
        state, _ = advance(state, tick, planner)
        if state.outcome is not None:
            assert state.outcome.event == EventRecord(STOP, list(range(size)))
            return
    assert items_of(state), "a run that has not ended has work"


@given(programs(), st.integers(0, len(CONFIGS) - 1))
def test_publishing_from_outside_moves_nothing_but_the_stream(program: list[int], number: int) -> None:
    state = walk(program)[-1].after
    if state.outcome is not None or is_overdue(state):
        return
    after, commands = advance(state, TickPublishEvent(at=state.at, event=EventRecord(A, number)), StepsPlanner())
    assert commands == [CommandPublishEvent(state.published, EventRecord(A, number))]
    assert settled(replace(after, published=state.published)) == settled(state)


@given(programs())
def test_paused_run_starts_nothing(program: list[int]) -> None:
    for step in walk(program):
        if step.before.paused and step.after.paused:
            assert not [c for c in step.commands if isinstance(c, CommandRunWorker)]
            assert not [c for c in step.commands if isinstance(c, CommandResumeWorker) and c.worker_id is not None]


@given(programs())
def test_blocked_run_executes_nothing_and_has_nothing_that_could_start(program: list[int]) -> None:
    for step in walk(program):
        state = step.after
        workers = state.workers.values()
        executes = any(w.in_progress for w in workers)
        could_start = any(w.queue or w.ready for w in workers) and not state.paused
        assert state.is_blocked() == (state.is_running and not executes and not could_start)


@given(programs())
def test_retried_run_has_all_of_its_work_again_and_only_a_failed_run_is_retried(program: list[int]) -> None:
    for before, tick, failed, _ in walk(program):
        if is_overdue(failed):
            continue
        retried, commands = advance(failed, TickRetryRun(at=failed.at), StepsPlanner(), read_field)
        if failed.outcome is None or failed.outcome.status not in ("failed", "timed_out"):
            assert (settled(retried), commands) == (settled(failed), [])
            assert retried.dropped == failed.dropped + 1
        elif before.outcome is None and retried.outcome is None:
            assert violations(retried) == []
            returned = isinstance(tick, TickStepResult) and tick.failure is None and failed.outcome.status == "failed"
            assert set(items_of(before)) - set(items_of(retried)) <= ({(tick.step, tick.item)} if returned else set())
            assert retried.deadline is None or retried.deadline == retried.at + (retried.config.timeout_s or 0.0)


@given(programs())
def test_child_runs_outside_are_the_children_inside(program: list[int]) -> None:
    under_way: set[int] = set()
    for _, tick, after, commands in walk(program):
        for command in commands:
            if isinstance(command, CommandStartChild):
                assert command.seq not in under_way
                assert command.run_id == f"run-1:{command.seq}"
                under_way.add(command.seq)
            elif isinstance(command, CommandCancelChild):
                under_way.remove(command.seq)
        if isinstance(tick, TickChildEnded) and tick.child not in after.children:
            under_way.discard(tick.child)
        assert under_way == set(after.children)


@given(programs())
def test_body_that_asks_again_gets_no_second_child(program: list[int]) -> None:
    for step in walk(program):
        if isinstance(step.tick, TickStartChild) and _is_applied(step):
            after, commands = advance(step.after, step.tick, StepsPlanner(), read_field)
            assert settled(after) == settled(step.after)
            assert not [c for c in commands if isinstance(c, CommandStartChild)]


@given(programs())
def test_first_result_of_a_name_is_recorded_and_every_later_dispatch_knows_it(program: list[int]) -> None:
    recorded: dict[int, dict[str, int]] = {}
    for _, tick, _, commands in walk(program):
        for command in commands:
            if isinstance(command, CommandRunWorker):
                assert dict(command.records) == recorded.get(command.item.id, {})
            elif isinstance(command, CommandResumeWorker) and isinstance(tick, TickRecordResult):
                of_item = recorded.setdefault(tick.source.item, {})
                assert command.value == of_item.setdefault(command.key.removeprefix("once:"), command.value)

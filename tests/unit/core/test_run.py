"""The sans-IO run: feed, drain, flush, push back, the terminal command, and the command queue."""

from __future__ import annotations

from typing import Any

import pytest
from core_rig import START, STOP, WORK, A, ev, read_field
from msgspec.structs import replace

from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandCompleteRun,
    CommandHalt,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    TerminalCommand,
)
from loom.core.records import EventRecord, IdleReport
from loom.core.run import BatchLimit, CommandQueue, Run, terminal_command
from loom.core.state import BrokerConfig, BrokerState, WorkItem
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickCancelRun,
    TickEditStore,
    TickParkRun,
    TickPauseRun,
    TickPublishEvent,
    TickResume,
    TickStartRun,
    TickStepResult,
    WorkflowTick,
)
from loom.steps.planner import StepsPlanner

CONFIG = BrokerConfig("test", (WORK,))


def new_run(state: BrokerState | None = None) -> Run:
    return Run(StepsPlanner(), state, read_field, lambda _command: 10)


def started(*ticks: WorkflowTick, config: BrokerConfig = CONFIG) -> Run:
    run = new_run()
    for tick in (TickStartRun(at=0.0, run_id="r", config=config, event=ev(START)), *ticks):
        run.feed(tick)
    run.drain()
    return run


def stop(seq: int = 1, at: float = 1.0) -> TickStepResult:
    return TickStepResult(at=at, step="work", item=1, seq=seq, returned=(ev(STOP),))


def test_nothing_is_reduced_before_drain() -> None:
    run = new_run()
    run.feed(TickStartRun(at=0.0, run_id="r", config=CONFIG, event=ev(START)))
    assert not run.state.is_running
    run.drain()
    assert run.state.is_running


def test_batch_holds_the_input_ticks_once_and_no_derived_ones() -> None:
    run = started()
    batch = run.flush()
    assert [type(t) for t in batch.ticks] == [TickStartRun]
    assert run.flush().ticks == []


def test_ticks_that_others_wait_behind_are_marked_in_the_journal() -> None:
    batch = started(TickAddEvent(at=0.0, event=ev(A)), TickAddEvent(at=0.0, event=ev(A))).flush()
    assert [t.more for t in batch.ticks] == [True, True, False]


def test_run_with_more_input_at_hand_does_not_call_itself_idle() -> None:
    config = BrokerConfig("test", (WORK,))
    run = new_run()
    run.feed(TickStartRun(at=0.0, run_id="r", config=config))
    run.feed(TickAddEvent(at=0.0, event=ev(A)))
    run.drain()
    published = [c.event for c in run.flush().commands if isinstance(c, CommandPublishEvent)]
    assert not [event for event in published if isinstance(event, IdleReport)]


def test_terminal_command_goes_last_and_once() -> None:
    run = started()
    run.flush()
    run.feed(stop())
    run.drain()
    assert run.is_over
    assert not run.is_closed
    batch = run.flush()
    assert isinstance(batch.commands[-1], CommandCompleteRun)
    assert run.is_closed
    assert run.flush().commands == []


def test_terminal_command_waits_for_what_is_queued_before_it() -> None:
    run = started()
    run.flush()
    run.feed(stop())
    run.drain()
    sent = []
    while not run.is_closed:
        batch = run.flush(max_bytes=10)
        sent += batch.commands
        assert len(batch.commands) <= 2
    assert [isinstance(c, TerminalCommand) for c in sent] == [False] * (len(sent) - 1) + [True]


def test_work_that_was_not_begun_does_not_leave_after_the_end() -> None:
    run = started(TickCancelRun(at=0.0), config=BrokerConfig("test", (WORK,), timeout_s=5.0))
    commands = run.flush().commands
    assert [c for c in commands if isinstance(c, CommandRunWorker | CommandStartTimer)] == []
    assert commands[-1] == CommandHalt("cancelled")


def test_pushed_back_terminal_command_is_built_again() -> None:
    run = started(TickCancelRun(at=0.0))
    batch = run.flush()
    run.push_back(batch.commands[-1:])
    assert not run.is_closed
    assert run.flush().commands == [CommandHalt("cancelled")]


def test_pushed_back_commands_leave_with_the_next_flush() -> None:
    run = started()
    batch = run.flush()
    run.push_back(batch.commands)
    assert run.has_commands
    assert run.flush().commands == batch.commands


def test_answers_leave_although_the_window_is_full() -> None:
    run = started()
    run.answer("status")
    batch = run.flush(max_in_flight=1, in_flight=1)
    assert batch.answers == ["status"]
    assert run.has_commands


def parked() -> Run:
    source = Source("work", 1, 1, 0)
    publish = TickPublishEvent(at=0.0, event=ev(A), source=source)
    return started(publish, TickEditStore(at=0.0, base_version=0, changed={}, source=source))


def test_parked_run_that_is_recovered_ends_again() -> None:
    run = parked()
    assert isinstance(run.flush().commands[-1], CommandHalt)
    run.feed(TickResume(at=1.0))
    run.drain()
    assert not run.is_over
    assert not run.is_closed
    (again,) = [c for c in run.flush().commands if isinstance(c, CommandRunWorker)]
    run.feed(stop(again.seq, at=2.0))
    run.drain()
    assert isinstance(run.flush().commands[-1], CommandCompleteRun)


def test_parked_run_shows_what_it_could_not_take() -> None:
    run = parked()
    assert run.pending == ()
    late = TickAddEvent(at=1.0, event=ev(A))
    run.feed(late)
    run.drain()
    assert run.pending == (late,)
    run.feed(TickResume(at=2.0))
    run.drain()
    run.drain()
    assert run.pending == ()


def test_batch_tells_why_something_stayed() -> None:
    assert started().flush().held == ""
    assert started().flush(max_in_flight=1, in_flight=1).held == "window"
    assert started().flush(max_bytes=10).held == "bytes"
    assert started().flush(max_bytes=10, used=1).commands == []


def test_dropped_work_does_not_leave_and_the_state_has_it_still() -> None:
    run = started(config=BrokerConfig("test", (WORK,), timeout_s=60.0))
    run.drop_work()
    assert {type(command) for command in run.flush().commands} == {CommandPublishEvent}
    assert list(run.state.workers["work"].in_progress) == [1]
    assert len(run.state.timers) == 1


def test_a_batch_says_how_many_events_there_were_after_each_tick() -> None:
    run = started()
    run.feed(TickPublishEvent(at=2.0, event=ev(START)), TickPublishEvent(at=2.0, event=ev(START)))
    before = run.state.published
    run.drain()
    assert run.flush().published[-2:] == [before + 1, before + 2]
    assert run.flush().published == []


def test_run_goes_on_from_a_state() -> None:
    run = new_run(started().state)
    run.feed(TickResume(at=5.0))
    run.drain()
    assert [c.item.id for c in run.flush().commands if isinstance(c, CommandRunWorker)] == [1]


class Choking(StepsPlanner):
    """A planner with a bug."""

    def on_event(self, *facts: Any) -> Any:
        if any(isinstance(fact, EventRecord) and fact.body.get("poison") for fact in facts):
            raise RuntimeError("choked")
        return super().on_event(*facts)


def test_tick_that_cannot_be_reduced_leaves_the_run_as_it_was_and_the_others_in_line() -> None:
    run = Run(Choking(), started().state, read_field)
    run.feed(TickAddEvent(at=1.0, event=ev(A)))
    run.drain()
    before = run.state
    run.feed(TickAddEvent(at=2.0, event=ev(A, poison=True)))
    run.feed(TickAddEvent(at=3.0, event=ev(A)))
    with pytest.raises(RuntimeError, match="choked"):
        run.drain()
    assert run.state == before
    run.drain()
    batch = run.flush()
    assert [tick.at for tick in batch.ticks] == [1.0, 3.0]
    assert (run.state.items, run.state.at) == (3, 3.0)


def test_terminal_command_of_a_run_under_way_is_an_error() -> None:
    with pytest.raises(ValueError, match="has not ended"):
        terminal_command(started().state)


def test_fields_and_is_blocked_answer_from_the_draft_without_freezing_it() -> None:
    run = started()
    assert run.fields.run_id == "r"
    assert (run.fields.active, run.is_blocked) == (1, False)
    run.feed(
        TickPauseRun(at=0.0), TickAddEvent(at=0.0, event=ev(A)), TickStepResult(at=0.0, step="work", item=1, seq=1)
    )
    assert not run.fields.paused
    run.drain()
    assert (run.fields.paused, run.fields.active, run.is_blocked) == (True, 1, True)
    assert not isinstance(run.fields, BrokerState)
    assert run.state.is_blocked()


# -- batches of a bounded size ----------------------------------------------------------------------------------------


def notes(count: int) -> list[WorkflowTick]:
    return [TickPublishEvent(at=1.0 + number, event=ev(A)) for number in range(count)]


def parts_of(run: Run, ticks: list[WorkflowTick]) -> list[list[WorkflowTick]]:
    """Feed all at once, and drive the run as a driver does; the ticks of each batch."""
    run.feed(*ticks)
    parts: list[list[WorkflowTick]] = []
    while True:
        run.drain()
        parts.append(run.flush().ticks)
        if not run.holds_input:
            return parts


@pytest.mark.parametrize(("limit", "sizes"), [((4, 99), [4, 4, 4]), ((99, 5), [2, 2, 2, 2, 2, 2]), ((1, 1), [1] * 12)])
def test_batches_are_full_and_the_journal_is_as_without_a_limit(limit: tuple[int, int], sizes: list[int]) -> None:
    start = TickStartRun(at=0.0, run_id="r", config=CONFIG, event=ev(START))
    ticks = [start, *notes(10), stop(at=99.0)]
    whole = new_run()
    [journal] = parts_of(whole, ticks)
    split = Run(StepsPlanner(), None, read_field, limit=BatchLimit(*limit, lambda _tick: 3))
    parts = parts_of(split, ticks)
    assert [len(part) for part in parts] == sizes
    assert [tick for part in parts for tick in part] == journal
    assert split.state == whole.state
    # The marks say the same, so that the run is idle nowhere in between.
    assert [tick.more for part in parts for tick in part] == [True] * 11 + [False]


def test_what_comes_between_two_batches_goes_last() -> None:
    run = Run(StepsPlanner(), None, read_field, limit=BatchLimit(2, 99, lambda _tick: 1))
    run.feed(TickStartRun(at=0.0, run_id="r", config=CONFIG, event=ev(START)), *notes(3))
    run.drain()
    run.drain()
    assert (len(run.flush().ticks), run.holds_input) == (2, True)
    run.feed(TickCancelRun(at=9.0))
    run.drain()
    assert (len(run.flush().ticks), run.holds_input) == (2, True)
    run.drain()
    batch = run.flush()
    assert ([type(tick) for tick in batch.ticks], run.holds_input) == ([TickCancelRun], False)
    assert isinstance(batch.commands[-1], CommandHalt)


def test_a_parked_run_holds_nothing_back_for_a_next_batch() -> None:
    run = Run(StepsPlanner(), None, read_field, limit=BatchLimit(2, 99, lambda _tick: 1))
    run.feed(TickStartRun(at=0.0, run_id="r", config=CONFIG, event=ev(START)), TickParkRun(at=1.0, reason="why"))
    run.feed(*notes(3))
    run.drain()
    assert isinstance(run.flush().commands[-1], CommandHalt)
    run.drain()
    assert (run.holds_input, len(run.pending)) == (False, 3)


def work(seq: int) -> CommandRunWorker:
    return CommandRunWorker(seq, "work", WorkItem(seq, "work", ev(START)), 0, seq, 0.0)


def note(cursor: int) -> CommandPublishEvent:
    return CommandPublishEvent(cursor, ev(START))


def timer(seq: int) -> CommandStartTimer:
    return CommandStartTimer(seq, 1.0, "retry")


def queue_of(*commands: object, size: int = 10) -> CommandQueue:
    queue = CommandQueue(lambda _command: size)
    queue.add(commands)
    return queue


def test_everything_leaves_in_order_without_a_budget() -> None:
    commands = [work(1), note(0), timer(2)]
    queue = queue_of(*commands)
    assert queue.flush() == commands
    assert len(queue) == 0


def test_byte_budget_lets_the_longest_prefix_go() -> None:
    queue = queue_of(note(0), note(1), note(2))
    assert queue.flush(max_bytes=20) == [note(0), note(1)]
    assert queue.flush(max_bytes=20) == [note(2)]


def test_one_command_passes_however_large() -> None:
    queue = queue_of(note(0), note(1), size=1000)
    assert queue.flush(max_bytes=1) == [note(0)]
    assert queue.flush(max_bytes=1) == [note(1)]


def test_window_of_bodies_counts_those_under_way() -> None:
    queue = queue_of(work(1), note(0), work(2), note(1))
    assert queue.flush(max_in_flight=2, in_flight=1) == [work(1), note(0)]
    assert queue.flush(max_in_flight=2, in_flight=2) == []
    assert queue.flush(max_in_flight=2, in_flight=1) == [work(2), note(1)]


def test_one_body_passes_when_none_is_under_way() -> None:
    queue = queue_of(work(1), work(2))
    assert queue.flush(max_in_flight=0) == [work(1)]


def test_window_counts_child_runs_too() -> None:
    child = CommandStartChild(1, "r:1", "pay")
    queue = queue_of(child, work(2))
    assert queue.flush(max_in_flight=1) == [child]
    assert queue.held == "window"
    assert queue.flush(max_in_flight=1) == [work(2)]
    assert queue.held == ""


def test_children_are_cancelled_by_no_more_than_may_be_and_in_order() -> None:
    cancels = [CommandCancelChild(seq, f"r:{seq}") for seq in range(3)]
    queue = queue_of(cancels[0], note(0), *cancels[1:], note(1))
    assert queue.flush(max_cancels=2) == [cancels[0], note(0), cancels[1]]
    assert queue.held == "cancels"
    assert queue.flush(max_cancels=0) == []
    assert queue.flush(max_cancels=1) == [cancels[2], note(1)]
    assert queue.held == ""


def test_child_runs_that_have_not_left_can_be_listed() -> None:
    child = CommandStartChild(1, "r:1", "pay")
    queue = queue_of(work(2), child)
    assert queue.queued_children() == [child]
    queue.flush()
    assert queue.queued_children() == []


def test_bytes_that_were_used_before_count_against_the_budget() -> None:
    queue = queue_of(note(0), note(1))
    assert queue.flush(max_bytes=20, used=10) == [note(0)]
    assert queue.held == "bytes"
    assert queue.flush(max_bytes=20, used=20) == []


def test_large_command_has_to_wait_if_the_budget_was_used_and_passes_if_not() -> None:
    queue = queue_of(note(0), size=1000)
    assert queue.flush(max_bytes=20, used=1) == []
    assert queue.flush(max_bytes=20) == [note(0)]
    assert queue.held == ""


def test_command_that_weighs_nothing_always_passes_and_leaves_the_budget_to_others() -> None:
    queue = CommandQueue(lambda command: 1000 if isinstance(command, CommandRunWorker) else 0)
    queue.add([note(0), work(1), note(1), work(2), note(2)])
    assert queue.flush(max_bytes=20) == [note(0), work(1), note(1)]
    assert queue.held == "bytes"
    assert queue.flush(max_bytes=20, used=30) == []


def test_push_back_goes_first_and_in_order() -> None:
    queue = queue_of(note(0), note(1), note(2))
    sent = queue.flush()
    queue.add([note(3)])
    queue.push_back(sent[1:])
    assert queue.flush() == [note(1), note(2), note(3)]


def test_cancel_of_a_queued_timer_removes_both() -> None:
    queue = queue_of(note(0), timer(1))
    queue.add([CommandCancelTimer(1), note(1)])
    assert queue.flush() == [note(0), note(1)]


def test_cancel_removes_every_queued_start_of_its_timer() -> None:
    queue = queue_of(timer(1), timer(1), CommandCancelTimer(1))
    assert [c for c in queue.flush() if isinstance(c, CommandStartTimer)] == []


def test_cancel_of_a_pushed_back_timer_removes_both() -> None:
    queue = queue_of(timer(1))
    queue.push_back(queue.flush())
    queue.add([CommandCancelTimer(1)])
    assert queue.flush() == []


def test_cancel_of_a_timer_that_left_goes_out() -> None:
    queue = queue_of(timer(1))
    queue.flush()
    queue.add([CommandCancelTimer(1)])
    assert queue.flush() == [CommandCancelTimer(1)]


def test_end_of_a_run_drops_what_was_not_begun() -> None:
    queue = queue_of(work(1), note(0), timer(2))
    assert queue.drop_work() == [work(1), timer(2)]
    assert queue.flush() == [note(0)]


def test_events_for_the_stream_can_be_had_ahead_of_what_waits() -> None:
    queue = queue_of(work(1), note(0), work(2), note(1))
    assert queue.take_published() == [note(0), note(1)]
    assert queue.take_published() == []
    assert queue.flush() == [work(1), work(2)]


def test_bodies_of_given_steps_can_be_had_ahead_of_what_waits() -> None:
    other = replace(work(2), step="other")
    queue = queue_of(work(1), note(0), other, timer(3), work(4))
    assert queue.take_bodies(frozenset({"work"})) == [work(1), work(4)]
    assert queue.take_bodies(frozenset({"work"})) == []
    assert queue.flush() == [note(0), other, timer(3)]


def test_answers_have_their_own_lane() -> None:
    queue = queue_of(work(1), work(2))
    queue.answer("status")
    assert queue.flush(max_in_flight=1, in_flight=1) == []
    assert queue.take_answers() == ["status"]
    assert queue.take_answers() == []


def test_byte_budget_without_a_measure_is_an_error() -> None:
    queue = CommandQueue()
    queue.add([note(0)])
    with pytest.raises(ValueError, match="measure"):
        queue.flush(max_bytes=10)
    assert len(queue) == 1


def test_child_run_that_is_cancelled_before_it_left_was_never_asked_for() -> None:
    queue = queue_of(CommandStartChild(1, "r:1", "pay"), note(0))
    queue.add([CommandCancelChild(1, "r:1")])
    assert queue.flush() == [note(0)]


def test_cancelling_of_a_child_run_that_has_left_leaves_too() -> None:
    queue = queue_of(CommandStartChild(1, "r:1", "pay"), CommandStartChild(2, "r:2", "pay"))
    queue.flush(max_bytes=10)
    queue.add([CommandCancelChild(1, "r:1")])
    assert queue.flush() == [CommandStartChild(2, "r:2", "pay"), CommandCancelChild(1, "r:1")]


def test_child_run_of_a_parked_parent_is_started_still() -> None:
    queue = queue_of(CommandStartChild(1, "r:1", "pay"), work(2))
    queue.drop_work()
    assert queue.flush() == [CommandStartChild(1, "r:1", "pay")]

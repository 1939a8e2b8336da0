"""The command queue: order, budgets, push back, cancelled timers and the lane of the answers."""

from __future__ import annotations

import pytest
from core_rig import START, ev

from loom.core.command_queue import CommandQueue
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandPublishEvent,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
)
from loom.core.state import WorkItem


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

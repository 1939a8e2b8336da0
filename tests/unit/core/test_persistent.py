"""The immutable queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.core.persistent import EMPTY_FIFO, Fifo


def test_values_leave_in_the_order_they_came() -> None:
    queue = Fifo.of("ab").push_back("c")
    first, rest = queue.pop_front()
    assert (first, list(rest), len(rest)) == ("a", ["b", "c"], 2)


def test_head_can_be_pushed_below_zero() -> None:
    assert list(Fifo.of("b").push_front("a").push_front("z")) == ["z", "a", "b"]


def test_change_leaves_the_old_version_as_it_was() -> None:
    old = Fifo.of("ab")
    old.push_back("c")
    old.push_front("z")
    old.pop_front()
    assert list(old) == ["a", "b"]


def test_emptied_queue_is_the_one_empty_queue() -> None:
    assert Fifo.of("a").pop_front()[1] is EMPTY_FIFO
    assert Fifo.of(()) is EMPTY_FIFO
    assert not EMPTY_FIFO


def test_empty_queue_has_nothing_to_pop() -> None:
    with pytest.raises(IndexError, match="empty"):
        EMPTY_FIFO.pop_front()


@given(st.lists(st.sampled_from(["back", "front", "pop"]), max_size=300))
def test_queue_behaves_like_a_list(operations: list[str]) -> None:
    queue: Fifo[int] = EMPTY_FIFO
    model: list[int] = []
    for number, operation in enumerate(operations):
        before, values = queue, list(queue)
        if operation == "back":
            queue, model = queue.push_back(number), [*model, number]
        elif operation == "front":
            queue, model = queue.push_front(number), [number, *model]
        elif model:
            first, queue = queue.pop_front()
            assert first == model.pop(0)
        assert (list(queue), len(queue), bool(queue)) == (model, len(model), bool(model))
        assert list(before) == values
    assert queue == Fifo.of(model)
    assert hash(queue) == hash(Fifo.of(model))
    assert queue != Fifo.of([*model, -1])


def test_long_queue_keeps_its_order() -> None:
    queue = Fifo.of(range(1000))
    values = []
    while queue:
        value, queue = queue.pop_front()
        values.append(value)
    assert values == list(range(1000))


def test_queues_differ_only_if_their_values_do() -> None:
    assert not Fifo.of([1, 2]) != Fifo.of([1, 2])  # noqa: SIM202 - both operators are asked
    assert Fifo.of([1, 2]) != Fifo.of([2, 1])
